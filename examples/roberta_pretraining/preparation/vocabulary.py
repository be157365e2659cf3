"""Sentences of the training text -> pieces and fairseq's dictionary: spm.model and dict.txt.

The dictionary is the vocabulary itself: made from the pieces in the text it would also hold every
rare character that the vocabulary lacks.
"""

import io
import re
import zlib
from collections import Counter
from functools import lru_cache

import sentencepiece

from fairseq_relpos.atomic_files import whole_file

from . import compat, storage
from .problem import Problem

MODEL, DICTIONARY = "spm.model", "dict.txt"
#: of RoBERTa: what prepare.sh fetches
GPT2_FILES = ("encoder.json", "vocab.bpe")
FAIRSEQS_OWN = 5  # <s>, <pad>, </s>, <unk> and <mask>, which the task adds
SENTENCEPIECES_OWN = 3  # <unk>, <s>, </s>
#: bytes; SentencePiece's own limit of 4,192 would leave some sentences out
LONGEST_SENTENCE = 1_000_000
SPECIAL = re.compile(rf"({'|'.join((*compat.SPECIAL, compat.UNKNOWN))})")


def sample(work, megabytes):
    """Sentences for training, all or a part that depends on their text alone."""
    total = sum(storage.read_json(path)["train bytes"] for path in (work / "sentences").glob("*.json"))
    every = -(-total // (megabytes * 1_000_000))
    for path in sorted((work / "sentences").glob("*.train")):
        for line in storage.lines_of(path):
            for sentence in line.split("\t"):
                if sentence and zlib.crc32(sentence.encode()) % every == 0:
                    yield sentence


def learn(work, settings):
    """Writes MODEL and DICTIONARY into work."""
    special = compat.SPECIAL if settings.tupe_compat else ()
    pieces = settings.vocab_size - FAIRSEQS_OWN - len(special)
    lines = lambda: sample(work, settings.vocab_megabytes)  # noqa: E731
    coverage = settings.character_coverage
    if settings.merges:
        room = pieces - settings.merges
        if room < 1:
            raise Problem(f"MERGES={settings.merges} leaves no room for letters in VOCAB_SIZE={settings.vocab_size}")
        alphabet = most_frequent(lines(), room)
        lines = lambda: (spell(sentence, alphabet) for sentence in sample(work, settings.vocab_megabytes))  # noqa: E731
        coverage = 1.0
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines(),
            model_writer=model,
            vocab_size=pieces + SENTENCEPIECES_OWN,
            model_type="bpe",
            normalization_rule_name="nmt_nfkc",
            character_coverage=coverage,
            max_sentence_length=LONGEST_SENTENCE,
            # the same pieces on every machine
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise Problem(
            f"no vocabulary of {settings.vocab_size} from this text: give more text or set a smaller "
            f"VOCAB_SIZE ({str(error).strip().splitlines()[-1]})"
        ) from None
    with whole_file(work / MODEL) as part, open(part, "wb") as file:
        file.write(model.getvalue())
    found = processor(work / MODEL)
    own = [
        found.id_to_piece(i)
        for i in range(found.get_piece_size())
        if not found.is_control(i) and not found.is_unknown(i)
    ]
    storage.write_text(work / DICTIONARY, "".join(f"{piece} 1\n" for piece in (*special, *own)))
    return {"dictionary": FAIRSEQS_OWN + len(special) + len(own)}


def most_frequent(sentences, count):
    """So many characters, that for the beginning of a word among them."""
    found = Counter()
    for sentence in sentences:
        found.update(spell(sentence))
    del found[" "]
    ranked = sorted(found, key=lambda character: (-found[character], character))
    return frozenset(ranked[: count - 1])


def spell(sentence, alphabet=None):
    """What SentencePiece learns from: no special words, no characters but these."""
    text = " ".join(SPECIAL.sub(" ", sentence).split())
    return text if alphabet is None else "".join(c for c in text if c in alphabet or c == " ")


@lru_cache(1)
def processor(path):
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


class SentencePieces:
    def __init__(self, work, special):
        self.processor, self.special = processor(work / MODEL), special

    def __call__(self, text):
        if not self.special:
            return self.processor.encode(text, out_type=str)
        found = []
        for part in SPECIAL.split(text):
            found += [part] if SPECIAL.fullmatch(part) else self.processor.encode(part, out_type=str)
        return found


class Gpt2Pieces:
    """Those of the released RoBERTa: bytes, merged."""

    def __init__(self, work):
        from fairseq.data.encoders.gpt2_bpe_utils import get_encoder

        self.encoder = get_encoder(*(str(work / name) for name in GPT2_FILES))

    def __call__(self, text):
        return [str(number) for number in self.encoder.encode(text)]


@lru_cache(1)
def pieces_of(work, settings):
    """A function from text to pieces."""
    if settings.vocabulary == "gpt2":
        return Gpt2Pieces(work)
    return SentencePieces(work, settings.tupe_compat)
