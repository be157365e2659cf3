# After a pretraining with examples/roberta_small: 2 layers x 128, T = 32, minutes on a core. A window is longer than the
# blocks of the pretraining, so a checkpoint with absolute positions must be extended first (README.md).
NAME=squad_small
MODEL_FLAGS=(--encoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 512 --encoder-attention-heads 2)
MAX_POSITIONS=128
WINDOW=128
DOC_STRIDE=88
MAX_QUERY_LENGTH=32
EPOCHS=3
LEARNING_RATE=1e-3
