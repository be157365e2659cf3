# All values of the recipe: GLUE as fine-tuned by TUPE (README.md has the source of each value). huang.sh and m4m.sh are other
# papers. docs/recipes.md: how to change values.

# --- names and folders ---
NAME=glue
DATA_NAME=glue             # all settings share the data
DATA=                      # prepare.sh writes it, a folder for each task; empty: data-bin/$DATA_NAME
RUNS=                      # one folder for each run, PRETRAINING/TASK-seedN; empty: runs/$NAME
SEED=1                     # the new head, order of the data, dropout
ALLOCATOR=default          # tuned, for small models on CPUs: reuse freed memory (allocator.env)

# --- text -> tokens ---
VOCABULARY=data-bin/roberta_pretraining # the folder of the pretraining's data: dict.txt with spm.model, or with encoder.json and vocab.bpe

# --- metrics ---
CONVENTION=tupe            # the source of the metric for the best checkpoint: tupe, huang, m4m, glue

# --- one update ---
BATCH=32                   # samples
MAX_TOKENS=4400            # maximum tokens per batch; empty: no limit
MAX_POSITIONS=             # maximum tokens per sample, longer ones are truncated; empty: as in the pretraining

# --- schedule and optimizer ---
LEARNING_RATE=3e-5
LEARNING_RATES="2e-5 3e-5 4e-5 5e-5" # of a sweep
SEEDS="1 2 3 4 5"                    # of a sweep
JOBS=1                     # parallel runs of a sweep
BASELINE=learned           # differences are computed against this one, seed by seed
EPOCHS=10
EPOCHS_OF_LARGE=5          # of LARGE_TASKS
LARGE_TASKS="MNLI QNLI QQP"
WARMUP=0.06                # of all updates
DROPOUT=0.1
ADAM_BETAS='(0.9, 0.999)'
ADAM_EPS=1e-6
WEIGHT_DECAY=0.01
CLIP_NORM=1.0

# --- logs and checkpoints ---
VALIDATIONS=2              # in each epoch, and one at its end if their updates miss it; a checkpoint each time
LOG_EVERY=50               # updates
