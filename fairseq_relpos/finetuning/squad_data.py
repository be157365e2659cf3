"""Questions about texts in SQuAD's JSON -> arrays of tokens, which ``tasks.span_windows`` cuts into windows."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..atomic_files import UNPACKING_ERRORS, opened, whole_file, write_text
from ..tasks.span_windows import LEFT_OUT, NO_ANSWER, load_dictionary
from . import squad_metrics
from .vocabulary import Span, Vocabulary, refuse_unknown


@dataclass
class Question:
    name: str
    text: str
    context: int
    #: (text, where it starts)
    answers: list[tuple[str, int]]


@dataclass
class Questions:
    """A file of SQuAD 1.1, SQuAD 2.0 or CMRC 2018. ``may_lack_answers``: it is of version 2.0."""

    contexts: list[str] = field(default_factory=list)
    #: the title of each context's article
    titles: list[str] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    may_lack_answers: bool = False

    def golds(self) -> dict[str, list[str]]:
        return {question.name: [text for text, _ in question.answers] for question in self.questions}


def read_questions(path: str | Path) -> Questions:
    """Reads JSON, plain, .xz or .gz. Raises ValueError, one line, if it is not in the form of SQuAD."""
    path = str(path)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"no file {path}: give a JSON file in the form of SQuAD")
    try:
        with opened(path) as file:
            data = json.loads(file.read().decode("utf-8-sig"))  # Windows may begin it with a mark
        found = Questions()
        paragraphs = [paragraph for article in data["data"] for paragraph in article["paragraphs"]]
        found.titles = [str(article.get("title", "")) for article in data["data"] for _ in article["paragraphs"]]
        marked = any("is_impossible" in item for paragraph in paragraphs for item in paragraph["qas"])
        found.may_lack_answers = marked or str(data.get("version", "")).lstrip("v").startswith("2")
        for paragraph in paragraphs:
            found.contexts.append(paragraph["context"])
            for item in paragraph["qas"]:
                answers = [] if item.get("is_impossible") else item["answers"]
                pairs = [(str(answer["text"]), int(answer["answer_start"])) for answer in answers]
                found.questions.append(Question(str(item["id"]), item["question"], len(found.contexts) - 1, pairs))
        if not all(isinstance(text, str) for text in [*found.contexts, *(q.text for q in found.questions)]):
            raise TypeError("a text is no string")
    except KeyError as error:
        raise ValueError(f"{path} is not in the form of SQuAD: a part of it has no {error}") from error
    except (*UNPACKING_ERRORS, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: is it cut short? ({error})") from error
    except (TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} is not in the form of SQuAD ({error})") from error
    _check(found, path)
    return found


def _check(found, path):
    if not found.questions:
        raise ValueError(f"{path} has no questions")
    seen = set()
    for question in found.questions:
        if question.name in seen:
            raise ValueError(f"{path} has the question {question.name} twice: give each question an id of its own")
        seen.add(question.name)
        if not question.answers and not found.may_lack_answers:
            raise ValueError(
                f"{path}: question {question.name} has no answer, which only version 2.0 allows: remove it, or add "
                '"is_impossible": true to it'
            )


def encode(source: str | Path, vocabulary: str, target: str | Path, metric: str = "squad") -> dict[str, Any]:
    """Writes the tokens of all contexts and questions to TARGET.npz and the questions themselves to TARGET.json.
    Returns what there is to tell of it: counts, the oracle EM of this metric and the questions that training leaves
    out."""
    found = read_questions(source)
    words, dictionary = Vocabulary(vocabulary), load_dictionary(vocabulary)
    contexts = [words.placed(text) for text in found.contexts]
    questions = [words.pieces(question.text.strip()) for question in found.questions]
    spans, told = answer_spans(found, [places for _, places in contexts], metric)
    arrays = {
        "context_tokens": _ids([piece for pieces, _ in contexts for piece in pieces], dictionary),
        "context_starts": np.array([start for _, places in contexts for start, _ in places], np.int64),
        "context_ends": np.array([end for _, places in contexts for _, end in places], np.int64),
        "context_lengths": np.array([len(pieces) for pieces, _ in contexts], np.int64),
        "question_tokens": _ids([piece for pieces in questions for piece in pieces], dictionary),
        "question_lengths": np.array([len(pieces) for pieces in questions], np.int64),
        "question_context": np.array([question.context for question in found.questions], np.int64),
        "answers": np.array(spans, np.int64).reshape(-1, 2),
        "may_lack_answers": np.array(found.may_lack_answers),
        "words": np.array(len(dictionary)),
    }
    unknown = float((arrays["context_tokens"] == dictionary.unk()).mean()) if len(arrays["context_tokens"]) else 1.0
    refuse_unknown(unknown, f"tokens in {source}", vocabulary)
    with whole_file(f"{target}.npz") as part, open(part, "wb") as file:
        np.savez(file, **arrays)
    write_text(f"{target}.json", json.dumps(_as_json(found), ensure_ascii=False))
    counts = {"questions": len(spans), "contexts": len(contexts), "tokens": len(arrays["context_tokens"])}
    return {**counts, "unknown": unknown, **told}


def answer_spans(
    found: Questions, places: list[list[Span]], metric: str
) -> tuple[list[tuple[int, int]], dict[str, Any]]:
    """Returns the first and the last token of the answer to each question, and what there is to tell of the answers.
    places: where each token of each context stands."""
    spans, exact, hit, misplaced, left_out = [], 0.0, 0, 0, []
    for question in found.questions:
        context, tokens = found.contexts[question.context], places[question.context]
        standing = [a for a in question.answers if a[0].strip() and context[a[1] : a[1] + len(a[0])] == a[0]]
        misplaced += len(question.answers) - len(standing)
        if not question.answers:
            spans.append((NO_ANSWER, NO_ANSWER))
            continue
        reached = [
            (span, context[tokens[span[0]][0] : tokens[span[1]][1]])
            for text, start in standing
            if (span := span_of(tokens, start, start + len(text)))
        ]
        if not reached:
            spans.append((LEFT_OUT, LEFT_OUT))
            left_out.append(question.name)
            continue
        spans.append(reached[0][0])  # the first answer is that of the training
        hit += reached[0][1] == standing[0][0].strip()
        golds = [text for text, _ in question.answers]
        exact += max(squad_metrics.best(squad_metrics.EXACT[metric], text, golds) for _, text in reached)
    answers = sum(first >= 0 for first, _ in spans)
    return spans, {
        "unanswerable": sum(first == NO_ANSWER for first, _ in spans),
        "oracle_em": 100 * exact / max(answers, 1),
        "exact_offsets": 100 * hit / max(answers, 1),
        "misplaced": misplaced,
        "left_out": left_out,
    }


def _as_json(found):
    paragraphs: list[dict[str, Any]] = [{"context": context, "qas": []} for context in found.contexts]
    for question in found.questions:
        answers = [{"text": text, "answer_start": start} for text, start in question.answers]
        item: dict[str, Any] = {"id": question.name, "question": question.text, "answers": answers}
        if found.may_lack_answers:
            item["is_impossible"] = not answers
        paragraphs[question.context]["qas"].append(item)
    return {"version": "v2.0" if found.may_lack_answers else "1.1", "data": [{"paragraphs": paragraphs}]}


def span_of(places: list[Span], start: int, end: int) -> tuple[int, int] | None:
    """Returns the first and the last token that have characters of an answer, from ``start`` to before ``end``."""
    inside = [number for number, (begin, after) in enumerate(places) if begin < end and after > start]
    return (inside[0], inside[-1]) if inside else None


def _ids(pieces, dictionary):
    return np.array([dictionary.index(piece) for piece in pieces], np.int64)
