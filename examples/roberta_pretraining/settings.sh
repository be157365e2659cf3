# Every value of the recipe, once: RoBERTa base as TUPE (Ke et al. 2021) pretrained it. SETTINGS="FILE..."
# reads other files after this one, which name only what they change: m4m.sh, huang.sh, large.sh and so on, or
# your own. MACHINE=NAME, of machines/NAME.sh, says what it runs on. Some values may also come from the
# environment, which wins (docs/recipes.md). Read by prepare.sh and run.sh.

# --- where ---
NAME=roberta_pretraining_tupe
DATA_NAME=roberta_pretraining  # papers that share a vocabulary share the data
DATA=                          # prepare.sh writes it, training reads it; empty: data-bin/$DATA_NAME
RUNS=                          # one folder for each run, ENCODING-seedN; empty: runs/$NAME
MACHINE=v100x16                # GPUs, samples on each, precision
LAUNCH=                        # what stands before the data and the flags; empty: fairseq-train, or launch_torchrun.sh

# --- text, where prepare.sh gets none: names in downloads.txt ---
TEXTS="enwiki-latest-pages-articles.xml.bz2 books_large_p1.txt books_large_p2.txt"

# --- text -> tokens ---
VOCABULARY=sentencepiece   # or gpt2: that of the released RoBERTa
VOCAB_SIZE=32768           # entries of fairseq's dictionary, <mask> and its like included
MERGES=0                   # of SentencePiece's BPE; 0: as many as VOCAB_SIZE has room for
VOCAB_MEGABYTES=100        # of sentences that the vocabulary is learned from
CHARACTER_COVERAGE=0.9995
LOWERCASE=no
MOSES_TOKENS=no
TUPE_COMPAT=no             # yes, or prepare.sh --tupe-compat: the paper's own choices instead of the two above and MERGES
TUPE_MERGES=32640
VALID_EVERY=200            # one document in so many is for validation
WORKERS=$(nproc)           # processes of prepare.sh; what comes out does not depend on it

# --- the model ---
SIZE=                      # --arch roberta_ENCODING$SIZE
DROPOUT=0.1
MODEL_FLAGS=()             # more flags of fairseq-train about it

# --- one update ---
TOKENS_PER_SAMPLE=512      # T, with <s>
BATCH=256                  # samples; the machine has to make it
MASK_PROB=0.15
WHOLE_WORDS=no             # yes: the pieces of a word are masked together

# --- how long, how fast ---
UPDATES=1000000
LEARNING_RATE=1e-4
WARMUP_UPDATES=10000
ADAM_BETAS='(0.9, 0.999)'
ADAM_EPS=1e-6
WEIGHT_DECAY=0.01
CLIP_NORM=1.0
LOADERS=2                  # processes that read data, for each GPU

# --- what is written when, in updates ---
LOG_EVERY=100
SAVE_EVERY=5000            # to go on from; fairseq validates whenever it saves
VALIDATE_EVERY=10000       # so this counts only where saves are rarer
KEEP_EVERY=100000          # kept for ever: those that TUPE fine-tunes (100k, 300k, 600k, 1M) are among them
START_FROM=                # a trained RoBERTa that training begins with, whatever its encoding
NEEDS_START=no             # yes: there has to be one

# --- what is looked at afterwards ---
SEED=1                     # weights, order of the data, dropout and masks
MASK_SEED=1                # of run.sh validate, whatever SEED trained the model
BASELINE=learned           # of the report
