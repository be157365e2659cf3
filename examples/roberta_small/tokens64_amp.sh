# The comparison in the README of the project: that of tokens64.sh with --amp.
. "$HERE/tokens64.sh"
RUNS=runs/roberta_small_tokens64_amp
PRECISION=amp
COMPARED+=" sinusoidal rope alibi transformer_xl m1 none"
LEARNING_RATES="2e-3 4e-3 8e-3"
SEEDS="1 2 3 4 5"
BASELINE=t5                # the five runs of learned spread too much
