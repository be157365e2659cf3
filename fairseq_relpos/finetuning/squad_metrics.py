"""Exact match (EM) and F1 of answers that are parts of a text, in percent and not rounded.

``squad``: the scores of the official scripts of SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018). ``cmrc``: those of
CMRC 2018 (Cui et al. 2019), where a Chinese character is a token of its own.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher

Score = Callable[[str, str], float]

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(answer: str) -> str:
    """Lower case, without ASCII punctuation and without the words a, an and the; single spaces."""
    without_articles = re.sub(r"\b(a|an|the)\b", " ", answer.lower().translate(_PUNCTUATION))
    return " ".join(without_articles.split())


def exact(prediction: str, gold: str) -> float:
    return float(normalise(prediction) == normalise(gold))


def f1(prediction: str, gold: str) -> float:
    """F1 of the words. It is 0 if one of the answers has no words: SQuAD 2.0 treats such answers by itself."""
    predicted, right = normalise(prediction).split(), normalise(gold).split()
    shared = sum((Counter(predicted) & Counter(right)).values())
    return _f1(shared, len(predicted), len(right))


def _f1(shared, predicted, right):
    if shared == 0:
        return 0.0
    precision, recall = shared / predicted, shared / right
    return 2 * precision * recall / (precision + recall)


def best(score: Score, prediction: str, golds: Iterable[str]) -> float:
    """Returns the score with the gold answer that fits best."""
    return max(score(prediction, gold) for gold in golds)


def need_all(predictions: dict[str, str], golds: dict[str, list[str]]) -> None:
    """Raises ValueError if the predictions are not those of the questions."""
    missing = [question for question in golds if question not in predictions]
    if missing:
        raise ValueError(
            f"{len(missing)} of {len(golds)} questions have no prediction, the first is {missing[0]}: predict all of "
            "them, with an empty text where there is no answer"
        )


def _percent(scores):
    return 100.0 * sum(scores) / len(scores)


def squad_1(predictions: dict[str, str], golds: dict[str, list[str]]) -> dict[str, float]:
    """Scores of SQuAD 1.1. golds: question -> its answers, at least one."""
    need_all(predictions, golds)
    return {
        "exact_match": _percent([best(exact, predictions[question], golds[question]) for question in golds]),
        "f1": _percent([best(f1, predictions[question], golds[question]) for question in golds]),
    }


def scores_2(predictions: dict[str, str], golds: dict[str, list[str]]) -> dict[str, tuple[float, float]]:
    """Returns EM and F1 of each question, 0 to 1, as SQuAD 2.0 has them. golds: question -> its answers; none means
    that the text has no answer."""
    need_all(predictions, golds)
    scores = {}
    for question, answers in golds.items():
        prediction = predictions[question]
        answers = [answer for answer in answers if normalise(answer)]
        if answers and normalise(prediction):
            scores[question] = (best(exact, prediction, answers), best(f1, prediction, answers))
        else:  # the only right answer to a question without one is the empty one
            # the official script compares what is left of an answer, so "the" is as good as nothing
            right = float(not answers and not normalise(prediction))
            scores[question] = (right, right)
    return scores


def squad_2(predictions: dict[str, str], golds: dict[str, list[str]]) -> dict[str, float]:
    """Scores of SQuAD 2.0, in all and for the questions with and without an answer."""
    scores = scores_2(predictions, golds)
    groups = {
        "": list(golds),
        # as the official script: a question whose answers are all "the" or the like has answers
        "HasAns_": [question for question in golds if golds[question]],
        "NoAns_": [question for question in golds if not golds[question]],
    }
    found: dict[str, float] = {}
    for name, questions in groups.items():
        if questions:
            found[f"{name}exact"] = _percent([scores[question][0] for question in questions])
            found[f"{name}f1"] = _percent([scores[question][1] for question in questions])
            found[f"{name}total"] = len(questions)
    return found


def best_thresholds(
    predictions: dict[str, str], null_odds: dict[str, float], golds: dict[str, list[str]]
) -> dict[str, float]:
    """Finds the thresholds with the best EM and F1: a question whose null odds are above the threshold is answered with
    the empty text. predictions: the texts without a threshold. As in the official script, the threshold is one of the
    odds, and of equal scores the first one counts. Other than there, questions with equal odds stay together, so that
    the threshold gives this score; and if no answer at all is best, the threshold lies below all odds."""
    scores = scores_2(predictions, golds)
    unanswerable = {question for question in golds if not any(map(normalise, golds[question]))}
    order = sorted(golds, key=lambda question: null_odds[question])
    found = {}
    for number, name in enumerate(("exact", "f1")):
        total = highest = float(len(unanswerable))
        threshold = null_odds[order[0]] - 1.0
        for place, question in enumerate(order):
            if question not in unanswerable:
                total += scores[question][number]
            elif predictions[question]:
                total -= 1
            is_last = place + 1 == len(order) or null_odds[order[place + 1]] > null_odds[question]
            if is_last and total > highest:
                highest, threshold = total, null_odds[question]
        found[f"best_{name}"] = 100.0 * highest / len(golds)
        found[f"best_{name}_thresh"] = threshold
    return found


#: the marks that the script of CMRC 2018 leaves out
_CMRC_MARKS = set("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
#: a Chinese character alone; of other text, numbers, words and single marks
_CMRC_TOKEN = re.compile(r"[\u4e00-\u9fa5]|\d+(?:[.,]\d+)+|[^\W\u4e00-\u9fa5]+|[^\w\s]")


def cmrc_tokens(answer: str) -> list[str]:
    """Returns the Chinese characters one by one and other words whole. The official script cuts the other words with
    NLTK, which needs a download; words and numbers come out the same, contractions and abbreviations may not."""
    return _CMRC_TOKEN.findall("".join(c for c in answer.lower().strip() if c not in _CMRC_MARKS))


def cmrc_exact(prediction: str, gold: str) -> float:
    def bare(answer):
        return "".join(c for c in answer.lower().strip() if c not in _CMRC_MARKS)

    return float(bare(prediction) == bare(gold))


def cmrc_f1(prediction: str, gold: str) -> float:
    """F1 of the longest run of tokens that both answers have."""
    predicted, right = cmrc_tokens(prediction), cmrc_tokens(gold)
    run = SequenceMatcher(None, predicted, right, autojunk=False).find_longest_match()
    return _f1(run.size, len(predicted), len(right))


def cmrc(predictions: dict[str, str], golds: dict[str, list[str]]) -> dict[str, float]:
    """Scores of CMRC 2018; ``average`` is the mean of EM and F1."""
    need_all(predictions, golds)
    em = _percent([best(cmrc_exact, predictions[question], golds[question]) for question in golds])
    f1_ = _percent([best(cmrc_f1, predictions[question], golds[question]) for question in golds])
    return {"average": (em + f1_) / 2, "f1": f1_, "exact_match": em}


#: EM of one answer, by the name of the metric
EXACT: dict[str, Score] = {"squad": exact, "cmrc": cmrc_exact}
