# Huang et al. 2020, SQuAD 1.1 with base models: 3 epochs, 32 windows and 3e-5, the paper's values for GLUE; windows of 512
# tokens, as in its Table 4; strides are BERT's. For 576 to 704 tokens after a pretraining at 512: WINDOW and MAX_POSITIONS,
# and for a table of absolute positions a checkpoint from warm-start.
NAME=squad_huang
WINDOW=512
BATCH=32
EPOCHS=3
LEARNING_RATE=3e-5
