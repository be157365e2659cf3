# M4M, SQuAD 1.1 and 2.0: 3 epochs, 32 windows; the paper takes the best of three learning rates:
# for rate in 2e-5 3e-5 4e-5: LEARNING_RATE=$rate RUNS=runs/squad_m4m/lr$rate. Windows are BERT's; the paper gives none.
NAME=squad_m4m
BATCH=32
EPOCHS=3
