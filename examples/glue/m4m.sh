# GLUE as M4M ("multiplicative position embeddings") fine-tunes it. Values that the paper does not give are TUPE's.
NAME=glue_m4m
CONVENTION=m4m
MAX_TOKENS=
EPOCHS=3
EPOCHS_OF_LARGE=3
LEARNING_RATES="2e-5 3e-5 4e-5"
