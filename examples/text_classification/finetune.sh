# The values of run.sh finetune, instead of settings.sh: those of examples/glue, which are TUPE's. The papers fine-tune only
# on the tasks that are also in GLUE. SETTINGS=my.sh reads another file, with only the values that it changes.
. "$ROOT/examples/glue/settings.sh"
NAME=text_classification
DATA_NAME=                 # data-bin/$NAME, as for training from scratch
FOLD=                      # of MR, SUBJ, CR and MPQA, as in settings.sh
LARGE_TASKS="SNLI MNLI QNLI QQP"
