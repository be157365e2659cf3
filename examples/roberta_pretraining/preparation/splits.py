"""Cleaned lines -> sentences for training and for validation, without duplicates, in the words and the case of the
vocabulary. A file has a line for each line of text, its sentences with tabs between them, and an empty line between
documents.
"""

import hashlib
from collections import Counter
from functools import lru_cache

from sacremoses import MosesTokenizer

from fairseq_relpos.atomic_files import write_json, write_text

from . import duplicates, storage

SPLITS = ("train", "valid")


@lru_cache(1)
def tokenizer():
    return MosesTokenizer("en")


def moses(sentence):
    return " ".join(tokenizer().tokenize(sentence, escape=False))


def split_of(document, valid_every):
    """Returns the split of a document, which is the same wherever the document is."""
    digest = hashlib.blake2b("\n".join(document).encode(), digest_size=8).digest()
    return SPLITS[int.from_bytes(digest, "little") % valid_every == 0]


def write_sentences(work, settings, block):
    """Writes the sentences of a block for each split."""
    gone = duplicates.of_block(work / "duplicates", block)
    counts = Counter()
    texts = {split: [] for split in SPLITS}
    number = 0
    for document in storage.documents(work / "cleaned" / f"{block:06}.txt"):
        split = split_of(document, settings.valid_every)
        written = []
        for line in document:
            number += 1
            if number - 1 in gone:
                continue
            found = list(sentences_of(line, settings))
            if not found:
                continue
            written.append("\t".join(found) + "\n")
            counts[f"{split} sentences"] += len(found)
        if written:
            texts[split].append("".join(written))
            counts[f"{split} documents"] += 1
    for split, documents_of_split in texts.items():
        text = "\n".join(documents_of_split)
        counts[f"{split} bytes"] += len(text.encode())
        write_text(work / "sentences" / f"{block:06}.{split}", text)
    write_json(work / "sentences" / f"{block:06}.json", counts)
    return counts


def sentences_of(line, settings):
    for sentence in line.split("\t"):
        sentence = moses(sentence) if settings.moses_tokens else sentence
        yield sentence.lower() if settings.lowercase else sentence
