# For examples/roberta_small: masked language models to compare with the discriminators of small.sh. The model and the data are
# the same, and a run takes as long: an update of ELECTRA takes 1.35 times as long as one of a masked language model (both side
# by side on one CPU).
NAME=electra_masked_lm
DATA=data-bin/roberta_small
UPDATES=13500
LEARNING_RATES="1e-3 2e-3 4e-3" # those that were tried for ELECTRA
WARMUP_UPDATES=1000
LOG_EVERY=50
VALIDATE_EVERY=500
COMPARED="learned tupe_r"
SEEDS="1 2"
