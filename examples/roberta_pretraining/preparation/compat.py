"""What --tupe-compat does to the words of a line: TUPE's filter_and_cleanup_lines.py and
replace_patterns.py, in own words. Case stays until sentences are found; patterns do not see it."""

import re
import string

URL, EMAIL, FILE = "<url>", "<email>", "<file>"
#: a word that is too rare
UNKNOWN = "<unk>"
SPECIAL = (URL, EMAIL, FILE)

ENDINGS = "pdf mp4 mp3 doc xls docx ppt pptx wav wma csv tsv cpp py bat reg png jpg mov avi gif rtf txt bmp mid"
#: in this order. The class [^$s] of the second is TUPE's: an address with an s in it is none.
PATTERNS = [
    (re.compile(r"(?:(?:https?|ftp)://|www\.)[-a-z0-9+&@#/%?=~_|!:,.;]*[-a-z0-9+&@#/%=~_|]"), URL),
    (re.compile(r"[^$s]{3,}\.(?:com|net|org|edu|gov)"), URL),
    (
        re.compile(
            r"[a-z0-9_.-]+@(?:\[[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.|(?:[a-z0-9-]+\.)+)"
            r"(?:[a-z]{2,4}|[0-9]{1,3})\]?"
        ),
        EMAIL,
    ),
    (re.compile(rf"[a-z_-][a-z0-9_-]{{4,}}\.(?:{ENDINGS.replace(' ', '|')})"), FILE),
]
WITH_PATTERN = re.compile(r"[.@/]")


def rewrite(sentence):
    """A sentence without backslashes; punctuation at both ends of a word and hyphens stand alone."""
    sentence = sentence.replace("\\", " ").replace("...", " ... ").replace("..", " .. ")
    return " ".join(part for word in sentence.split() for part in parts(word))


def parts(word):
    inner = word.lstrip(string.punctuation)
    before = word[: len(word) - len(inner)]
    core = inner.rstrip(string.punctuation)
    after = inner[len(core) :]
    yield from before
    if core:
        yield from special(core).replace("-", " - ").split()
    yield from after


def special(word):
    if WITH_PATTERN.search(word):
        for pattern, name in PATTERNS:
            if pattern.fullmatch(word.lower()):
                return name
    return word
