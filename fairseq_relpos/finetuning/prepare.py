"""Sentences or pairs of them, with a label each -> OUT, which the task ``sentence_pairs`` reads.

    python -m fairseq_relpos.finetuning.prepare own OUT (--vocabulary FOLDER | --from-scratch)
        --train FILE --valid FILE [--test FILE] (--labels NAME NAME ... | --numbers)
        your own. A FILE is a table (``tables.py``) whose first line names its columns: label and sentence, or label,
        sentence1 and sentence2; others are not read. --test may lack the labels. --from-scratch: words instead of the
        pieces of a pretraining, for the task ``sequence_labels``

OUT is complete or not there.
"""

from collections.abc import Sequence
from pathlib import Path

from ..command_line import Parser
from . import classification_data
from .errors import run_program
from .glue import OPTIONAL, SENTENCES, Task
from .prepared_folder import refuse_to_replace
from .sentence_data import split_of, write_data
from .tables import Table


def prepare(task: Task, tsv: str | Path, vocabulary: str | Path, out: str | Path) -> str:
    """Writes OUT of the files of a GLUE task in the folder ``tsv``, and returns a line that counts its examples.
    ``vocabulary``: the folder of the pretraining's data. Raises ValueError, one line."""
    files = {split: Path(tsv, name) for split, name in task.files.items()}
    missing = [path.name for split, path in files.items() if split not in OPTIONAL and not path.is_file()]
    if missing:
        raise ValueError(f"{task.name}: no {', '.join(missing)} in {tsv}: get them first")
    tables = {split: Table(path, task.without_header) for split, path in files.items() if path.is_file()}
    return write_data(out, vocabulary, task.name, task.labels, {s: split_of(task, t, s) for s, t in tables.items()})


def prepare_own(
    out: str | Path, vocabulary: str | Path | None, files: dict[str, str | Path], labels: Sequence[str] | None
) -> str:
    """Likewise. vocabulary: None for a training from scratch. labels: None if they are numbers."""
    if labels is not None and (len(labels) < 2 or len(set(labels)) < len(labels)):
        raise ValueError(f"--labels {' '.join(labels)}: give two or more, each once")
    refuse_to_replace(Path(out))
    for path in (Path(path) for path in (*files.values(), vocabulary) if path):
        if not path.exists():
            raise ValueError(f"no {path}: correct the name")
        if path.resolve().is_relative_to(Path(out).resolve()):
            raise ValueError(f"{path} is in {out}, which is written anew: give a new folder")
    tables = {split: Table(Path(path)) for split, path in files.items()}
    for table in tables.values():
        if not table.rows:
            raise ValueError(f"{table.path} has no line after the names of its columns: add examples")
    columns = SENTENCES if tables["train"].has(SENTENCES[0]) else (("sentence",),)
    if vocabulary is None:
        if labels is None:
            raise ValueError("--numbers needs --vocabulary: training from scratch on texts knows classes alone")
        words = classification_data.Task("own", tuple(labels), columns, split=False)
        parts = {split: classification_data.from_table(table, words) for split, table in tables.items()}
        return classification_data.write_arrays(words, classification_data.checked(words, parts), out)
    task = Task("own", columns, None if labels is None else tuple(labels))
    return write_data(out, vocabulary, "own", task.labels, {s: split_of(task, t, s) for s, t in tables.items()})


def main(arguments: Sequence[str]) -> None:
    parser = Parser(prog="prepare")
    parser.add_argument("own", choices=["own"])
    parser.add_argument("out", metavar="OUT", help="folder to write")
    words = parser.add_mutually_exclusive_group(required=True)
    words.add_argument("--vocabulary", metavar="FOLDER", help="the pretraining's data: dict.txt, spm.model")
    words.add_argument("--from-scratch", action="store_true", help="no pretraining: words are those of --train")
    for split in ("train", "valid", "test"):
        parser.add_argument(f"--{split}", metavar="FILE", required=split not in OPTIONAL, help="table")
    kinds = parser.add_mutually_exclusive_group(required=True)
    kinds.add_argument("--labels", metavar="NAME", nargs="+", help="all labels; f1 is that of the second")
    kinds.add_argument("--numbers", action="store_true", help="labels are numbers to be approximated")
    given = parser.parse_args(arguments)
    files = {split: getattr(given, split) for split in ("train", "valid", "test") if getattr(given, split)}
    print(prepare_own(given.out, given.vocabulary, files, given.labels))


if __name__ == "__main__":
    run_program(main)
