# The settings of the runs in RESULTS.md and runs.tar.xz, which had one rate each: LEARNING_RATES=5e-4, process50 1e-4.
MAX_EPOCHS=100
PAPER_SEEDS=1
OTHER_SEEDS=1
