"""Question generation: texts, answers and questions -> pieces for fairseq-preprocess, and pieces -> questions.

    python -m fairseq_relpos.finetuning.questions ...
        read FILE|PREFIX WORK/SPLIT [--titles FILE]       -> WORK/SPLIT.jsonl, and WORK/SPLIT.src and .tgt, plain text
        dictionary VOCABULARY OUT                         -> OUT, the dict.txt of the vocabulary with <mask>
        encode WORK/SPLIT VOCABULARY --longest-source N --longest-question N [--training]
                                                          -> WORK/SPLIT.pieces.src and .tgt, WORK/SPLIT.questions
        collect GENERATED DATA SPLIT OUT                  -> OUT, questions in the order of the data

FILE: SQuAD's JSON, where each question has an answer, plain, .xz or .gz. PREFIX: PREFIX.src and PREFIX.tgt, a text and
a question a line, without answers. A source is ``<s> text </s> </s> answer </s>``, as RoBERTa reads a pair, or
``<s> text </s>``; fairseq-preprocess writes the last </s>. A text that is too long is cut around its answer.
"""

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fairseq.data import Dictionary

from ..atomic_files import OPENERS, UNPACKING_ERRORS, opened, whole_file, write_text
from ..command_line import Parser
from ..reports.translation import best_hypotheses, read_lines
from ..tasks.span_windows import load_dictionary
from .errors import in_one_line
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


def read(args: argparse.Namespace) -> None:
    name = os.path.basename(args.target)
    if args.source.removesuffix(".xz").removesuffix(".gz").endswith(".json"):
        examples, told = from_json(args.source, args.titles)
    elif args.titles:
        raise ValueError(f"{args.source} is no JSON, and only JSON has titles: leave --titles out")
    else:
        examples, told = from_lines(args.source), ""
    write(f"{args.target}.jsonl", (json.dumps(asdict(example), ensure_ascii=False) for example in examples))
    # the text for the vocabulary: each text once
    write(f"{args.target}.src", dict.fromkeys(" ".join(example.text.split()) for example in examples))
    write(f"{args.target}.tgt", (example.question for example in examples))
    print(f"{name}: {len(examples):,} questions{told}")


def from_json(path: str, titles: str | None = None) -> tuple[list[Example], str]:
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
    paths = [f"{prefix}.{ending}{packed}" for packed in OPENERS if os.path.isfile(f"{prefix}.{ending}{packed}")]
    if len(paths) != 1:
        message = f"{' and '.join(paths)}: keep one of them" if paths else f"no file {prefix}.{ending} (or .xz, .gz)"
        raise ValueError(f"{message}; give SQuAD's JSON, whose name ends in .json, or PREFIX of PREFIX.src and .tgt")
    (path,) = paths
    try:
        with opened(path) as file:
            return path, file.read().decode("utf-8").removesuffix("\n").split("\n")
    except (*UNPACKING_ERRORS, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read ({error}): is it whole, and UTF-8?") from None


def dictionary(args: argparse.Namespace) -> None:
    words = load_dictionary(args.vocabulary)
    with whole_file(args.target) as part:
        words.save(part)


def encode(args: argparse.Namespace) -> None:
    """Questions to learn from that are longer than the limit are left out; one to be generated is a ValueError."""
    words = Vocabulary(args.vocabulary)
    sources, targets, questions, cut, long, unknown, total = [], [], [], 0, 0, 0, 0
    name = os.path.basename(args.split)
    for example in examples_of(f"{args.split}.jsonl"):
        question = words.pieces(example.question)
        if len(question) + 1 > args.longest_question:
            if not args.training:
                raise ValueError(
                    f"{name}: the question {example.question[:40]!r} has {len(question) + 1} tokens, more than "
                    f"MAX_TARGET={args.longest_question}: set a larger one"
                )
            long += 1
            continue
        source, is_cut = source_of(example, words, args.longest_source)
        cut += is_cut
        unknown += count_unknown([*source, *question], words.dictionary)
        total += len(source) + len(question)
        sources.append(" ".join(source))
        targets.append(" ".join(question))
        questions.append(words.changed(example.question))
    if not sources:
        raise ValueError(
            f"{name}: every question is longer than {args.longest_question} tokens: set a larger MAX_TARGET"
        )
    refuse_unknown(unknown / total, f"pieces of {name}", args.vocabulary)
    write(f"{args.split}.pieces.src", sources)
    write(f"{args.split}.pieces.tgt", targets)
    write(f"{args.split}.questions", questions)
    left_out = f", {long:,} longer than {args.longest_question} tokens left out" if long else ""
    print(
        f"{name}: {len(sources):,} questions{left_out}; {cut:,} texts cut; {unknown / total:.2%} of the pieces unknown"
    )


def count_unknown(pieces: list[str], dictionary: Dictionary) -> int:
    return sum(dictionary.index(piece) == dictionary.unk() for piece in pieces)


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


def examples_of(path: str) -> Iterator[Example]:
    with open(path, encoding="utf-8") as file:
        for line in file:
            yield Example(**json.loads(line))


def collect(args: argparse.Namespace) -> None:
    words = Vocabulary(args.data)
    count = len(read_lines(Path(args.data, "text", f"{args.split}.questions")))
    generated = best_hypotheses(read_lines(args.generated), count)
    write(args.target, (" ".join(words.text_of(line.split()).split()) for line in generated))


def write(path: str, lines: Any) -> None:
    write_text(path, "".join(f"{line}\n" for line in lines))


def parser() -> argparse.ArgumentParser:
    main = Parser(prog="questions", description=(__doc__ or "").splitlines()[0])
    actions = main.add_subparsers(dest="action", required=True)

    add = actions.add_parser("read", help="JSON or lines -> examples")
    add.add_argument("source", metavar="FILE|PREFIX")
    add.add_argument("target", metavar="WORK/SPLIT")
    add.add_argument("--titles", metavar="FILE", help="only the articles with these titles, a line each")
    add.set_defaults(run=read)

    add = actions.add_parser("dictionary", help="the dictionary of a vocabulary, with <mask>")
    add.add_argument("vocabulary")
    add.add_argument("target", metavar="OUT")
    add.set_defaults(run=dictionary)

    add = actions.add_parser("encode", help="examples -> pieces")
    add.add_argument("split", metavar="WORK/SPLIT")
    add.add_argument("vocabulary")
    add.add_argument("--longest-source", type=int, required=True, help="tokens, with <s> and </s>")
    add.add_argument("--longest-question", type=int, required=True, help="tokens, with </s>")
    add.add_argument("--training", action="store_true", help="leave longer questions out")
    add.set_defaults(run=encode)

    add = actions.add_parser("collect", help="what fairseq-generate has printed -> questions")
    add.add_argument("generated")
    add.add_argument("data")
    add.add_argument("split")
    add.add_argument("target", metavar="OUT")
    add.set_defaults(run=collect)
    return main


def main(arguments: list[str] | None = None) -> None:
    args = parser().parse_args(arguments)
    with in_one_line():
        args.run(args)


if __name__ == "__main__":
    main()
