# All values of the recipe: small models, trained from scratch on one core. docs/recipes.md: how to change values.

# --- names and folders ---
NAME=question_generation
DATA=                      # written by prepare.sh; empty: data-bin/$NAME
RUNS=                      # one folder for each run, ENCODING-seedN; empty: runs/$NAME
SEED=1                     # weights, order of the data and dropout
ALLOCATOR=tuned            # reuse freed memory (allocator.env); default: glibc's own settings

# --- text -> tokens ---
VOCAB_SIZE=6000            # pieces, learned from texts and questions; not used with --vocabulary
NORMALIZATION=nmt_nfkc     # Unicode NFKC, spaces; upper case stays
CHARACTER_COVERAGE=1.0     # every character of the training text is known
MAX_SOURCE=256             # tokens of a source; longer texts are truncated to a window around the answer
MAX_TARGET=100             # tokens of a question; longer ones are dropped from training
WORKERS=1                  # of fairseq-preprocess

# --- the model: an encoder with fixed positions, and a decoder with the position encoding ---
START_FROM=                # a checkpoint of a RoBERTa, from which the encoder starts; empty: from scratch
ENCODER_LAYERS=2
DECODER_LAYERS=3
EMBED_DIM=128
FFN_DIM=512
HEADS=4
DROPOUT=0.2
MODEL_FLAGS=(--share-all-embeddings --copy-from-source)
# --position-hparams of one encoding: the best k of Qu et al.'s Table 6, on SQuAD
declare -gA HPARAMS=([shaw]="max_distance=8" [lfhc]="max_distance=2")

# --- one update ---
BATCH=32                   # questions
UPDATE_FREQ=1              # batches of BATCH / UPDATE_FREQ questions, for GPUs with less memory

# --- schedule and optimizer ---
UPDATES=2000
LEARNING_RATE=1e-3
WARMUP_UPDATES=200         # then down to 0
ADAM_BETAS='(0.9, 0.98)'
WEIGHT_DECAY=0.01
CLIP_NORM=1.0
LABEL_SMOOTHING=0.1
TRAIN_FLAGS=()             # more flags for fairseq-train: --fp16
LOG_EVERY=50               # updates
VALIDATE_EVERY=250         # updates

# --- evaluation ---
EVALUATED=checkpoint_best.pt # by validation loss; or checkpoint_last.pt
SCORED=test                # the split whose questions are generated and scored
BEAM=5
LENGTH_PENALTY=0.6         # a score is divided by the length to this power
NO_REPEAT=3                # no n-gram of this length occurs in a question twice
BATCH_SENTENCES=32         # decoded together
TOKENS=spaces              # for the scores. spaces: the text is tokenised; 13a: raw text; characters: Chinese
LOWERCASE=no               # compare in lower case

# --- the comparison: compare.sh without arguments ---
COMPARED="t5 shaw lfhc transformer_xl gcdf"
SEEDS="1 2 3"
LEARNING_RATES=            # the first seed tries all, the others use the best; empty: LEARNING_RATE for all
JOBS=1                     # parallel runs
BASELINE=shaw              # differences are computed against this one, seed by seed
