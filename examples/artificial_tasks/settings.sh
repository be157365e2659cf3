# All values of the recipe. SETTINGS=FILE and the environment change them (docs/recipes.md).

# --- names and folders ---
NAME=artificial_tasks
DATA=                      # TASK-seedN, generated when a run needs it; empty: data-bin/$NAME
RUNS=                      # TASK/ENCODING-seedN; empty: runs/$NAME
SEED=1                     # the data, the weights and the order of the data
ALLOCATOR=tuned            # reuse freed memory (allocator.env); default: glibc's own settings
JOBS=1                     # parallel runs of compare.sh

# --- training; the sizes of the model are the defaults of sequence_encoder_NAME ---
BATCH_SIZE=64
MAX_EPOCHS=300             # at most; see PATIENCE
PATIENCE=25                # ends a run after so many epochs without a better accuracy on the 500 held-out sequences
PRECISION=fp32             # amp: bfloat16 on a CPU that has instructions for it, faster
LEARNING_RATES="5e-4 1e-4" # the first seed tries both; the others use the better one

# The output vectors from which the answer is computed.
pooling_of() {
  case $1 in process50) echo mean ;; *) echo last ;; esac
}

# hparams_of TASK ENCODING LONGEST: values of Wu et al. 2021; other encodings have their defaults.
hparams_of() {
  case $2 in
    t5) echo "max_distance=$3" ;;
    at5) echo "gamma_min=1 gamma_max=10 hidden=$(at5_hidden "$1")" ;;
    at5_nob) echo "hidden=$(at5_hidden "$1")" ;;
  esac
}
at5_hidden() {
  case $1 in reber) echo 100,5 ;; *) echo 15,2 ;; esac
}

# --- the comparison: compare.sh without arguments ---
PAPER_TASKS="reber process50 adding100"
PAPER_ENCODINGS="none t5_nob t5 at5_nob at5"
PAPER_SEEDS="1 2 3 4 5"
OTHER_TASKS="reber process50"  # every other encoding that fairseq-relpos list names
OTHER_SEEDS="1 2"
BASELINE=t5                # differences are computed against this one, seed by seed
