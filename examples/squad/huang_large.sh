# Huang et al. 2020, SQuAD 1.1 with a large warm-started model: windows of 512 tokens, 3 epochs, 5e-5.
NAME=squad_huang_large
SIZE=_large
WINDOW=512
EPOCHS=3
LEARNING_RATE=5e-5
