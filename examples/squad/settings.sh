# All values of the recipe. Those that the papers do not give are of BERT and RoBERTa base. docs/recipes.md: how to change them.

# --- names and folders ---
NAME=squad
DATA=                      # written by prepare.sh; empty: data-bin/$NAME
RUNS=                      # one folder for each run, ENCODING-seedN; empty: runs/$NAME
SEED=1                     # order of the data, dropout, the weights of the head
METRIC=squad               # squad: EM and F1 of words; cmrc: of Chinese characters

# --- question and text -> windows ---
WINDOW=384                 # maximum tokens of a window
DOC_STRIDE=128             # tokens between the starts of two windows of a text
MAX_QUERY_LENGTH=64        # tokens; longer questions are truncated

# --- the model: that of the pretraining ---
ARCH=roberta               # roberta: roberta_ENCODING; sequence_encoder: from scratch
SIZE=                      # empty or _large
MODEL_FLAGS=()             # sizes, if they differ from those of the architecture
declare -gA HPARAMS=()     # [t5]="num_buckets=64": --position-hparams of one encoding; without, those of the checkpoint
MAX_POSITIONS=512          # of the pretraining
DROPOUT=0.1

# --- one update ---
BATCH=32                   # windows
UPDATE_FREQ=1              # batches of BATCH / UPDATE_FREQ windows, for GPUs with less memory

# --- schedule and optimizer ---
EPOCHS=3
LEARNING_RATE=3e-5
WARMUP=0.06                # of all updates, whose number is computed from the data
ADAM_BETAS='(0.9, 0.98)'
ADAM_EPS=1e-6
WEIGHT_DECAY=0.01
CLIP_NORM=1.0
LOG_EVERY=50               # updates

# --- logits -> answers ---
N_BEST=20
MAX_ANSWER_LENGTH=30       # tokens
NULL_THRESHOLD=0           # data with unanswerable questions: no answer if its odds are above

# --- the report ---
BASELINE=learned           # its row comes first
