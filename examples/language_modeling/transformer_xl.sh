# Transformer-XL base on WikiText-103 (Dai et al. 2019): run_wt103_base.sh of its authors, for their test perplexity of 24.0.
NAME=language_modeling_transformer_xl
DATA_NAME=wikitext-103
TEXTS=wikitext-103
VOCABULARY=words
WORKERS=$(nproc)

LAYERS=16
EMBED_DIM=410
HEADS=10                   # of 41 dimensions, which rope refuses: 416 and 8 for it
FFN_DIM=2100
NORM=post
BANDS=20000,40000,200000   # of train.py
DROPOUT=0.1
ACTIVATION_DROPOUT=0.1     # theirs is one number for both

TOKENS_PER_SAMPLE=150
MEMORY=150
BATCH=60

UPDATES=200000
LEARNING_RATE=2.5e-4
SCHEDULE=cosine
WARMUP_UPDATES=0
ADAM_BETAS='(0.9, 0.999)'  # these and the next two: PyTorch's Adam
ADAM_EPS=1e-8
WEIGHT_DECAY=0
CLIP_NORM=0.25
LOADERS=1
LOG_EVERY=200
SAVE_EVERY=4000
EVALUATED=checkpoint_best.pt

EVALUATIONS="150/0 150/150 64/640/400" # the last one is their evaluation
SAME_LENGTH=yes
EVALUATED_STREAMS=10
LENGTHS="150 300 600 1200"
COMPARED="transformer_xl"
SEEDS=1
BASELINE=transformer_xl
