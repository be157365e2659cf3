# All values of compare_finetuned.sh, which compares the discriminators of small.sh with the masked language models of
# masked_lm.sh.
# SETTINGS="FILE..." reads other files after this one.
NAME=electra_finetuned
RUNS=                      # empty: runs/$NAME
DISCRIMINATORS=runs/electra_small  # ENCODING-seedN/discriminator.pt
MASKED_LMS=runs/electra_masked_lm  # ENCODING-seedN/checkpoint_last.pt
COMPARED="learned tupe_r"
PRETRAINING_SEEDS="1 2"
MAX_POSITIONS=64           # 32 in the pretraining; half of the sentences of SST-2's development part are longer
# A recipe, a task and the folder of its data per line. The test part has labels.
TASKS="glue SST-2 data-bin/glue
text_classification TREC data-bin/text_classification"
FINE_TUNING=examples/glue/small.sh # SETTINGS of both recipes
LEARNING_RATES="3e-4 1e-3" # each pretraining uses the best median over SEEDS, on the validation data
SEEDS="1 2 3"              # of the fine-tuning: the new head, the order of the data, dropout
JOBS=1                     # parallel runs
ALLOCATOR=tuned
