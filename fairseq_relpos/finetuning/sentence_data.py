"""Sentences or pairs of them, with labels -> a folder that the task ``sentence_pairs`` reads."""

import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..atomic_files import digest_of
from .glue import OPTIONAL, Task
from .prepared_folder import prepared_folder
from .tables import Table
from .vocabulary import Vocabulary, refuse_unknown


@dataclass
class Split:
    """The first and, of pairs, the second sentences, and a number for each example; tests may have none."""

    sentences: Sequence[Sequence[str]]
    labels: Sequence[Any] | None


def split_of(task: Task, table: Table, name: str) -> Split:
    """The sentences and labels in a table. Those of tests may lack labels, as on the GLUE server."""
    labelled = name not in OPTIONAL or table.has(task.label_columns)
    return Split([table.column(names) for names in task.columns], label_numbers(task, table) if labelled else None)


def write_data(
    out: str | Path, vocabulary: str | Path, task: str, labels: Sequence[str] | None, splits: Mapping[str, Split]
) -> str:
    """Writes OUT, complete or not at all. Returns a line that counts the examples of each split."""
    words = Vocabulary(vocabulary)
    with prepared_folder(Path(out)) as part:
        for name, split in splits.items():
            for number, texts in enumerate(split.sentences):
                unknown = write_sentences(part / f"input{number}" / name, map(words.encode, texts), words.dictionary)
                refuse_unknown(unknown, f"tokens of {name}", vocabulary)
            if split.labels is not None:
                write(part / "label" / f"{name}.label", map(str, split.labels))
        shutil.copy(Path(vocabulary, "dict.txt"), part)
        if labels is not None:
            write(part / "labels.txt", labels)
        counts = {name: len(split.sentences[0]) for name, split in splits.items()}
        written = sorted(path for path in part.rglob("*") if path.is_file())
        write(part / "sources.txt", [digest_of("sha256", *written)])  # a training on other data is another run
        (part / "task.json").write_text(json.dumps({"task": task, "examples": counts}) + "\n", encoding="utf-8")
    return f"{task}: {', '.join(f'{count:,} {name}' for name, count in counts.items())}"


def label_numbers(task: Task, table: Table) -> list[Any]:
    """The number of each label, or its value as a part of the largest one."""
    labels: list[Any] = []
    for line, text in enumerate(table.column(task.label_columns), table.first_line):
        try:
            labels.append(finite(text) / task.largest if task.labels is None else task.labels.index(text))
        except ValueError:
            known = "a number" if task.labels is None else ", ".join(task.labels)
            raise ValueError(f"{table.path}, line {line}: the label {text!r} is not {known}") from None
    return labels


def finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def write_sentences(prefix: Path, sentences: Iterator[Any], dictionary: Any) -> float:
    """Returns the share of unknown tokens, </s> left out."""
    from fairseq.data import indexed_dataset

    prefix.parent.mkdir(exist_ok=True)
    builder = indexed_dataset.make_builder(f"{prefix}.bin", "mmap", len(dictionary) + 1)  # with <mask>
    tokens = unknown = 0
    for sentence in sentences:
        builder.add_item(sentence)
        tokens += len(sentence) - 1
        unknown += int((sentence == dictionary.unk()).sum())
    builder.finalize(f"{prefix}.idx")
    return unknown / max(tokens, 1)


def write(path: Path, lines: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
