# Every value of the recipe, once: those of AT5 (Wu et al. 2021), Transformers of words, trained from scratch. Values
# that the paper does not say have the word "ours". `SETTINGS=my.sh bash run.sh ...` reads another file after this one,
# so it names only what it changes. Some values may also come from the environment, which wins (docs/recipes.md).

# --- where ---
NAME=text_classification
DATA=                      # TASK, or TASK-foldN, as prepare.sh writes them; empty: data-bin/$NAME
RUNS=                      # TASK/ENCODING-seedN, or TASK-foldN/...; empty: runs/$NAME
SEED=1                     # the weights, the order of the data and dropout
FOLD=                      # of MR, SUBJ, CR and MPQA: the part for tests; the next one is for validation
BASELINE=learned           # that a report compares others with
ALLOCATOR=tuned            # a training keeps the memory that it frees (allocator.env); default: as glibc is

# --- data ---
MAX_LENGTH=128             # words; of a pair the longer sentence loses its end first (ours)
MIN_COUNT=1                # a word that stands there less often in training is unknown (ours)

# --- the model ---
LAYERS=5
HEADS=6
EMBED_DIM=300              # that of GloVe, which --glove FILE of prepare.sh takes
FFN_DIM=600                # ours
POSITION_LAYERS=first      # positions in the first layer only
DROPOUT=0.3                # residual
INPUT_DROPOUT=0.4          # of the embeddings
ATTENTION_DROPOUT=0        # ours
# Which output vectors the answer is read from: last, mean, max or cls, the first one, which is [CLS] in a pair.
pooling_of() {
  case $1 in SNLI | QNLI | QQP | MNLI) echo cls ;; *) echo last ;; esac # last: AT5's; pairs: as LFHC
}
# hparams_of ENCODING: the others have their defaults
hparams_of() {
  case $1 in
    at5) echo "gamma_min=1 gamma_max=10 hidden=64,8" ;;
    at5_nob) echo "hidden=64,8" ;;
  esac
}

# --- training ---
LEARNING_RATE=2e-4
ADAM_BETAS="(0.9, 0.999)"  # ours
WEIGHT_DECAY=0             # ours
CLIP_NORM=1.0              # ours
BATCH_SIZE=32              # ours
MAX_EPOCHS=30              # ours; PATIENCE ends a run before
PATIENCE=5                 # epochs without a better accuracy on the validation part (ours)
# schedule_of TASK: "WARMUP UPDATES", a linear rise and a linear fall; nothing: the rate stays the same for MAX_EPOCHS
schedule_of() { :; }
EVALUATED=checkpoint_best.pt # that with the best accuracy on the validation part
