# All values of the recipe: a Transformer base on WMT14 English-German as in fairseq's scaling-nmt. big.sh and at5.sh are other
# papers. docs/recipes.md: how to change values.

# --- names and folders ---
NAME=translation_wmt14_en_de
DATA=                      # empty: data-bin/$NAME
RUNS=                      # empty: runs/$NAME
SEED=1
SOURCE=en
TARGET=de

# --- texts, by their names in downloads.txt without the language ---
TRAIN_TEXTS="europarl-v7.de-en commoncrawl.de-en news-commentary-v9.de-en"
VALID_TEXT=newstest2013
TEST_TEXTS=newstest2014

# --- text -> tokens ---
TEXT=raw                   # or tokenised: Moses tokens, truecased, as preprocessed by WMT17
VOCAB_SIZE=32000           # pieces, learned from both languages together
NORMALIZATION=nmt_nfkc
CHARACTER_COVERAGE=0.9999
VOCAB_SENTENCES=4000000    # lines of both languages from which the vocabulary is learned
VOCAB_THRESHOLD=1
JOINED_DICTIONARY=yes
MAX_PIECES=250             # per side; this and MAX_RATIO are the limits of fairseq's prepare-wmt14en2de.sh
MAX_RATIO=1.5
JOINED=                    # "1 2": test sets of joined sentences, each longer than 1 or 2 x the longest in training
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
MODEL_FLAGS=(--share-all-embeddings)
declare -gA HPARAMS=()
POSITION_LAYERS=all

# --- one update: 460,000 tokens, as on 128 GPUs ---
BATCH=458752               # tokens; the required product of GPUS, TOKENS_PER_UPDATE and UPDATE_FREQ
GPUS=                      # empty: all of the machine
LAUNCH=                    # command for several machines (docs/multi_node.md); GPUS is then their total
TOKENS_PER_UPDATE=3584     # on each GPU
UPDATE_FREQ=               # empty: computed from BATCH, 16 with 8 GPUs

# --- schedule and optimizer ---
UPDATES=30000
LEARNING_RATE=0.001
SCHEDULE=inverse_sqrt
WARMUP_UPDATES=4000
WARMUP_INIT_LR=1e-7
ADAM_BETAS='(0.9, 0.98)'
WEIGHT_DECAY=0
CLIP_NORM=0
LABEL_SMOOTHING=0.1
TRAIN_FLAGS=(--fp16)

# --- logs and checkpoints ---
LOG_EVERY=100
VALIDATE_EVERY=1000
SAVE_EVERY=1000

# --- evaluation ---
AVERAGED=10                # the last ten, every thousand updates
AVERAGE_OF=last
EVALUATED=average.pt
BEAM=4
LENGTH_PENALTY=0.6
LENGTH_PENALTIES=          # the best by BLEU on the validation text is used; empty: LENGTH_PENALTY
GENERATE_FLAGS=()
BATCH_SENTENCES=128
LENGTH_EDGES="20 40 60 80"

# --- the comparison ---
COMPARED="sinusoidal t5 at5 tupe_r"
SEEDS=1
LEARNING_RATES=            # the first seed tries all, the others use the best; empty: LEARNING_RATE for all
JOBS=1
BASELINE=sinusoidal
