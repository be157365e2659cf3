# Every value of the recipe, once. `SETTINGS=my.sh bash run.sh ...` reads another file after this one, so it
# names only what it changes. Some values may also come from the environment, which wins (docs/recipes.md). Read by
# prepare.sh and run.sh. translation.sh has the same model for ../translation_small.

# --- where ---
NAME=denoising
DATA=                      # prepare.sh writes it, training reads it; empty: data-bin/$NAME
RUNS=                      # one folder for each run, ENCODING-seedN; empty: runs/$NAME
SEED=1                     # weights, order of the data, dropout and noise
ALLOCATOR=tuned            # a training keeps the memory that it frees (allocator.env); default: as glibc is

# --- text -> tokens ---
VOCAB_SIZE=6000            # pieces of all languages together
NORMALIZATION=nmt_nfkc     # Unicode NFKC, spaces; upper case stays

# --- the model: 3 + 3 layers x 256 ---
SIZE=                      # --arch bart_ENCODING$SIZE; the values below win over it
LAYERS=3                   # of the encoder, and of the decoder
EMBED_DIM=256
FFN_DIM=512
HEADS=4
DROPOUT=0.1
ATTENTION_DROPOUT=0.1
MAX_POSITIONS=256          # tokens; the tables of the encodings have this size, and translation needs the same
MODEL_FLAGS=()             # more flags of fairseq-train about it

# --- the noise: BART's, but for the order of sentences, which needs the vocabulary of GPT-2 ---
MASK=0.3                   # share of the words that are hidden
SPAN_LENGTH=3              # words of a span on average (Poisson); each span becomes one <mask>
RANDOM_SHARE=0.1           # share of the masks that become a random piece instead

# --- one update ---
TOKENS_PER_SAMPLE=64       # with <s> and </s>
SAMPLE_BREAK_MODE=none     # blocks of so many tokens; complete keeps lines whole, if none is longer
TOKENS_PER_UPDATE=4096     # 64 blocks

# --- how long, how fast ---
UPDATES=4000
LEARNING_RATE=1e-3
WARMUP_UPDATES=400
ADAM_BETAS='(0.9, 0.98)'
ADAM_EPS=1e-6
WEIGHT_DECAY=0.01
CLIP_NORM=1.0

# --- what is written when ---
LOG_EVERY=50               # updates
VALIDATE_EVERY=200         # updates; a checkpoint each time

# --- the report ---
BASELINE=learned           # differences are against this one, seed by seed
