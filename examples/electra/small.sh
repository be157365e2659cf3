# 2 layers x 128, T = 32, on a CPU: the discriminator is the model of examples/roberta_small, on the same data, so that
# fine-tuning compares the two pretrainings.
NAME=electra_small
PREPARED_BY=roberta_small
DATA_NAME=roberta_small
ALLOCATOR=tuned
MODEL_FLAGS=(--encoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 512 --encoder-attention-heads 2)
GENERATOR_SIZE=1/2 # a share must give whole heads, and there are 2
DROPOUT=0
TOKENS_PER_SAMPLE=32
SAMPLE_BREAK_MODE=none
BATCH=128
GPUS=0
PRECISION=fp32
UPDATES=10000 # with 4,000, that of learned was still near the base rate after 2,800 (README.md, Learning rates)
# With this rate a discriminator leaves the base rate first (README.md, Learning rates). CLIP_NORM clips nearly
# all updates, because a weight of 50 gives large gradients, but Adam does not depend on their scale.
LEARNING_RATE=1e-3
WARMUP_UPDATES=1000
ADAM_BETAS='(0.9, 0.98)'
LOADERS=0
LOG_EVERY=50
VALIDATE_EVERY=500
KEEP_EVERY=10000
SEEDS="1 2"
