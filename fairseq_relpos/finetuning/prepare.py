"""python -m fairseq_relpos.finetuning.prepare TASK TSV VOCABULARY OUT

The files of a GLUE task in the folder TSV -> OUT, which the task ``sentence_pairs`` reads. VOCABULARY: the folder of
the pretraining's data. OUT is complete or not there. ``prepare own ...`` takes files of your own (``own.py``).
"""

from collections.abc import Sequence
from pathlib import Path

from . import own
from .errors import run_program
from .glue import OPTIONAL, Task, task_of
from .sentence_data import Split, label_numbers, write_data
from .tables import Table


def prepare(task: Task, tsv: str | Path, vocabulary: str | Path, out: str | Path) -> dict[str, int]:
    """Writes OUT and returns the number of examples of each split. Raises ValueError, one line."""
    tsv = Path(tsv)
    missing = [name for split, name in task.files.items() if split not in OPTIONAL and not (tsv / name).is_file()]
    if missing:
        raise ValueError(f"{task.name}: no {', '.join(missing)} in {tsv}: get them first")
    tables = {
        split: Table(tsv / name, task.without_header) for split, name in task.files.items() if (tsv / name).is_file()
    }
    splits = {}
    for split, table in tables.items():
        # tests of the GLUE server have no labels; one that has them can be scored
        labelled = split not in OPTIONAL or table.has(task.label_columns)
        sentences = [table.column(names) for names in task.columns]
        splits[split] = Split(sentences, label_numbers(task, table) if labelled else None)
    return write_data(out, vocabulary, task.name, task.labels, splits)


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["own"]:
        return own.main(arguments[1:])
    if len(arguments) != 4:
        raise ValueError(f"{len(arguments)} arguments: give TASK TSV VOCABULARY OUT, or own ...")
    name, tsv, vocabulary, out = arguments
    counts = prepare(task_of(name), tsv, vocabulary, out)
    print(f"{name}: {', '.join(f'{count:,} {split}' for split, count in counts.items())}")


if __name__ == "__main__":
    run_program(main)
