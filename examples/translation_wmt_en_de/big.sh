# Transformer big: "Scaling Neural Machine Translation" (Ott et al. 2018).
SIZE=_wmt_en_de_big
EMBED_DIM=1024
FFN_DIM=4096
HEADS=16
DROPOUT=0.3
RUNS=runs/translation_wmt14_en_de_big
