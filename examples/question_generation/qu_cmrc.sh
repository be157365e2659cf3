# Qu et al. on CMRC 2018: as on SQuAD, with roberta-base-wwm-ext in START_FROM, and scores of characters.
. "$(dirname "${BASH_SOURCE[0]}")/qu.sh"
NAME=question_generation_qu_cmrc
HPARAMS=([shaw]="max_distance=4" [lfhc]="max_distance=2")
UPDATES=4500
WARMUP_UPDATES=600
VALIDATE_EVERY=300
TOKENS=characters
