# For examples/roberta_small: masked language models to compare with the discriminators of small.sh. The model and the data are
# the same, and a run takes the same time: an update of ELECTRA takes 1.35 times as long as one of a masked language model
# (both in parallel on one CPU).
NAME=electra_masked_lm
DATA=data-bin/roberta_small
UPDATES=13500
# The best of three for both encodings over 4,000 updates (examples/roberta_small/RESULTS.md). ELECTRA's was chosen
# from the same three, after 2,800 of 4,000 updates (README.md, Learning rates).
LEARNING_RATE=4e-3
LEARNING_RATES=
WARMUP_UPDATES=1000
LOG_EVERY=50
VALIDATE_EVERY=500
COMPARED="learned tupe_r"
SEEDS="1 2"
