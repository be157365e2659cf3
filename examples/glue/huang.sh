# GLUE as Huang et al. (2020) fine-tune it. What the paper leaves open is TUPE's.
NAME=glue_huang
CONVENTION=huang
MAX_TOKENS=
EPOCHS=3
EPOCHS_OF_LARGE=3
LEARNING_RATES=3e-5
