# SST-2 with few labels (few_labels.py): for run.sh finetune. Values that differ from finetune.sh are ours.
BATCH=16
MAX_TOKENS=
EPOCHS=20
VALIDATIONS=1
