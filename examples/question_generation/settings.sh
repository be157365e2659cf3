# Every value of the recipe, once. `SETTINGS=my.sh bash run.sh ...` reads another file after this one, so it
# names only what it changes. Some values may also come from the environment, which wins (docs/recipes.md). Read by
# prepare.sh, run.sh and compare.sh. These are small models, trained from scratch on one core.

# --- where ---
NAME=question_generation
DATA=                      # prepare.sh writes it, training reads it; empty: data-bin/$NAME
RUNS=                      # one folder for each run, ENCODING-seedN; empty: runs/$NAME
SEED=1                     # weights, order of the data and dropout
ALLOCATOR=tuned            # a training keeps the memory that it frees (allocator.env); default: as glibc is

# --- text -> tokens ---
VOCAB_SIZE=6000            # pieces, learned from texts and questions; not used with --vocabulary
NORMALIZATION=nmt_nfkc     # Unicode NFKC, spaces; upper case stays
CHARACTER_COVERAGE=1.0     # no character of the training text is unknown
MAX_SOURCE=256             # tokens of a source; a longer text is cut around its answer
MAX_TARGET=100             # tokens of a question; longer ones are left out of training
WORKERS=1                  # of fairseq-preprocess

# --- the model: an encoder with fixed positions, and a decoder with the position encoding ---
START_FROM=                # a checkpoint of a RoBERTa, the encoder to begin with; empty: from scratch
ENCODER_LAYERS=2
DECODER_LAYERS=3
EMBED_DIM=128
FFN_DIM=512
HEADS=4
DROPOUT=0.2
MODEL_FLAGS=(--share-all-embeddings --copy-from-source)
# of --position-hparams, for one encoding: the best k of Qu et al.'s Table 6, on SQuAD
declare -gA HPARAMS=([shaw]="max_distance=8" [lfhc]="max_distance=2")

# --- one update ---
BATCH=32                   # questions
UPDATE_FREQ=1              # steps of BATCH / UPDATE_FREQ questions, where a GPU has less room

# --- how long, how fast ---
UPDATES=2000
LEARNING_RATE=1e-3
WARMUP_UPDATES=200         # then down to 0
ADAM_BETAS='(0.9, 0.98)'
WEIGHT_DECAY=0.01
CLIP_NORM=1.0
LABEL_SMOOTHING=0.1
TRAIN_FLAGS=()             # more flags of fairseq-train: --fp16
LOG_EVERY=50               # updates
VALIDATE_EVERY=250         # updates

# --- what is evaluated ---
EVALUATED=checkpoint_best.pt # by validation loss; or checkpoint_last.pt
SCORED=test                # the split whose questions are generated and scored
BEAM=5
LENGTH_PENALTY=0.6         # a score is divided by the length to the power of it
NO_REPEAT=3                # no sequence of so many tokens stands in a question twice
BATCH_SENTENCES=32         # decoded together
TOKENS=spaces              # of the scores. spaces: the text is tokenised; 13a: raw text; characters: Chinese
LOWERCASE=no               # compare in lower case

# --- the comparison: compare.sh without arguments ---
COMPARED="t5 shaw lfhc transformer_xl gcdf"
SEEDS="1 2 3"
LEARNING_RATES=            # "5e-4 1e-3 2e-3": all for the first seed, the best for the others; empty: LEARNING_RATE for all
JOBS=1                     # runs side by side
BASELINE=shaw              # differences are against this one, seed by seed
