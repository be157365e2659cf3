"""Windows of a fixed size over the arrays of tokens that ``finetuning.squad_data`` has written.

A window is ``<s> question </s></s> part of the text </s>``. Texts that are too long for one window have several, which
overlap (Devlin et al. 2019).
"""

import os
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from fairseq.data import Dictionary

#: the symbols of a window that are not question or text
SPECIAL = 4
#: in place of the first token of an answer: the text has no answer; the answer is not at its offset
NO_ANSWER, LEFT_OUT = -1, -2


def load_dictionary(folder: str) -> Dictionary:
    """Returns the dictionary of a masked language model: <mask> comes last."""
    path = os.path.join(folder, "dict.txt")
    if not os.path.exists(path):
        raise FileNotFoundError(f"no {path}: give the folder of the pretraining's data")
    dictionary = Dictionary.load(path)
    dictionary.add_symbol("<mask>")
    return dictionary


def read_arrays(data: str, split: str) -> dict[str, np.ndarray]:
    """Reads what ``squad_data.encode`` has written."""
    path = os.path.join(data, f"{split}.npz")
    if not os.path.exists(path):
        raise FileNotFoundError(f"no {path}: prepare it with examples/squad/prepare.sh")
    try:
        with np.load(path) as file:
            return dict(file)
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be read ({error}): prepare it again") from error


@dataclass
class Window:
    """A question and ``length`` tokens of its text from ``start`` on."""

    question: int
    start: int
    length: int


def check_sizes(window: int, stride: int, longest_question: int) -> None:
    """Raises ValueError if windows of these sizes would leave tokens of the text out."""
    least = window - longest_question - SPECIAL
    if stride < 1 or longest_question < 1 or least < stride:
        raise ValueError(
            f"--window {window} has {max(least, 0)} places for the text beside --max-query-length {longest_question} "
            f"and {SPECIAL} special symbols, fewer than --doc-stride {stride}: give a longer window, or lower the "
            "others (each at least 1)"
        )


def windows_of(arrays: dict[str, np.ndarray], window: int, stride: int, longest_question: int) -> Iterator[Window]:
    """Yields the windows of all questions in order. A window begins ``stride`` tokens after the one before it."""
    check_sizes(window, stride, longest_question)
    for question, context in enumerate(arrays["question_context"]):
        length = int(arrays["context_lengths"][context])
        room = window - min(int(arrays["question_lengths"][question]), longest_question) - SPECIAL
        start = 0
        while True:
            yield Window(question, start, min(room, length - start))
            if start + room >= length:
                break
            start += stride


def training_windows(arrays: dict[str, np.ndarray], windows: list[Window]) -> list[Window]:
    """Returns the windows without those of questions whose answer is not at its offset."""
    return [window for window in windows if arrays["answers"][window.question][0] != LEFT_OUT]


def target_of(arrays: dict[str, np.ndarray], window: Window) -> tuple[int, int] | None:
    """Returns the first and last token of the answer, counted in the window's text; None if it is not in it as a
    whole."""
    first, last = arrays["answers"][window.question] - window.start
    return (int(first), int(last)) if 0 <= first <= last < window.length else None


def with_most_context(windows: list[Window]) -> list[np.ndarray]:
    """Says for each token of each window whether no other window of the question has more context around it, that is,
    more tokens on its shorter side. Where two have as much, the first window counts. windows: those of one question."""
    best: dict[int, tuple[float, int]] = {}
    for number, window in enumerate(windows):
        for place in range(window.length):
            context = min(place, window.length - 1 - place) + 0.01 * window.length
            token = window.start + place
            if token not in best or context > best[token][0]:
                best[token] = (context, number)
    return [
        np.array([best[window.start + place][1] == number for place in range(window.length)], bool)
        for number, window in enumerate(windows)
    ]
