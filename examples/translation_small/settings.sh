# All values of the recipe. SETTINGS=FILE and the environment change them (docs/recipes.md).

# --- names and folders ---
NAME=translation_small
DATA=                      # written by prepare.sh; empty: data-bin/$NAME
RUNS=                      # one folder for each run, ENCODING-seedN; empty: runs/$NAME
SEED=1                     # weights, order of the data and dropout
ALLOCATOR=tuned            # reuse freed memory (allocator.env); default: glibc's own settings
SOURCE=en
TARGET=de

# --- text -> tokens ---
TEXT=raw                   # raw, or tokenised: Moses tokens, which are detokenised before scoring
VOCABULARY=                # a folder with spm.model and dict.txt, for both languages; empty: learn one, as follows
VOCAB_SIZE=6000            # pieces, learned from both languages together
NORMALIZATION=nmt_nfkc     # Unicode NFKC, spaces; upper case stays
CHARACTER_COVERAGE=1.0     # every character of the training text is known
VOCAB_SENTENCES=0          # lines from which the vocabulary is learned; 0: all
VOCAB_THRESHOLD=1          # pieces rarer than this in a language are split further
JOINED_DICTIONARY=yes      # one dictionary for both languages, so that embeddings can be shared
MAX_PIECES=250             # per side; longer pairs are dropped from training
MAX_RATIO=9                # of the longer side to the shorter; other pairs are dropped from training
JOINED=                    # "1 2": test sets of joined sentences, each longer than 1 or 2 x the longest in training
WORKERS=1                  # of fairseq-preprocess

# --- text of the toy grammar, for prepare.sh without files ---
TOY_SEED=1
TOY_TRAIN=20000            # sentences
TOY_VALID=500
TOY_TEST=500               # of the test set, and of the test set of longer sentences
TOY_LONGEST=20             # words; those of the test set `long` have more

# --- the model: 3 + 3 layers x 256 ---
SIZE=                      # --arch transformer_ENCODING$SIZE; the values below override it
LAYERS=3                   # of the encoder, and of the decoder
EMBED_DIM=256
FFN_DIM=512
HEADS=4
DROPOUT=0.2
ATTENTION_DROPOUT=0.1
MAX_POSITIONS=256          # tokens; the tables of the encodings have this size
MODEL_FLAGS=(--share-all-embeddings)
START_FROM=                # a trained BART or transformer, or a folder with one in ENCODING-seedN; none, empty: from scratch
declare -gA HPARAMS=()      # [t5]="num_buckets=64": --position-hparams of one encoding
POSITION_LAYERS=all        # or first, or 1,2

# --- one update ---
TOKENS_PER_UPDATE=1024     # of the longer side; with 4,096 there are a quarter of the updates in the same time
GPUS=1                     # or CPUs; by default fairseq would use all GPUs, with a larger batch
LAUNCH=                    # command for several machines (docs/multi_node.md); GPUS is then their total
BATCH=                     # the required product of GPUS, TOKENS_PER_UPDATE and UPDATE_FREQ; empty: any
UPDATE_FREQ=1              # batches per update

# --- schedule and optimizer ---
UPDATES=2400
LEARNING_RATE=1e-3
SCHEDULE=polynomial_decay  # down to 0 at the end, so that no training ends at a high rate; or inverse_sqrt
WARMUP_UPDATES=400
WARMUP_INIT_LR=1e-7        # of inverse_sqrt
ADAM_BETAS='(0.9, 0.98)'
WEIGHT_DECAY=0.0001
CLIP_NORM=1.0
LABEL_SMOOTHING=0.1
PRECISION=fp32             # or fp16, bf16, amp (on a CPU with units for bfloat16, faster)
TRAIN_FLAGS=()             # more flags for fairseq-train

# --- logs and checkpoints ---
LOG_EVERY=50               # updates
VALIDATE_EVERY=200         # updates
SAVE_EVERY=400             # updates

# --- evaluation ---
AVERAGED=3                 # last checkpoints, which training keeps and run.sh average averages
EVALUATED=checkpoint_last.pt # or checkpoint_best.pt, or average.pt
BEAM=5
LENGTH_PENALTY=1
LENGTH_PENALTIES="1 2 3"   # each run uses the best by BLEU on the validation text; empty: LENGTH_PENALTY
GENERATE_FLAGS=()          # more flags for fairseq-generate
BATCH_SENTENCES=32         # translated together
LENGTH_EDGES="8 12 16 20"  # words of a source: scores by length for 0-8, 9-12, ... 21+

# --- the comparison: compare.sh without arguments ---
COMPARED="sinusoidal t5 at5 t5_nob tupe_r m4"
SEEDS="1 2 3 4"
LEARNING_RATES="1e-3 2e-3 4e-3" # the first seed tries all, the others use the best; empty: LEARNING_RATE for all
JOBS=1                     # parallel runs
BASELINE=sinusoidal        # differences are computed against this one, seed by seed
