# Every value of the recipe, once. `SETTINGS=my.sh bash run.sh ...` reads another file after this one, so it
# names only what it changes. Some values may also come from the environment, which wins (docs/recipes.md). Read by
# prepare.sh, run.sh and compare.sh.

# --- where ---
NAME=translation_small
DATA=                      # prepare.sh writes it, training reads it; empty: data-bin/$NAME
RUNS=                      # one folder for each run, ENCODING-seedN; empty: runs/$NAME
SEED=1                     # weights, order of the data and dropout
ALLOCATOR=tuned            # a training keeps the memory that it frees (allocator.env); default: as glibc is
SOURCE=en
TARGET=de

# --- text -> tokens ---
TEXT=raw                   # raw, or tokenised: Moses tokens, which are joined again before scoring
VOCABULARY=                # a folder with spm.model and dict.txt, for both languages; empty: one is learned, as follows
VOCAB_SIZE=6000            # pieces, learned from both languages together
NORMALIZATION=nmt_nfkc     # Unicode NFKC, spaces; upper case stays
CHARACTER_COVERAGE=1.0     # no character of the training text is unknown
VOCAB_SENTENCES=0          # lines that the vocabulary is learned from; 0: all
VOCAB_THRESHOLD=1          # pieces rarer than this in a language are split further
JOINED_DICTIONARY=yes      # one dictionary for both languages, so that embeddings can be shared
MAX_PIECES=250             # a side; longer pairs are left out of training
MAX_RATIO=9                # of the longer side to the shorter; beyond it a pair is no translation
JOINED=                    # "1 2": test sets of joined sentences, each longer than 1 or 2 x the longest in training
WORKERS=1                  # of fairseq-preprocess

# --- text of the toy grammar, where prepare.sh gets no files ---
TOY_SEED=1
TOY_TRAIN=20000            # sentences
TOY_VALID=500
TOY_TEST=500               # of the test set, and of the test set of longer sentences
TOY_LONGEST=20             # words; those of the test set `long` have more

# --- the model: 3 + 3 layers x 256 ---
SIZE=                      # --arch transformer_ENCODING$SIZE; the values below win over it
LAYERS=3                   # of the encoder, and of the decoder
EMBED_DIM=256
FFN_DIM=512
HEADS=4
DROPOUT=0.2
ATTENTION_DROPOUT=0.1
MAX_POSITIONS=256          # tokens; the tables of the encodings have this size
MODEL_FLAGS=(--share-all-embeddings)
START_FROM=                # a trained BART or transformer, or a folder with one in ENCODING-seedN; none, empty: from scratch
declare -gA HPARAMS=()      # [t5]="num_buckets=64": of --position-hparams, for one encoding
POSITION_LAYERS=all        # or first, or 1,2

# --- one update ---
TOKENS_PER_UPDATE=1024     # of the longer side; 4,096 make a quarter of the updates in the same time
GPUS=1                     # or CPUs; fairseq would take all GPUs, and multiply the batch
LAUNCH=                    # what starts it on several machines (docs/multi_node.md); GPUS counts those of all
BATCH=                     # tokens that GPUS, TOKENS_PER_UPDATE and UPDATE_FREQ have to make; empty: any
UPDATE_FREQ=1              # batches of so many tokens, one after the other, make one update

# --- how long, how fast ---
UPDATES=2400
LEARNING_RATE=1e-3
SCHEDULE=polynomial_decay  # down to 0 at the end, so that no seed is caught at a high rate; or inverse_sqrt
WARMUP_UPDATES=400
WARMUP_INIT_LR=1e-7        # of inverse_sqrt
ADAM_BETAS='(0.9, 0.98)'
WEIGHT_DECAY=0.0001
CLIP_NORM=1.0
LABEL_SMOOTHING=0.1
TRAIN_FLAGS=()             # more flags of fairseq-train: --fp16

# --- what is written when ---
LOG_EVERY=50               # updates
VALIDATE_EVERY=200         # updates
SAVE_EVERY=400             # updates

# --- what is evaluated ---
AVERAGED=3                 # checkpoints that run.sh average takes, and that training keeps
AVERAGE_OF=last            # or best, by validation loss
EVALUATED=checkpoint_last.pt # or checkpoint_best.pt, or average.pt
BEAM=5
LENGTH_PENALTY=1
LENGTH_PENALTIES="0.6 1 1.4" # one of these for each run, by BLEU on the validation text; empty: LENGTH_PENALTY
GENERATE_FLAGS=()          # more flags of fairseq-generate
BATCH_SENTENCES=32         # translated together
LENGTH_EDGES="8 12 16 20"  # words of a source: scores by length for 0-8, 9-12, ... 21+

# --- the comparison: compare.sh without arguments ---
COMPARED="sinusoidal learned t5 at5 tupe_r shaw transformer_xl m4"
SEEDS="1 2 3"
LEARNING_RATES="5e-4 1e-3 2e-3" # all for the first seed, the best of them for the others; empty: LEARNING_RATE for all
JOBS=1                     # runs side by side
BASELINE=sinusoidal        # differences are against this one, seed by seed
