# For a laptop: TREC in two minutes on one core. Read after settings.sh.
LAYERS=2
HEADS=2
EMBED_DIM=128
FFN_DIM=256
LEARNING_RATE=5e-4
MAX_LENGTH=64
MAX_EPOCHS=12
