# The small model, trained with a memory of one segment: streams of text instead of shuffled blocks.
NAME=language_modeling_memory
DATA_NAME=language_modeling
MEMORY=128
COMPARED="transformer_xl gcdf"
