"""A line -> its sentences, by a rule; TUPE took those of spaCy's parser, which wants a model and a GPU.

A sentence ends after . ! or ? (and closing quotes and brackets) where a blank and an upper-case letter or a
digit follow. It does not end after a single letter, a word with a full stop within (U.S.) or one of Moses'
abbreviations (sacremoses' list: Mr, Dr, Jr, ...), nor, after those that stand before numbers (No, Art, pp),
before a digit.
"""

import re
from functools import lru_cache

from sacremoses.corpus import NonbreakingPrefixes

END = re.compile(r"""[.!?]+['")\]]*\s+(?=['"(\[]*([A-Z0-9]))""")
NO_WORD = re.compile(r"\W+")
BEFORE_NUMBERS = "#NUMERIC_ONLY#"


@lru_cache(1)
def abbreviations():
    always, before_numbers = set(), set()
    for word in NonbreakingPrefixes().words("en"):
        word = word.strip()
        if word.endswith(BEFORE_NUMBERS):
            before_numbers.add(word[: -len(BEFORE_NUMBERS)].strip())
        else:
            always.add(word)
    return always, before_numbers


def split_sentences(line):
    sentences, start = [], 0
    for end in END.finditer(line):
        if not is_abbreviation(line[start : end.end()].rstrip(), end[1]):
            sentences.append(line[start : end.end()].rstrip())
            start = end.end()
    sentences.append(line[start:])
    return [sentence for sentence in sentences if sentence and not NO_WORD.fullmatch(sentence)]


def is_abbreviation(sentence, following):
    if sentence[-1] != ".":
        return False
    word = sentence[:-1].rsplit(None, 1)[-1:] or [""]
    word = word[0].lstrip("'\"([").split("-")[-1]
    always, before_numbers = abbreviations()
    if word == "I":  # among Moses' letters, but more often the pronoun
        return False
    is_letter = len(word) == 1 and word.isalpha()
    return is_letter or word in always or "." in word or (word in before_numbers and following.isdigit())
