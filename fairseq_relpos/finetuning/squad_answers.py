"""Logits of windows -> the best answers to each question."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..tasks import span_windows
from ..tasks.span_windows import Window


@dataclass
class Span:
    """An answer: tokens of a context, the sum of their logits, and the text."""

    score: float
    first: int
    last: int
    text: str


@dataclass
class Answers:
    """The n best answers to a question, and the score of having none: the lowest of its windows."""

    best: list[Span]
    null: float

    @property
    def null_odds(self) -> float:
        """The score of "no answer" less that of the best answer."""
        return self.null - self.best[0].score if self.best else float("inf")

    def text(self, threshold: float | None) -> str:
        """Returns the best answer, or the empty text where the null odds are above the threshold. None: always an
        answer."""
        return "" if not self.best or threshold is not None and self.null_odds > threshold else self.best[0].text

    def table(self, with_null: bool) -> list[dict[str, Any]]:
        """Returns the answers with probabilities, which are relative to each other."""
        rows = [(span.text, span.score) for span in self.best]
        if with_null:
            rows = sorted([*rows, ("", self.null)], key=lambda row: -row[1])
        scores = np.array([score for _, score in rows], np.float64)
        probabilities = np.exp(scores - scores.max(initial=-np.inf))
        probabilities = probabilities / probabilities.sum() if len(rows) else probabilities
        return [
            {"text": text, "probability": float(p), "score": float(score)}
            for (text, score), p in zip(rows, probabilities)
        ]


def best_spans(
    start: np.ndarray, end: np.ndarray, may_begin: np.ndarray, longest: int, count: int
) -> list[tuple[float, int, int]]:
    """Returns the ``count`` best (start[first] + end[last], first, last) of all with at most ``longest`` tokens, whose
    first token may begin an answer."""
    length = len(start)
    # a row for the first token, a column for the length of the answer
    last = np.arange(length)[:, None] + np.arange(min(longest, length))
    scores = start[:, None] + end[np.minimum(last, length - 1)]
    scores[(last >= length) | ~may_begin[:, None]] = -np.inf
    order = np.argsort(-scores, axis=None, kind="stable")[:count]
    first, more = np.unravel_index(order, scores.shape)
    return [(float(scores[a, b]), int(a), int(a + b)) for a, b in zip(first, more) if np.isfinite(scores[a, b])]


def answers_of(
    windows: list[Window], logits: list[np.ndarray], arrays: dict[str, np.ndarray], context: str, longest: int, n: int
) -> Answers:
    """Returns the answers to one question. logits: for each of its windows [1 + length, 2], first those of <s>."""
    number = arrays["question_context"][windows[0].question]
    begin = int(arrays["context_lengths"][:number].sum())
    spans = []
    for window, logits_L2, may_begin in zip(windows, logits, span_windows.with_most_context(windows)):
        for score, first, last in best_spans(logits_L2[1:, 0], logits_L2[1:, 1], may_begin, longest, n):
            start = int(arrays["context_starts"][begin + window.start + first])
            end = int(arrays["context_ends"][begin + window.start + last])
            text = context[start:end]
            if text:  # some pieces stand for white space alone
                spans.append(Span(score, window.start + first, window.start + last, text))
    best: list[Span] = []
    for span in sorted(spans, key=lambda span: (-span.score, span.first, span.last)):
        if len(best) < n and all(span.text != other.text for other in best):
            best.append(span)
    return Answers(best, min(float(logits_L2[0].sum()) for logits_L2 in logits))
