# All values of the recipe. SETTINGS=FILE and the environment change them (docs/recipes.md).

# --- names and folders ---
NAME=roberta_small
DATA=                      # written by prepare.sh; empty: data-bin/$NAME
RUNS=                      # one folder for each run, ENCODING-seedN; empty: runs/$NAME
SEED=1                     # weights, order of the data, dropout and masks
ALLOCATOR=tuned            # reuse freed memory (allocator.env); default: glibc's own settings

# --- text -> tokens ---
VOCAB_SIZE=4000            # pieces; a larger one needs more updates before positions matter
NORMALIZATION=nmt_nfkc_cf  # Unicode NFKC, lower case: a small vocabulary has no room for both cases

# --- the model: 2 layers x 128 ---
LAYERS=2
EMBED_DIM=128
HEADS=2                    # of 64 dimensions, as in roberta_base
FFN_DIM=512
DROPOUT=0                  # 4,000 updates are few epochs; RoBERTa's 0.1 is for many
START_FROM=                # a checkpoint of this recipe, from which training starts with another encoding (moving.sh)

# --- one update ---
TOKENS_PER_SAMPLE=32       # T, with <s>; with larger T, learned needs more updates
# none: blocks of exactly T tokens across paragraphs. fairseq's `complete` keeps paragraphs
# whole, and fails on (or drops) those longer than T, of which there are many here.
SAMPLE_BREAK_MODE=none
TOKENS_PER_UPDATE=4096     # 128 blocks
PRECISION=fp32             # amp: bfloat16 on a CPU that has units for it; losses about the same (README.md)

# --- schedule and optimizer ---
CRITERION=masked_lm_order_gap # masked_lm, and the order gap at each validation, which doubles its time
UPDATES=4000
LEARNING_RATE=4e-3
WARMUP_UPDATES=400
ADAM_BETAS='(0.9, 0.98)'
ADAM_EPS=1e-6
WEIGHT_DECAY=0.01
CLIP_NORM=1.0

# --- logs and checkpoints ---
LOG_EVERY=50               # updates
VALIDATE_EVERY=200         # updates; a checkpoint each time

# --- evaluation ---
MASK_SEED=1                # of the masks of run.sh validate, whatever SEED trained the model
MASKED_SENTENCES=(
  "He was <mask> in London in 1820 ."
  "She opened the <mask> and went into the room ."
  "The city is the capital <mask> the province ."
)

# --- the comparison: compare.sh without arguments ---
COMPARED="learned t5 tupe_a tupe_r tupe_a_tie_cls bert_r bert_ad shaw m4 deberta"
SEEDS="1 2 3"
LEARNING_RATES="1e-3 2e-3 4e-3" # the first seed tries all, the others use the best; empty: LEARNING_RATE for all
JOBS=1                     # parallel runs
BASELINE=learned           # differences are computed against this one, seed by seed
