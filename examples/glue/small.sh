# GLUE for small models of examples/roberta_small on CPUs. A minute or more per run.
NAME=glue_small
VOCABULARY=data-bin/roberta_small
MAX_TOKENS=
EPOCHS=3
EPOCHS_OF_LARGE=3
VALIDATIONS=1
LEARNING_RATES="3e-4 1e-3"
SEEDS="1 2 3"
ALLOCATOR=tuned
