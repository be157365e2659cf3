# AT5 trains QANet without its convolutions on SQuAD 1.1. This is a plain Transformer encoder over
# question and text together: README.md has the differences. 128 dimensions and 8 heads are QANet's.
NAME=squad_at5
ARCH=sequence_encoder
MODEL_FLAGS=(--encoder-layers 6 --encoder-embed-dim 128 --encoder-ffn-embed-dim 512 --encoder-attention-heads 8
  --encoder-normalize-before)
HPARAMS=([at5]="gamma_min=5 gamma_max=15 hidden=50,10" [at5_nob]="hidden=50,10")
MAX_POSITIONS=512
WINDOW=400                 # the length of QANet's paragraphs in training
DOC_STRIDE=200
MAX_QUERY_LENGTH=50
BATCH=32
EPOCHS=30
LEARNING_RATE=1e-3
ADAM_BETAS='(0.8, 0.999)'
ADAM_EPS=1e-7
WEIGHT_DECAY=3e-7
CLIP_NORM=5.0
BASELINE=t5
