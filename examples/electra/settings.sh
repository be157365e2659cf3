# All values of the recipe: ELECTRA base as pretrained by TUPE (Ke et al. 2021, Appendix C), with the values of
# google-research/electra that TUPE does not give. small.sh is for a laptop. docs/recipes.md: how to change values.

# --- names and folders ---
NAME=electra_tupe
PREPARED_BY=roberta_pretraining # the recipe whose prepare.sh makes the data, or roberta_small
PREPARE_SETTINGS=               # files of settings of that recipe
DATA_NAME=roberta_pretraining   # a masked LM reads the same data
DATA=                           # written by prepare.sh; empty: data-bin/$DATA_NAME
RUNS=                           # one folder for each run, ENCODING-seedN; empty: runs/$NAME
SEED=1                          # weights, order of the data, dropout, masks and sampled tokens
ALLOCATOR=default               # tuned: reuse freed memory (allocator.env)

# --- the model: --arch electra_ENCODING$SIZE ---
SIZE=
GENERATOR_SIZE=1/3              # of the discriminator's width, feed-forward width and heads; both have 12 layers
DROPOUT=0.1
MODEL_FLAGS=()                  # more model flags for fairseq-train

# --- one update ---
TOKENS_PER_SAMPLE=512           # T, with <s>
SAMPLE_BREAK_MODE=complete      # whole lines; none: blocks of exactly T tokens
BATCH=256                       # samples
GPUS=8                          # 0: the CPU
LAUNCH=                         # command for several machines (docs/multi_node.md); GPUS is then their total
UPDATE_FREQ=1                   # batches per update on each GPU
PRECISION=fp16                  # or bf16, amp, fp32
MASK_PROB=0.15                  # share of tokens that the generator replaces
LEAVE_UNMASKED_PROB=0.15        # of these; the others become <mask>, and none a random token
GENERATOR_WEIGHT=1
DISCRIMINATOR_WEIGHT=50

# --- schedule and optimizer ---
UPDATES=1000000
LEARNING_RATE=2e-4
WARMUP_UPDATES=10000
ADAM_BETAS='(0.9, 0.999)'
ADAM_EPS=1e-6
WEIGHT_DECAY=0.01
CLIP_NORM=1.0
LOADERS=2                       # data loader processes per GPU

# --- logs and checkpoints, in updates ---
LOG_EVERY=100
VALIDATE_EVERY=10000            # a checkpoint each time
KEEP_EVERY=100000               # kept permanently: TUPE fine-tunes those of 600k and 1M updates
ORDER_GAP=yes                   # each validation also measures the loss of permuted text, which doubles its time

# --- the comparison: compare.sh without arguments ---
COMPARED="learned tupe_r"
SEEDS="1"
LEARNING_RATES=                 # no choice: losses of the discriminator are not comparable between generators
JOBS=1                          # parallel runs
BASELINE=learned                # differences are computed against this one, seed by seed
