# A trained model is given another position encoding (README.md).
RUNS=runs/roberta_small_moving
START_FROM=runs/roberta_small_tokens64_amp/lr4e-3/learned-seed1/checkpoint_last.pt # of tokens64_amp.sh
TOKENS_PER_SAMPLE=64
UPDATES=1000
WARMUP_UPDATES=100
LEARNING_RATE=1e-3
VALIDATE_EVERY=100
CRITERION=masked_lm
COMPARED="learned t5 alibi rope shaw m4m tupe_r deberta"
LEARNING_RATES=
