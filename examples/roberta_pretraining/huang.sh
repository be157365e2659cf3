# Huang et al. 2020 (M1 to M4), Sec. 4: 8 V100, whole words masked. They had 30,000 WordPieces; pieces
# here are SentencePiece's. The number of updates and other values that the paper does not give are TUPE's.
NAME=roberta_pretraining_huang
DATA_NAME=roberta_pretraining_30k
VOCAB_SIZE=30000
BATCH=160
WHOLE_WORDS=yes
