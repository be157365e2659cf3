"""python -m fairseq_relpos.finetuning.prepare TASK TSV VOCABULARY OUT

The files of a GLUE task in the folder TSV -> OUT, which the task ``sentence_pairs`` reads. VOCABULARY: the folder of
the pretraining's data. OUT is complete or not there.
"""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .glue import OPTIONAL, Task, task_of
from .tables import Table
from .vocabulary import Vocabulary


def prepare(task: Task, tsv: str | Path, vocabulary: str | Path, out: str | Path) -> dict[str, int]:
    """Writes OUT and returns the number of examples of each split. Raises ValueError, one line."""
    from ..atomic_files import temporary

    tsv, out = Path(tsv), Path(out)
    missing = [name for split, name in task.files.items() if split not in OPTIONAL and not (tsv / name).is_file()]
    if missing:
        raise ValueError(f"{task.name}: no {', '.join(missing)} in {tsv}: get them first")
    tables = {
        split: Table(tsv / name, task.without_header) for split, name in task.files.items() if (tsv / name).is_file()
    }
    words = Vocabulary(vocabulary)
    part = Path(temporary(out))
    try:
        part.mkdir(parents=True)
        for split, table in tables.items():
            write_split(part, split, task, table, words)
        shutil.copy(Path(vocabulary, "dict.txt"), part)
        if task.labels is not None:
            write(part / "labels.txt", task.labels)
        counts = {split: len(table.rows) for split, table in tables.items()}
        (part / "task.json").write_text(json.dumps({"task": task.name, "examples": counts}) + "\n", encoding="utf-8")
        shutil.rmtree(out, ignore_errors=True)
        part.rename(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return counts


def write_split(folder: Path, split: str, task: Task, table: Table, words: Vocabulary) -> None:
    sentences = [table.column(names) for names in task.columns]
    labelled = split not in OPTIONAL
    labels = label_numbers(task, table) if labelled else []
    for number, texts in enumerate(sentences):
        write_sentences(folder / f"input{number}" / split, map(words.encode, texts), len(words.dictionary))
    if labelled:
        write(folder / "label" / f"{split}.label", map(str, labels))


def label_numbers(task: Task, table: Table) -> list[Any]:
    """The number of each label, or its value as a part of the largest one."""
    labels: list[Any] = []
    for line, text in enumerate(table.column(task.label_columns), table.first_line):
        try:
            labels.append(float(text) / task.largest if task.labels is None else task.labels.index(text))
        except ValueError:
            known = "a number" if task.labels is None else ", ".join(task.labels)
            raise ValueError(f"{table.path}, line {line}: the label {text!r} is not {known}") from None
    return labels


def write_sentences(prefix: Path, sentences: Iterator[Any], vocabulary_size: int) -> None:
    from fairseq.data import indexed_dataset

    prefix.parent.mkdir(exist_ok=True)
    builder = indexed_dataset.make_builder(f"{prefix}.bin", "mmap", vocabulary_size + 1)  # with <mask>
    for sentence in sentences:
        builder.add_item(sentence)
    builder.finalize(f"{prefix}.idx")


def write(path: Path, lines: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    name, tsv, vocabulary, out = arguments
    counts = prepare(task_of(name), tsv, vocabulary, out)
    print(f"{name}: {', '.join(f'{count:,} {split}' for split, count in counts.items())}")


if __name__ == "__main__":
    from .errors import in_one_line

    with in_one_line():
        main(sys.argv[1:])
