# The same script in minutes on a CPU: 5 MB of any English text, 2 layers x 128, 300 updates. The losses
# are not meaningful; examples/roberta_small trains a useful small model.
NAME=roberta_pretraining_laptop
DATA_NAME=$NAME
MACHINE=laptop
VOCAB_SIZE=4000
VALID_EVERY=20
MODEL_FLAGS=(--encoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 512 --encoder-attention-heads 2)
TOKENS_PER_SAMPLE=128
BATCH=32
UPDATES=300
LEARNING_RATE=1e-3
WARMUP_UPDATES=50
LOADERS=0
LOG_EVERY=10
VALIDATE_EVERY=100
SAVE_EVERY=100
KEEP_EVERY=300
