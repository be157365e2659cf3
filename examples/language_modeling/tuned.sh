# The small model with the encodings that Qu et al. compare, each with its own learning rate. k is the best of their Table 7:
# 8 for shaw, and 16, the default, for lfhc.
RUNS=runs/language_modeling_tuned
VARIANTS=([shaw_8]="shaw --position-hparams max_distance=8") # a name that says that it is clipped
COMPARED="transformer_xl gcdf lfhc shaw_8 t5"
LEARNING_RATES="2e-3 4e-3 8e-3 16e-3 32e-3"
SEEDS="1 2 3 4 5"
