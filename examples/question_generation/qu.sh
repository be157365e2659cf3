# Qu et al. (LFHC and GCDF) on SQuAD: Sec. 4.1, Tables 2, 4 and 6. START_FROM: bert-base-cased, converted by fairseq-relpos
# import-hf. Values that the paper does not give are marked "ours". They copy as Gu et al. (2016), the flag as See et al.
NAME=question_generation_qu
MAX_SOURCE=512             # of BERT
MAX_TARGET=64              # ours
ENCODER_LAYERS=12
DECODER_LAYERS=3
EMBED_DIM=768
FFN_DIM=3072
HEADS=12
DROPOUT=0.1
# the last four: an encoder like BERT's
MODEL_FLAGS=(--share-all-embeddings --copy-from-source
  --encoder-learned-pos --layernorm-embedding --no-scale-embedding --activation-fn gelu)
BATCH=32
UPDATES=30000
LEARNING_RATE=2e-5
WARMUP_UPDATES=4000
ADAM_BETAS='(0.9, 0.999)'  # ours
WEIGHT_DECAY=0.01          # ours: AdamW, without a value
CLIP_NORM=0.25
LABEL_SMOOTHING=0          # ours
VALIDATE_EVERY=2000
SCORED=valid               # they report the dev set, on which the checkpoint is also chosen
TOKENS=13a                 # ours
