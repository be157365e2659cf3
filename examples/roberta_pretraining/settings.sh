# All values of the recipe: RoBERTa base as pretrained by TUPE (Ke et al. 2021). m4m.sh, huang.sh, large.sh and so on are other
# papers, uncased.sh another vocabulary; MACHINE=NAME reads machines/NAME.sh. docs/recipes.md: how to change values.

# --- names and folders ---
NAME=roberta_pretraining_tupe
DATA_NAME=roberta_pretraining  # papers that share a vocabulary share the data
DATA=                          # written by prepare.sh; empty: data-bin/$DATA_NAME
RUNS=                          # one folder for each run, ENCODING-seedN; empty: runs/$NAME
MACHINE=v100x16                # GPUs, samples on each, precision
LAUNCH=                        # the launcher, before the data and the flags; empty: fairseq-train, or launch_torchrun.sh

# --- text for prepare.sh without files: names in downloads.txt ---
TEXTS="enwiki-latest-pages-articles.xml.bz2 books_large_p1.txt books_large_p2.txt"

# --- text -> tokens ---
VOCABULARY=sentencepiece   # or gpt2: that of the released RoBERTa
VOCAB_SIZE=32768           # entries of fairseq's dictionary, including <mask> and other special symbols
MERGES=0                   # of SentencePiece's BPE; 0: as many as fit into VOCAB_SIZE
VOCAB_MEGABYTES=100        # of sentences from which the vocabulary is learned
CHARACTER_COVERAGE=0.9995
LOWERCASE=no
MOSES_TOKENS=no
VALID_EVERY=200            # one document in so many is for validation
WORKERS=$(nproc)           # processes of prepare.sh; the result does not depend on it

# --- the model ---
SIZE=                      # --arch roberta_ENCODING$SIZE
DROPOUT=0.1
MODEL_FLAGS=()             # more model flags for fairseq-train

# --- one update ---
TOKENS_PER_SAMPLE=512      # T, with <s>
BATCH=256                  # samples; the machine's settings must give it
MASK_PROB=0.15
WHOLE_WORDS=no             # yes: the pieces of a word are masked together

# --- schedule and optimizer ---
UPDATES=1000000
LEARNING_RATE=1e-4
WARMUP_UPDATES=10000
ADAM_BETAS='(0.9, 0.999)'
ADAM_EPS=1e-6
WEIGHT_DECAY=0.01
CLIP_NORM=1.0
LOADERS=2                  # data loader processes per GPU

# --- logs and checkpoints, in updates ---
LOG_EVERY=100
SAVE_EVERY=5000            # to resume from; fairseq validates whenever it saves
VALIDATE_EVERY=10000       # so this has an effect only if saves are rarer
KEEP_EVERY=100000          # kept permanently: those that TUPE fine-tunes (100k, 300k, 600k, 1M) are among them
START_FROM=                # a trained RoBERTa from which training starts, with any encoding
NEEDS_START=no             # yes: START_FROM is required

# --- evaluation ---
SEED=1                     # weights, order of the data, dropout and masks
MASK_SEED=1                # of run.sh validate, whatever SEED trained the model
BASELINE=learned           # of the report
