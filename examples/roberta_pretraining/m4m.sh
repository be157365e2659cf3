# M4M ("multiplicative position embeddings"), Sec. 3.1: 8 A100, 30 hours a run. What the paper leaves
# open (warm-up, Adam, decay) is TUPE's.
NAME=roberta_pretraining_m4m
BATCH=96
UPDATES=500000
