# The values of the recipe that are not those of ../translation_small/settings.sh, which has the comments: a Transformer base on
# WMT14 English-German as in fairseq's scaling-nmt. big.sh and at5.sh are other papers. docs/recipes.md: how to change values.
. "$ROOT/examples/translation_small/settings.sh"

NAME=translation_wmt14_en_de
ALLOCATOR=default

# --- texts, by their names in downloads.txt without the language ---
TRAIN_TEXTS="europarl-v7.de-en commoncrawl.de-en news-commentary-v9.de-en"
VALID_TEXT=newstest2013
TEST_TEXTS=newstest2014

# --- text -> tokens; TEXT=tokenised: Moses tokens, truecased, as preprocessed by WMT17 ---
VOCAB_SIZE=32000
CHARACTER_COVERAGE=0.9999
VOCAB_SENTENCES=4000000    # lines of both languages
MAX_RATIO=1.5              # this and MAX_PIECES are the limits of fairseq's prepare-wmt14en2de.sh
WORKERS=8

# --- the model: Transformer base ---
SIZE=_wmt_en_de
LAYERS=6
EMBED_DIM=512
FFN_DIM=2048
HEADS=8
DROPOUT=0.1
ATTENTION_DROPOUT=0
MAX_POSITIONS=1024

# --- one update: 460,000 tokens, as on 128 GPUs ---
BATCH=458752
GPUS=                      # empty: all of the machine
TOKENS_PER_UPDATE=3584     # on each GPU
UPDATE_FREQ=               # empty: computed from BATCH, 16 with 8 GPUs

# --- schedule and optimizer ---
UPDATES=30000
LEARNING_RATE=0.001
SCHEDULE=inverse_sqrt
WARMUP_UPDATES=4000
WEIGHT_DECAY=0
CLIP_NORM=0
PRECISION=fp16

# --- logs and checkpoints ---
LOG_EVERY=100
VALIDATE_EVERY=1000
SAVE_EVERY=1000

# --- evaluation: the average of the last ten, every thousand updates ---
AVERAGED=10
EVALUATED=average.pt
BEAM=4
LENGTH_PENALTY=0.6
LENGTH_PENALTIES=
BATCH_SENTENCES=128
LENGTH_EDGES="20 40 60 80"

# --- the comparison ---
COMPARED="sinusoidal t5 at5 tupe_r"
SEEDS=1
LEARNING_RATES=
