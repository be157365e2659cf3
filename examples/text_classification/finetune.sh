# The values of run.sh finetune, in the place of settings.sh: those of examples/glue, which are TUPE's. No paper fine-tunes
# on these tasks but those that are GLUE's, too. SETTINGS=my.sh names what it changes.
. "$ROOT/examples/glue/settings.sh"
NAME=text_classification
DATA_NAME=                 # data-bin/$NAME, as for training from scratch
FOLD=                      # of MR, SUBJ, CR and MPQA, as in settings.sh
LARGE_TASKS="SNLI MNLI QNLI QQP"
