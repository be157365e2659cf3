# The small model with the words of WikiText-2: figures are perplexity per word, as in the papers. Most of the time is spent
# in the output layer.
NAME=language_modeling_words
DATA_NAME=$NAME
TEXTS=wikitext-2
VOCABULARY=words
