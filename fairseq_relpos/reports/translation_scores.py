"""Scores of translations by the conventions of the papers.

sacreBLEU computes every score, sacremoses every token of a tokenised one.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU, CHRF
from sacremoses import MosesDetokenizer, MosesTokenizer

#: the settings with which sacreBLEU computes what multi-bleu.perl computes, from tokenised text
MULTI_BLEU: dict[str, Any] = {"tokenize": "none", "smooth_method": "none", "force": True}


@dataclass
class Text:
    """The same sentences as raw text and as Moses tokens, one string each."""

    raw: list[str]
    tokens: list[str]
    language: str

    @classmethod
    def of(cls, lines: Sequence[str], language: str, tokenised: bool = False) -> "Text":
        """Makes raw text from tokens, if the lines are ``tokenised``, or tokens from raw text."""
        lines = list(lines)
        if tokenised:
            join = MosesDetokenizer(lang=language).detokenize
            return cls([join(line.split()) for line in lines], lines, language)
        split = MosesTokenizer(lang=language).tokenize
        return cls(lines, [split(line, escape=False, return_str=True) for line in lines], language)


def read_lines(path: str | Path) -> list[str]:
    try:
        with open(path, encoding="utf-8-sig", newline="\n") as file:  # Windows may begin it with a mark
            return [line.rstrip("\n") for line in file]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error.reason} at byte {error.start}): convert it") from None


def read_text(path: str | Path, language: str, tokenised: bool = False) -> Text:
    return Text.of(read_lines(path), language, tokenised)


def bleu(language: str, **settings: Any) -> BLEU:
    """Returns sacreBLEU's BLEU with its tokeniser for the language: 13a, except for Chinese, Japanese and Korean."""
    try:
        return BLEU(trg_lang=language, **settings)
    except (ImportError, RuntimeError) as error:  # Japanese and Korean need another package
        raise ValueError(f"sacreBLEU cannot take {language} apart: {' '.join(str(error).split())}") from None


@dataclass
class Score:
    name: str
    value: float
    #: sacreBLEU's signature; None for a score that sacreBLEU does not compute
    signature: str | None
    meaning: str


def scores(hypotheses: Text, references: Text) -> list[Score]:
    """Computes the score of every convention. A score compares only with others of the same convention."""
    compounds = split_compounds(hypotheses.tokens), split_compounds(references.tokens)
    table = [
        ("BLEU", bleu(references.language), hypotheses.raw, references.raw, "sacreBLEU, as it comes"),
        ("chrF", CHRF(), hypotheses.raw, references.raw, "sacreBLEU, as it comes"),
        ("multi-bleu", BLEU(**MULTI_BLEU), hypotheses.tokens, references.tokens, "multi-bleu.perl on Moses tokens"),
        (
            "multi-bleu -lc",
            BLEU(**MULTI_BLEU, lowercase=True),
            hypotheses.tokens,
            references.tokens,
            "multi-bleu.perl -lc on Moses tokens, what the scripts of AT5 ran",
        ),
        (
            "compound-split",
            BLEU(**MULTI_BLEU),
            *compounds,
            "multi-bleu.perl with compounds split at hyphens, as in tensor2tensor and scaling-nmt",
        ),
    ]
    found = []
    for name, metric, ours, theirs, meaning in table:
        result = metric.corpus_score(ours, [theirs])
        found.append(Score(name, result.score, f"{result.name}|{metric.get_signature()}", meaning))
    equal = sum(ours == theirs for ours, theirs in zip(hypotheses.tokens, references.tokens))
    exact = 100 * equal / len(references.tokens)
    found.append(Score("exact", exact, None, "% of the sentences that equal the reference"))
    return found


def split_compounds(lines: Sequence[str]) -> list[str]:
    """well-known -> well ##AT##-##AT## known; a hyphen may be a token already (well @-@ known)."""
    return [re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line.replace(" @-@ ", "-")) for line in lines]


def best_hypotheses(generated: Iterable[str], count: int) -> list[str]:
    """Finds the translations in what fairseq-generate or fairseq-interactive has printed. They are in the order of the
    source, which has ``count`` sentences. Raises ValueError if one is missing."""
    found: dict[int, str] = {}
    for line in generated:
        if line.startswith("H-"):
            number, _, text = line.rstrip("\n").split("\t", 2)
            found.setdefault(int(number[2:]), text)  # --nbest prints the best one first
    missing = sorted(set(range(count)) - set(found))
    if missing:
        raise ValueError(
            f"{len(missing):,} of {count:,} sentences have no translation, the first in line "
            f"{missing[0] + 1}: was the decoding interrupted, or were sentences skipped?"
        )
    if len(found) > count:
        raise ValueError(f"{len(found):,} translations of {count:,} sentences: other text was decoded")
    return [found[number] for number in range(count)]


@dataclass
class Bucket:
    """Sentences whose sources have ``low`` to ``high`` words; high None: any number."""

    low: int
    high: int | None
    sentences: int
    bleu: float
    #: words of the translations per word of the references
    length_ratio: float

    @property
    def label(self) -> str:
        return f"{self.low}-{self.high}" if self.high is not None else f"{self.low}+"


def by_length(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], language: str, edges: Sequence[int]
) -> list[Bucket]:
    """Computes BLEU by the number of words in the source, where there are sentences. edges: the largest number of each
    bucket but the last."""
    lengths = [len(source.split()) for source in sources]
    buckets = []
    for low, high in zip([0, *(edge + 1 for edge in edges)], [*edges, None]):
        inside = [i for i, n in enumerate(lengths) if n >= low and (high is None or n <= high)]
        if inside:
            score = bleu(language).corpus_score([hypotheses[i] for i in inside], [[references[i] for i in inside]])
            buckets.append(Bucket(low, high, len(inside), score.score, score.ratio))
    return buckets
