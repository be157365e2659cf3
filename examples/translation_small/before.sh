# The settings of the runs in RESULTS.md and runs.tar.xz, which are older than those of settings.sh.
COMPARED="sinusoidal at5 gcdf learned m4 none shaw t5 transformer_xl tupe_r"
SEEDS="1 2"
SCHEDULE=inverse_sqrt
LEARNING_RATES=
LENGTH_PENALTIES=
