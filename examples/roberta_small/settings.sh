# Every value of the recipe, once. `SETTINGS=my.sh bash run.sh ...` reads another file after this one, so it
# names only what it changes. Some values may also come from the environment, which wins (docs/recipes.md). Read by
# prepare.sh, run.sh and compare.sh.

# --- where ---
NAME=roberta_small
DATA=                      # prepare.sh writes it, training reads it; empty: data-bin/$NAME
RUNS=                      # one folder for each run, ENCODING-seedN; empty: runs/$NAME
SEED=1                     # weights, order of the data, dropout and masks
ALLOCATOR=tuned            # a training keeps the memory that it frees (allocator.env); default: as glibc is

# --- text -> tokens ---
VOCAB_SIZE=4000            # pieces; a larger one needs more updates before positions matter
NORMALIZATION=nmt_nfkc_cf  # Unicode NFKC, lower case: a small vocabulary has no room for both

# --- the model: 2 layers x 128 ---
LAYERS=2
EMBED_DIM=128
HEADS=2                    # of 64 dimensions, as in roberta_base
FFN_DIM=512
DROPOUT=0                  # 4,000 updates see little text twice; RoBERTa's 0.1 is for many epochs

# --- one update ---
TOKENS_PER_SAMPLE=32       # T, with <s>; learned needs more updates the longer it is
# none: blocks of exactly T tokens across paragraphs. fairseq's `complete` keeps paragraphs
# whole, and stops (or leaves them out) where one is longer than T, as many here are.
SAMPLE_BREAK_MODE=none
TOKENS_PER_UPDATE=4096     # 128 blocks

# --- how long, how fast ---
CRITERION=masked_lm_order_gap # masked_lm, and the order gap at each validation, which takes twice the time
UPDATES=4000
LEARNING_RATE=4e-3
WARMUP_UPDATES=400
ADAM_BETAS='(0.9, 0.98)'
ADAM_EPS=1e-6
WEIGHT_DECAY=0.01
CLIP_NORM=1.0

# --- what is written when ---
LOG_EVERY=50               # updates
VALIDATE_EVERY=200         # updates; a checkpoint each time

# --- what is looked at afterwards ---
MASK_SEED=1                # of the masks of run.sh validate, whatever SEED trained the model
MASKED_SENTENCES=(
  "He was <mask> in London in 1820 ."
  "She opened the <mask> and went into the room ."
  "The city is the capital <mask> the province ."
)

# --- the comparison: compare.sh without arguments ---
COMPARED="learned t5 tupe_a tupe_r tupe_a_tie_cls bert_r bert_ad shaw m4 deberta"
SEEDS="1 2 3"
LEARNING_RATES="1e-3 2e-3 4e-3" # all for the first seed, the best of them for the others; empty: LEARNING_RATE for all
JOBS=1                     # runs side by side
BASELINE=learned           # differences are against this one, seed by seed

# --- probe.sh: tokens a sample, tokens an update, learning rate, updates; a line each ---
PROBES="32 4096 4e-3 1600
64 4096 4e-3 2600
64 4096 8e-3 2400
64 2048 4e-3 3400"
