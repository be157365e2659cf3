# GLUE as fine-tuned by Huang et al. (2020). Values that the paper does not give are TUPE's.
NAME=glue_huang
CONVENTION=huang
MAX_TOKENS=
EPOCHS=3
EPOCHS_OF_LARGE=3
LEARNING_RATES=3e-5
