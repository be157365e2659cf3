# Every value of the recipe, once: ELECTRA base as TUPE (Ke et al. 2021, Appendix C) pretrained it, with the values of
# google-research/electra where TUPE names none. SETTINGS="FILE..." reads other files after this one, which name only what
# they change: small.sh (a laptop), or your own. Some values may also come from the environment, which wins
# (docs/recipes.md). Read by prepare.sh, run.sh and compare.sh.

# --- where ---
NAME=electra_tupe
PREPARED_BY=roberta_pretraining # the recipe whose prepare.sh makes the data, or roberta_small
PREPARE_SETTINGS=               # files of settings of that recipe
DATA_NAME=roberta_pretraining   # a masked LM reads the same data
DATA=                           # prepare.sh writes it, training reads it; empty: data-bin/$DATA_NAME
RUNS=                           # one folder for each run, ENCODING-seedN; empty: runs/$NAME
SEED=1                          # weights, order of the data, dropout, masks and sampled tokens
ALLOCATOR=default               # tuned: a training keeps the memory that it frees (allocator.env)

# --- the model: --arch electra_ENCODING$SIZE ---
SIZE=
GENERATOR_SIZE=1/3              # of the discriminator's width, feed-forward width and heads; both have 12 layers
DROPOUT=0.1
MODEL_FLAGS=()                  # more flags of fairseq-train about it

# --- one update ---
TOKENS_PER_SAMPLE=512           # T, with <s>
SAMPLE_BREAK_MODE=complete      # whole lines; none: blocks of exactly T tokens
BATCH=256                       # samples
GPUS=8                          # 0: the CPU
LAUNCH=                         # what starts it on several machines (docs/multi_node.md); GPUS counts those of all
UPDATE_FREQ=1                   # passes of an update on each GPU
PRECISION=fp16                  # or bf16, fp32
MASK_PROB=0.15                  # of the tokens, which the generator replaces
LEAVE_UNMASKED_PROB=0.15        # of these; the others become <mask>, and none a random token
GENERATOR_WEIGHT=1
DISCRIMINATOR_WEIGHT=50

# --- how long, how fast ---
UPDATES=1000000
LEARNING_RATE=2e-4
WARMUP_UPDATES=10000
ADAM_BETAS='(0.9, 0.999)'
ADAM_EPS=1e-6
WEIGHT_DECAY=0.01
CLIP_NORM=1.0
LOADERS=2                       # processes that read data, for each GPU

# --- what is written when, in updates ---
LOG_EVERY=100
VALIDATE_EVERY=10000            # a checkpoint each time
KEEP_EVERY=100000               # kept for ever: TUPE fine-tunes those of 600k and 1M updates
ORDER_GAP=yes                   # at each validation, how much worse permuted text is; it takes twice the time

# --- the comparison: compare.sh without arguments ---
COMPARED="learned tupe_r"
SEEDS="1"
LEARNING_RATES=                 # no choice: with another generator the loss of the discriminator means something else
JOBS=1                          # runs side by side
BASELINE=learned                # differences are against this one, seed by seed
