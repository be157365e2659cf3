# The changes of scripts/quickstart.sh to examples/roberta_small/settings.sh: the same recipe, sized
# for five minutes of training on two cores. Both encodings use positions by then; `learned` needs more time.
DATA=${QUICKSTART:-runs/quickstart}/data
RUNS=${QUICKSTART:-runs/quickstart}/runs
VOCAB_SIZE=3000
TOKENS_PER_SAMPLE=64
UPDATES=1200
WARMUP_UPDATES=150
LOG_EVERY=10
VALIDATE_EVERY=120
LEARNING_RATE=2e-3
LEARNING_RATES=
SEEDS=1
COMPARED="shaw tupe_r"
BASELINE=shaw
MASKED_SENTENCES=(
  "If the file does not <mask> , an error is raised ."
  "This function returns a list <mask> strings ."
  "The first argument is the <mask> of the output file ."
)
