# All values of the recipe: those of AT5 (Wu et al. 2021), Transformers of words, trained from scratch. Values that the paper
# does not give are marked "ours". docs/recipes.md: how to change values.

# --- names and folders ---
NAME=text_classification
DATA=                      # TASK, or TASK-foldN, as prepare.sh writes them; empty: data-bin/$NAME
RUNS=                      # TASK/ENCODING-seedN, or TASK-foldN/...; empty: runs/$NAME
SEED=1                     # the weights, the order of the data and dropout
FOLD=                      # of MR, SUBJ, CR and MPQA: the test part; the next fold is for validation
BASELINE=learned           # differences are computed against this one
ALLOCATOR=tuned            # reuse freed memory (allocator.env); default: glibc's own settings

# --- data ---
MAX_LENGTH=128             # words; pairs are truncated, the longer sentence first (ours)
MIN_COUNT=1                # words with fewer occurrences in training are unknown (ours)

# --- the model ---
LAYERS=5
HEADS=6
EMBED_DIM=300              # that of GloVe, which --glove FILE of prepare.sh takes
FFN_DIM=600                # ours
POSITION_LAYERS=first      # positions in the first layer only
DROPOUT=0.3                # residual
INPUT_DROPOUT=0.4          # of the embeddings
ATTENTION_DROPOUT=0        # ours
# The output vectors from which the answer is computed: last, mean, max or cls, the first one, which is [CLS] in a pair.
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
MAX_EPOCHS=30              # at most (ours); see PATIENCE
PATIENCE=5                 # ends a run after so many epochs without a better accuracy on the validation part (ours)
# schedule_of TASK: "WARMUP UPDATES", a linear rise and a linear fall; nothing: the rate is constant for MAX_EPOCHS
schedule_of() { :; }
EVALUATED=checkpoint_best.pt # with the best accuracy on the validation part
