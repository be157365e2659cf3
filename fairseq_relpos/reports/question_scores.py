"""``fairseq-relpos score-questions``: how near generated questions are to those that people asked.

Line N of one file stands against line N of the other. Prints BLEU-4, ROUGE-L by both public definitions, and METEOR
where what computes it is installed. Scores of different names, or of other tokens, do not compare.
"""

import argparse
import importlib.util
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean

from sacrebleu.metrics import BLEU
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from ..atomic_files import write_json
from .translation_scores import MULTI_BLEU, Score, read_lines

#: what a line is taken apart into
TOKENS: dict[str, Callable[[str], list[str]]] = {
    "spaces": str.split,
    "13a": lambda line: Tokenizer13a()(line).split(),
    "characters": lambda line: list("".join(line.split())),
}
#: of pycocoevalcap's F: recall counts more than precision
BETA = 1.2

NO_METEOR = (
    "METEOR: not computed; it needs Java and `pip install pycocoevalcap`, or `pip install nltk` and "
    "`python -m nltk.downloader wordnet`"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__.split("\n\n")[1].replace("\n", " ")
    parser.add_argument("hypotheses", metavar="QUESTIONS", help="those of the model, one a line")
    parser.add_argument("references", metavar="REFERENCES", help="those of people, in the same order")
    parser.add_argument(
        "--tokens",
        choices=list(TOKENS),
        default="spaces",
        help="spaces: the text is tokenised (default); 13a: sacreBLEU takes it apart; characters: for Chinese",
    )
    parser.add_argument("--lowercase", action="store_true", help="compare both sides in lower case")
    parser.add_argument("--json", metavar="FILE", help="write the scores here, too")


def run(args: argparse.Namespace) -> None:
    hypotheses, references = read_pairs(args.hypotheses, args.references)
    if args.json:
        Path(args.json).parent.mkdir(parents=True, exist_ok=True)
    found = scores(hypotheses, references, args.tokens, args.lowercase)
    print(f"{len(references):,} questions, tokens: {args.tokens}{', in lower case' if args.lowercase else ''}")
    for score in found:
        print(f"  {score.name:<24} {score.value:6.2f}  {score.signature or score.meaning}")
    if not any(score.name.startswith("METEOR") for score in found):
        print(NO_METEOR if args.tokens != "characters" else "METEOR: not computed; it is for words")
    if args.json:
        write_json(args.json, [asdict(score) for score in found])


def read_pairs(hypotheses: str | Path, references: str | Path) -> tuple[list[str], list[str]]:
    """Reads both files. Raises ValueError, one line, if they cannot be compared line by line."""
    ours, theirs = read_lines(hypotheses), read_lines(references)
    if len(ours) != len(theirs):
        raise ValueError(
            f"{hypotheses} has {len(ours):,} lines and {references} has {len(theirs):,}: line N of one has to be "
            "asked about the same text as line N of the other"
        )
    if not theirs:
        raise ValueError(f"{references} is empty: give questions, one a line")
    empty = next((number for number, line in enumerate(theirs, 1) if not line.strip()), None)
    if empty is not None:
        raise ValueError(f"{references}, line {empty} has no question: take it out of both files")
    return ours, theirs


def scores(
    hypotheses: Sequence[str], references: Sequence[str], tokens: str = "spaces", lowercase: bool = False
) -> list[Score]:
    """Returns every score there is, in percent. A hypothesis may be empty, a reference may not."""
    if lowercase:
        hypotheses, references = ([line.lower() for line in lines] for lines in (hypotheses, references))
    ours, theirs = ([TOKENS[tokens](line) for line in lines] for lines in (hypotheses, references))
    of_characters = tokens == "characters"
    of = " of characters" if of_characters else ""
    bleu = BLEU(**MULTI_BLEU)
    result = bleu.corpus_score([" ".join(line) for line in ours], [[" ".join(line) for line in theirs]])
    # rouge-score has tokens of its own, in which Chinese has none
    words = (ours, theirs) if of_characters else ([*map(rouge_words, hypotheses)], [*map(rouge_words, references)])
    return [
        Score(f"BLEU-4{of}", result.score, f"{result.name}|{bleu.get_signature()}", "sacreBLEU on the tokens"),
        Score(
            "ROUGE-L of characters, F1" if of_characters else "ROUGE-L (rouge-score)",
            mean_rouge_l(*words, beta=1),
            None,
            "mean F1 of the longest common subsequence; "
            + ("rouge-score's formula" if of_characters else "as rouge-score: words of a-z and 0-9 in lower case"),
        ),
        Score(
            f"ROUGE-L{of}, beta {BETA}" if of_characters else "ROUGE-L (pycocoevalcap)",
            mean_rouge_l(ours, theirs, beta=BETA),
            None,
            f"the same of the tokens, recall weighted by beta {BETA}; as pycocoevalcap",
        ),
        *([] if of_characters else meteor(ours, theirs)),
    ]


def rouge_words(text: str) -> list[str]:
    """Returns the words that rouge-score counts, without its stemmer. Letters beyond a-z part words."""
    return re.findall("[a-z0-9]+", text.lower())


def mean_rouge_l(hypotheses: Sequence[list[str]], references: Sequence[list[str]], beta: float) -> float:
    return 100 * mean(rouge_l(*pair, beta) for pair in zip(hypotheses, references, strict=True))


def rouge_l(hypothesis: Sequence[str], reference: Sequence[str], beta: float) -> float:
    """ROUGE-L of a question (Lin 2004): with P and R, the share of the hypothesis and of the reference that their
    longest common subsequence is, (1 + beta^2) P R / (R + beta^2 P)."""
    common = longest_common_subsequence(hypothesis, reference)
    if not common:
        return 0.0
    precision, recall = common / len(hypothesis), common / len(reference)
    return (1 + beta**2) * precision * recall / (recall + beta**2 * precision)


def longest_common_subsequence(one: Sequence[str], other: Sequence[str]) -> int:
    row = [0] * (len(other) + 1)
    for word in one:
        before = 0
        for place, its in enumerate(other, 1):
            before, row[place] = row[place], before + 1 if word == its else max(row[place], row[place - 1])
    return row[-1]


def meteor(hypotheses: Sequence[list[str]], references: Sequence[list[str]]) -> list[Score]:
    """Returns METEOR of English words by what is installed: its program in Java, or nltk with WordNet; or nothing."""
    ours, theirs = ([" ".join(line) for line in lines] for lines in (hypotheses, references))
    if shutil.which("java") and importlib.util.find_spec("pycocoevalcap"):
        from pycocoevalcap.meteor.meteor import Meteor

        value, _ = Meteor().compute_score(*({n: [line] for n, line in enumerate(lines)} for lines in (theirs, ours)))
        return [Score("METEOR (1.5)", 100 * value, None, "the authors' program, by pycocoevalcap")]
    if not importlib.util.find_spec("nltk"):
        return []
    from nltk.translate.meteor_score import meteor_score

    try:
        values = [meteor_score([theirs], ours) for ours, theirs in zip(hypotheses, references, strict=True)]
    except LookupError:  # no WordNet
        return []
    return [Score("METEOR (nltk)", 100 * mean(values), None, "nltk with WordNet, other weights than METEOR 1.5")]
