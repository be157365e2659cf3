# All values of the recipe. SETTINGS=FILE and the environment change them (docs/recipes.md). translation.sh has the same model
# for ../translation_small.

# --- names and folders ---
NAME=denoising
DATA=                      # written by prepare.sh; empty: data-bin/$NAME
RUNS=                      # one folder for each run, ENCODING-seedN; empty: runs/$NAME
SEED=1                     # weights, order of the data, dropout and noise
ALLOCATOR=tuned            # reuse freed memory (allocator.env); default: glibc's own settings

# --- text -> tokens ---
VOCAB_SIZE=6000            # pieces of all languages together
NORMALIZATION=nmt_nfkc     # Unicode NFKC, spaces; upper case stays

# --- the model: 3 + 3 layers x 256 ---
SIZE=                      # --arch bart_ENCODING$SIZE; the values below override it
LAYERS=3                   # of the encoder, and of the decoder
EMBED_DIM=256
FFN_DIM=512
HEADS=4
DROPOUT=0.1
ATTENTION_DROPOUT=0.1
MAX_POSITIONS=256          # tokens; the tables of the encodings have this size, and translation needs the same
MODEL_FLAGS=()             # more model flags for fairseq-train

# --- the noise: BART's, but without permuted sentences, which need the vocabulary of GPT-2 ---
MASK=0.3                   # share of the words that are masked
SPAN_LENGTH=3              # words of a span on average (Poisson); each span becomes one <mask>
RANDOM_SHARE=0.1           # share of the masks that become a random piece instead

# --- one update ---
TOKENS_PER_SAMPLE=64       # with <s> and </s>
SAMPLE_BREAK_MODE=none     # blocks of so many tokens; complete keeps lines whole, if none is longer
TOKENS_PER_UPDATE=4096     # 64 blocks

# --- schedule and optimizer ---
UPDATES=4000
LEARNING_RATE=1e-3
WARMUP_UPDATES=400
ADAM_BETAS='(0.9, 0.98)'
ADAM_EPS=1e-6
WEIGHT_DECAY=0.01
CLIP_NORM=1.0

# --- logs and checkpoints ---
LOG_EVERY=50               # updates
VALIDATE_EVERY=200         # updates; a checkpoint each time

# --- the report ---
BASELINE=learned           # differences are computed against this one, seed by seed
