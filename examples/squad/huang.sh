# Huang et al. 2020, SQuAD 1.1 with base models: 3 epochs, 32 windows and 3e-5, the paper's values for GLUE; windows
# are BERT's. For 576 to 704 tokens after a pretraining at 512: a checkpoint from warm-start, WINDOW and MAX_POSITIONS.
NAME=squad_huang
BATCH=32
EPOCHS=3
LEARNING_RATE=3e-5
