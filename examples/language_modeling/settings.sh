# Every value of the recipe, once: a small language model of pieces, minutes of one core. SETTINGS="FILE..." reads other
# files after this one, which name only what they change: transformer_xl.sh and qu.sh are the papers' models, memory.sh trains
# with a memory, words.sh has words instead of pieces. Some values may also come from the environment, which wins
# (docs/recipes.md). Read by prepare.sh, run.sh and compare.sh.

# --- where ---
NAME=language_modeling
DATA_NAME=                 # settings that share a vocabulary share the data; empty: $NAME
DATA=                      # prepare.sh writes it, training reads it; empty: data-bin/$DATA_NAME
RUNS=                      # one folder for each run, ENCODING-seedN; empty: runs/$NAME
SEED=1                     # weights, order of the data, dropout
ALLOCATOR=tuned            # a training keeps the memory that it frees (allocator.env); default: as glibc is
GPUS=1                     # 0 or 1: one process; with more of them BATCH is divided
LAUNCH=                    # what starts it on several machines (docs/multi_node.md); GPUS counts those of all

# --- text -> tokens ---
TEXTS=wikitext-2-raw       # where prepare.sh gets no files: a name in downloads/
VOCABULARY=pieces          # pieces: SentencePiece's, figures are bits per byte; words: figures are perplexity per word
VOCAB_SIZE=1000            # 256 of the pieces are bytes; a large vocabulary is most of the work of a small model
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
DROPOUT=0                  # little text is seen twice
ATTENTION_DROPOUT=0
ACTIVATION_DROPOUT=0       # in the feed-forward part
declare -gA HPARAMS=()     # [t5]="num_buckets=64": of --position-hparams, for one encoding
MODEL_FLAGS=()             # more flags of fairseq-train about it

# --- one update ---
TOKENS_PER_SAMPLE=128      # T: tokens of a block, or of a segment where there is a memory
MEMORY=0                   # states of so many tokens before the segment are remembered while training
BATCH=16                   # blocks of an update, or streams where there is a memory
UPDATE_FREQ=1              # passes that make an update: BATCH is divided among them and the GPUs

# --- how long, how fast ---
UPDATES=1500
LEARNING_RATE=4e-3
SCHEDULE=polynomial_decay  # down to 0; or cosine
WARMUP_UPDATES=150
OPTIMIZER=adam             # decoupled weight decay: it is AdamW
ADAM_BETAS='(0.9, 0.98)'
ADAM_EPS=1e-6
WEIGHT_DECAY=0.01
CLIP_NORM=1.0
LOADERS=0                  # processes that read data, for each GPU
PRECISION=fp32             # or fp16, bf16

# --- what is written when, in updates ---
LOG_EVERY=20
SAVE_EVERY=250             # fairseq validates whenever it saves

# --- what is looked at afterwards ---
EVALUATED=checkpoint_last.pt # or checkpoint_best.pt: that with the best validation
# Tokens of a segment / tokens of the memory [/ clamp]: a column of the table each. Every token is scored once.
EVALUATIONS="128/0 128/128 128/384"
SAME_LENGTH=no             # yes: with a memory of M, each token sees exactly M tokens, itself included
EVALUATED_STREAMS=8        # the text is cut in so many streams; a memory is empty where one begins
LENGTHS="128 256 512 1024 2048" # of blocks, for run.sh extrapolate

# --- the comparison: compare.sh without arguments ---
COMPARED="transformer_xl gcdf lfhc shaw t5 rope alibi kerple_log fire learned sinusoidal none"
SEEDS="1 2 3"
LEARNING_RATES=            # all for the first seed, the best of them for the others; empty: LEARNING_RATE for all
JOBS=1                     # runs side by side
BASELINE=transformer_xl    # differences are against this one, seed by seed; one that can remember
