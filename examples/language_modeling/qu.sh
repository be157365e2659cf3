# Qu et al. (LFHC and GCDF) on WikiText-103, Sec. 4.1 and Table 4. Values that they do not give are Transformer-XL's.
. "$(dirname "${BASH_SOURCE[0]}")/transformer_xl.sh"
NAME=language_modeling_qu
DROPOUT=0                  # Table 4; Transformer-XL has 0.1
ACTIVATION_DROPOUT=0
WEIGHT_DECAY=0.01          # AdamW, without a value: PyTorch's default
EVALUATIONS="150/0 150/150 150/640"
SAME_LENGTH=no
HPARAMS=([shaw]="max_distance=8" [lfhc]="max_distance=16") # the best k of Table 7
COMPARED="t5 shaw lfhc transformer_xl gcdf"
