"""Question generation: texts, answers and questions -> pieces for fairseq-preprocess, and pieces -> questions.

    python -m fairseq_relpos.finetuning.questions GENERATED DATA SPLIT OUT    -> OUT, questions in the order of the data

A source is ``<s> text </s> </s> answer </s>``, as RoBERTa reads a pair, or ``<s> text </s>``; fairseq-preprocess writes
the last </s>. A text that is too long is cut around its answer.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ..atomic_files import UNPACKING_ERRORS, forms_of, opened, write_text
from ..command_line import Parser
from ..reports.translation_scores import best_hypotheses, read_lines
from .errors import run_program
from .squad_data import read_questions, span_of
from .vocabulary import Vocabulary, refuse_unknown

#: <s>, and </s> at the end; </s> </s> before an answer
AROUND, BETWEEN = 2, 2


@dataclass
class Example:
    """A question to a text, and where its answer stands in it; of texts without answers None."""

    text: str
    question: str
    start: int | None = None
    end: int | None = None


def read(source: str, target: str | Path, titles: str | Path | None = None) -> None:
    """Writes TARGET.jsonl, and TARGET.src and TARGET.tgt as plain text. ``source``: SQuAD's JSON, where each question
    has an answer (plain, .xz or .gz), or PREFIX of PREFIX.src and PREFIX.tgt, a text and a question a line."""
    if source.removesuffix(".xz").removesuffix(".gz").endswith(".json"):
        examples, told = from_json(source, titles)
    elif titles:
        raise ValueError(f"{source} is no JSON, and only JSON has titles: leave --titles out")
    else:
        examples, told = from_lines(source), ""
    write(f"{target}.jsonl", (json.dumps(asdict(example), ensure_ascii=False) for example in examples))
    # the text for the vocabulary: each text once
    write(f"{target}.src", dict.fromkeys(" ".join(example.text.split()) for example in examples))
    write(f"{target}.tgt", (example.question for example in examples))
    print(f"{os.path.basename(target)}: {len(examples):,} questions{told}")


def from_json(path: str, titles: str | Path | None = None) -> tuple[list[Example], str]:
    """Returns the questions that have an answer, and what there is to tell of the others. titles: a file with the
    titles of the articles that are wanted, a line each. Raises ValueError, one line, where an answer does not stand
    in its text."""
    found = read_questions(path)
    wanted = {unquote(line.strip()) for line in read_lines(titles) if line.strip()} if titles else None
    examples, unanswerable, moved, nowhere = [], 0, 0, []
    for question in found.questions:
        if wanted is not None and unquote(found.titles[question.context]) not in wanted:
            continue
        if not question.answers:
            unanswerable += 1
            continue
        if not question.text.strip():
            raise ValueError(f"{path}: question {question.name} is empty: remove it")
        text = found.contexts[question.context]
        answers = [(answer, start) for answer, start in question.answers if answer.strip() and answer in text]
        standing = [(answer, start) for answer, start in answers if text[start : start + len(answer)] == answer]
        if not answers:
            nowhere.append(question)
            continue
        moved += not standing
        answer, start = standing[0] if standing else nearest(text, *answers[0])
        examples.append(Example(text, " ".join(question.text.split()), start, start + len(answer)))
    if nowhere:
        more = f", nor that of {len(nowhere) - 1:,} more" if nowhere[1:] else ""
        answer = nowhere[0].answers[0][0]
        raise ValueError(
            f"{path}: the answer of question {nowhere[0].name}, {answer[:40]!r}, does not stand in its text{more}: "
            "correct these questions, or remove them"
        )
    if not examples:
        raise ValueError(f"{path} has no question with an answer{f' under the titles of {titles}' if titles else ''}")
    told = f", {unanswerable:,} without an answer left out" if unanswerable else ""
    told += f", {moved:,} answers stand elsewhere than the file says" if moved else ""
    if wanted is not None:
        here = {unquote(title) for title in found.titles}
        told += f", {len(wanted & here):,} of the {len(wanted):,} titles are in the file"
    return examples, told


def nearest(text: str, answer: str, start: int) -> tuple[str, int]:
    """Returns the answer, and of the places where it stands in the text the one that is nearest to ``start``."""
    places = [place for place in range(len(text)) if text.startswith(answer, place)]
    return answer, min(places, key=lambda place: abs(place - start))


def from_lines(prefix: str) -> list[Example]:
    sides = [lines_of(prefix, ending) for ending in ("src", "tgt")]
    paths = [path for path, _ in sides]
    texts, questions = ([" ".join(line.split()) for line in lines] for _, lines in sides)
    if len(texts) != len(questions):
        raise ValueError(
            f"{paths[0]} has {len(texts):,} lines and {paths[1]} has {len(questions):,}: line N of one has to be a "
            "question to line N of the other"
        )
    for path, lines in zip(paths, (texts, questions)):
        if "" in lines:
            raise ValueError(f"{path}, line {lines.index('') + 1} is empty: take it out of {' and '.join(paths)}")
    return [Example(text, question) for text, question in zip(texts, questions)]


def lines_of(prefix: str, ending: str) -> tuple[str, list[str]]:
    (path,) = forms_of(f"{prefix}.{ending}")  # prepare.sh refuses none, and several
    try:
        with opened(path) as file:
            return path, file.read().decode("utf-8").removesuffix("\n").split("\n")
    except (*UNPACKING_ERRORS, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read ({error}): is it whole, and UTF-8?") from None


def encode(
    split: str | Path, vocabulary: str | Path, longest_source: int, longest_question: int, training: bool = False
) -> None:
    """SPLIT.jsonl -> SPLIT.pieces.src, SPLIT.pieces.tgt and SPLIT.questions. Longer questions are left out of training,
    and a ValueError elsewhere."""
    words = Vocabulary(vocabulary)
    sources, targets, questions, cut, long, unknown, total = [], [], [], 0, 0, 0, 0
    name = os.path.basename(split)
    for line in read_lines(f"{split}.jsonl"):
        example = Example(**json.loads(line))
        question = words.pieces(example.question)
        if len(question) + 1 > longest_question:
            if not training:
                raise ValueError(
                    f"{name}: the question {example.question[:40]!r} has {len(question) + 1} tokens, more than "
                    f"MAX_TARGET={longest_question}: set a larger one"
                )
            long += 1
            continue
        source, is_cut = source_of(example, words, longest_source)
        cut += is_cut
        unknown += sum(words.dictionary.index(piece) == words.dictionary.unk() for piece in [*source, *question])
        total += len(source) + len(question)
        sources.append(" ".join(source))
        targets.append(" ".join(question))
        questions.append(words.changed(example.question))
    if not sources:
        raise ValueError(f"{name}: every question is longer than {longest_question} tokens: set a larger MAX_TARGET")
    refuse_unknown(unknown / total, f"pieces of {name}", vocabulary)
    write(f"{split}.pieces.src", sources)
    write(f"{split}.pieces.tgt", targets)
    write(f"{split}.questions", questions)
    left_out = f", {long:,} longer than {longest_question} tokens left out" if long else ""
    print(
        f"{name}: {len(sources):,} questions{left_out}; {cut:,} texts cut; {unknown / total:.2%} of the pieces unknown"
    )


def source_of(example: Example, words: Vocabulary, longest: int) -> tuple[list[str], bool]:
    """Returns the pieces of a source but for the </s> at its end, at most ``longest`` with it, and whether its text
    has been cut."""
    pieces, spans = words.placed(example.text)
    answer, span = [], (0, 0)
    if example.start is not None and example.end is not None:
        answer = ["</s>", "</s>", *words.pieces(example.text[example.start : example.end])]
        span = span_of(spans, example.start, example.end) or span
    room = longest - AROUND - len(answer)
    if room < 1:
        raise ValueError(
            f"an answer of {len(answer) - BETWEEN:,} tokens leaves no room for its text in a source of {longest:,}: "
            "set a larger MAX_SOURCE, or remove the question"
        )
    # the same number of tokens before and after the answer, as far as there are so many
    first = (span[0] + span[1] + 1 - room) // 2
    first = max(0, min(first, len(pieces) - room))
    return ["<s>", *pieces[first : first + room], *answer], len(pieces) > room


def collect(generated: str, data: str, split: str, target: str) -> None:
    words = Vocabulary(data)
    count = len(read_lines(Path(data, "text", f"{split}.questions")))
    found = best_hypotheses(read_lines(generated), count)
    write(target, (" ".join(words.text_of(line.split()).split()) for line in found))


def write(path: str, lines: Any) -> None:
    write_text(path, "".join(f"{line}\n" for line in lines))


def main(arguments: list[str]) -> None:
    parser = Parser(prog="questions")
    for name in ("generated", "data", "split", "target"):
        parser.add_argument(name)
    collect(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    run_program(main)
