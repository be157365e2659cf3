# All values of the recipe: a small language model of pieces, minutes of one core. tuned.sh has a rate for each encoding,
# memory.sh trains with a memory, words.sh has words, transformer_xl.sh and qu.sh are the papers' models. docs/recipes.md: how
# to change values.

# --- names and folders ---
NAME=language_modeling
DATA_NAME=                 # settings that share a vocabulary share the data; empty: $NAME
DATA=                      # written by prepare.sh; empty: data-bin/$DATA_NAME
RUNS=                      # one folder for each run, ENCODING-seedN; empty: runs/$NAME
SEED=1                     # weights, order of the blocks (streams keep theirs), dropout
ALLOCATOR=tuned            # reuse freed memory (allocator.env); default: glibc's own settings
GPUS=1                     # 0 or 1: one process; BATCH is divided among several
LAUNCH=                    # command for several machines (docs/multi_node.md); GPUS is then their total

# --- text -> tokens ---
TEXTS=wikitext-2-raw       # a name in downloads/, for prepare.sh without files
VOCABULARY=pieces          # pieces: SentencePiece's, figures are bits per byte; words: figures are perplexity per word
VOCAB_SIZE=1000            # 256 of the pieces are bytes; a large vocabulary takes most of the time of a small model
NORMALIZATION=identity     # pieces spell the text as it is, so that bits per byte are those of the text
WORKERS=1                  # processes of fairseq-preprocess

# --- the model: 2 layers x 128 ---
SIZE=                      # --arch transformer_lm_ENCODING$SIZE
LAYERS=2
EMBED_DIM=128
HEADS=4
FFN_DIM=512
NORM=pre                   # LayerNorm before each part (pre) or after it (post)
BANDS=                     # 20000,60000: adaptive input and softmax with these bands of words; empty: one softmax
DROPOUT=0                  # less than one epoch
ATTENTION_DROPOUT=0
ACTIVATION_DROPOUT=0       # in the feed-forward part
declare -gA HPARAMS=()     # [t5]="num_buckets=64": --position-hparams of one encoding
declare -gA VARIANTS=()    # [rope_quarter]="rope --position-hparams fraction=0.25": a run's name, its encoding and flags
MODEL_FLAGS=()             # more model flags for fairseq-train

# --- one update ---
TOKENS_PER_SAMPLE=128      # T: tokens of a block, or of a segment with a memory
MEMORY=0                   # tokens before the segment that are remembered in training
BATCH=16                   # blocks per update, or streams with a memory
UPDATE_FREQ=1              # batches per update: BATCH is divided among them and the GPUs

# --- schedule and optimizer ---
UPDATES=1500
LEARNING_RATE=4e-3
SCHEDULE=polynomial_decay  # down to 0; or cosine
WARMUP_UPDATES=150
OPTIMIZER=adam             # decoupled weight decay: it is AdamW
ADAM_BETAS='(0.9, 0.98)'
ADAM_EPS=1e-6
WEIGHT_DECAY=0.01
CLIP_NORM=1.0
LOADERS=0                  # data loader processes per GPU
PRECISION=fp32             # or fp16, bf16, amp

# --- logs and checkpoints, in updates ---
LOG_EVERY=20
SAVE_EVERY=250             # fairseq validates whenever it saves

# --- evaluation ---
EVALUATED=checkpoint_last.pt # or checkpoint_best.pt, with the best validation loss
# Tokens of a segment / tokens of the memory [/ clamp], one column of the table for each. Every token is scored once.
EVALUATIONS="128/0 128/128 128/384"
SAME_LENGTH=no             # yes: with a memory of M, each token sees exactly M tokens, itself included
EVALUATED_STREAMS=8        # streams of the text; the memory is empty at the start of each
LENGTHS="128 256 512 1024 2048" # of blocks, for run.sh extrapolate

# --- the comparison: compare.sh without arguments ---
COMPARED="transformer_xl gcdf lfhc shaw t5 rope alibi kerple_log fire learned sinusoidal none"
SEEDS="1 2 3"
LEARNING_RATES=            # the first seed tries all, the others use the best; empty: LEARNING_RATE for all
JOBS=1                     # parallel runs
BASELINE=transformer_xl    # differences are computed against this one, seed by seed; it must support a memory
