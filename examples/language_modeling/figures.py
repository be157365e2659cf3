"""The figures of a text, from the sum of -log p of all its tokens in nats. Line ends are tokens, words and bytes.

Words: perplexity per word, exp(nats / words), as the papers have it for a closed vocabulary with <unk>.
Pieces: bits per byte, nats / bytes / ln 2, whatever the vocabulary; and exp(nats / words), to imagine its size.
The two vocabularies are never in one table: a word that is <unk> costs less than its letters.
"""

import math


def bits_per_byte(nats, counts):
    return nats / counts["bytes"] / math.log(2)


def perplexity_per_word(nats, counts):
    return math.exp(nats / counts["words"])


#: VOCABULARY -> name, function, digits
FIGURES = {"pieces": ("bits per byte", bits_per_byte, 4), "words": ("perplexity per word", perplexity_per_word, 2)}
