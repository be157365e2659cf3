# Half the block length, half the updates: SETTINGS=examples/roberta_small/blocks_of_64/settings.sh
# In shorter blocks learned positions begin to be used within the budget.
TOKENS_PER_SAMPLE=64
UPDATES=2000
WARMUP_UPDATES=200
VALIDATE_EVERY=200
RUNS=runs/roberta_small_64
COMPARED="learned t5 tupe_r none"
