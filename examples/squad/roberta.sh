# RoBERTa in fairseq: 48 windows, 1.5e-5, 2 epochs, weight decay 0.01, warm-up 0.06 (facebookresearch/fairseq#933).
NAME=squad_roberta
BATCH=48
EPOCHS=2
LEARNING_RATE=1.5e-5
