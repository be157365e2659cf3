# LFHC and GCDF: IMDB, SST, SNLI, QNLI, QQP and MNLI from scratch. Read after settings.sh. Values that the papers do not
# give are marked "ours".
LAYERS=8
HEADS=8
EMBED_DIM=512
FFN_DIM=2048
POSITION_LAYERS=all
DROPOUT=0.15
INPUT_DROPOUT=0.15
ATTENTION_DROPOUT=0.15
pooling_of() {
  case $1 in SNLI | QNLI | QQP | MNLI) echo cls ;; *) echo max ;; esac # max pooling, [CLS] for pairs
}
hparams_of() {               # k: the best of Table 5 for the task; ours: the other defaults
  case $1-$task in
    shaw-SNLI | shaw-MNLI) echo max_distance=16 ;;
    lfhc-SNLI) echo max_distance=2 ;;
    lfhc-MNLI) echo max_distance=8 ;;
    shaw-* | lfhc-*) echo max_distance=4 ;;
  esac
}
MAX_LENGTH=512              # ours
MIN_COUNT=4                 # words that occur more than three times (A.3)
LEARNING_RATE=2e-5          # AdamW
ADAM_BETAS="(0.9, 0.999)"   # ours
WEIGHT_DECAY=0.01           # ours
CLIP_NORM=0.25
BATCH_SIZE=64
PATIENCE=0                  # none: the paper's number of updates
schedule_of() {             # ours: the fall to 0, and a validation after each epoch, not every 200 to 5,000 updates
  case $1 in
    IMDB) echo 200 4000 ;;
    SST-2 | SST-5) echo 1000 20000 ;;
    SNLI) echo 5000 80000 ;;
    QNLI) echo 4000 40000 ;;
    QQP) echo 4000 80000 ;;
    MNLI) echo 4000 120000 ;;
    *) die "lfhc.sh: no schedule for $1: the paper has IMDB SST-2 SST-5 SNLI QNLI QQP MNLI" ;;
  esac
}
