# M4M ("multiplicative position embeddings"), Sec. 3.1: 8 A100, 30 hours per run. Values that
# the paper does not give (warm-up, Adam, decay) are TUPE's.
NAME=roberta_pretraining_m4m
BATCH=96
UPDATES=500000
