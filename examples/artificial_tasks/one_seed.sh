# The settings of one_seed/: the first seed, one rate for a task, 100 epochs at most.
RUNS=runs/artificial_tasks_one_seed
MAX_EPOCHS=100
PAPER_SEEDS=1
OTHER_SEEDS=1
