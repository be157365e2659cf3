"""The files of a task -> train.npz, valid.npz and test.npz, for the task ``sequence_labels``, where a symbol is a word;
with vectors of GloVe also embeddings.npy. Or, in the vocabulary of a pretraining, data for ``sentence_pairs``. A folder
is complete or not there.
"""

import contextlib
import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..atomic_files import UNPACKING_ERRORS, forms_of, opened
from . import glue
from .prepared_folder import prepared_folder, refuse_to_replace
from .sentence_data import Split, write_data
from .tables import Table, decoded

UNKNOWN, FIRST, BETWEEN = "[UNK]", "[CLS]", "[SEP]"  # no word is one of them: words are in lower case
#: of fairseq's dictionary; as words they are unknown
OF_FAIRSEQ = {"<s>", "</s>", "<pad>", "<unk>"}
FOLDS = 10
#: of the sentences, by a digest, where a task has no validation part of its own
HELD_OUT = 10
LABEL = ("label", "gold_label", "is_duplicate")
SENTENCE = (("sentence", "text", "review"),)
NLI = (("premise", "sentence1"), ("hypothesis", "sentence2"))


@dataclass(frozen=True)
class Task:
    """A data set. A line of an original file is a label, a blank and a sentence."""

    name: str
    labels: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...] = SENTENCE
    #: part -> the original file; "all" is divided into folds
    originals: tuple[tuple[str, str], ...] = ()
    encoding: str = "utf-8"
    #: whether blanks separate the words
    split: bool = True
    #: names that a validation file may have
    valid: tuple[str, ...] = ("valid", "dev")
    #: what stands for the label of an example whose annotators did not agree; it is left out, as usual
    no_label: str | None = None

    @property
    def in_folds(self) -> bool:
        return self.originals[:1] != () and self.originals[0][0] == "all"


def _folds(name: str, file: str) -> Task:
    return Task(name, ("0", "1"), originals=(("all", file),), encoding="latin-1")


def _sst(name: str, kind: str, labels: int) -> Task:
    parts = tuple((part, f"stsa.{kind}.{part}") for part in ("train", "dev", "test"))
    return Task(name, tuple(map(str, range(labels))), originals=parts)


def _labels(name: str) -> tuple[str, ...]:
    """Returns the labels of a task of GLUE: a label has one number in both recipes."""
    return glue.task_of(name).labels or ()


TASKS = {
    task.name: task
    for task in (
        _folds("MR", "rt-polarity.all"),
        _folds("SUBJ", "subj.all"),
        _folds("CR", "custrev.all"),
        _folds("MPQA", "mpqa.all"),
        _sst("SST-2", "binary", 2),
        _sst("SST-5", "fine", 5),
        Task(
            "TREC",
            tuple("012345"),  # description, entity, abbreviation, person, location, number
            originals=(("train", "TREC.train.all"), ("test", "TREC.test.all")),
            encoding="latin-1",
        ),
        Task("IMDB", ("0", "1"), split=False),
        Task("SNLI", _labels("MNLI"), NLI, split=False, no_label="-"),
        Task("QNLI", _labels("QNLI"), glue.task_of("QNLI").columns, split=False),
        Task("QQP", _labels("QQP"), glue.task_of("QQP").columns, split=False),
        Task("MNLI", _labels("MNLI"), NLI, split=False, valid=("dev_matched", "valid", "dev")),
    )
}


@dataclass
class Example:
    """``texts`` are in words, ``sentences`` as they were read."""

    label: int
    texts: list[list[str]]
    sentences: Sequence[str]
    fold: int | None = None


def task_of(name: str) -> Task:
    if name not in TASKS:
        raise ValueError(f"no task {name}: give one of {' '.join(TASKS)}")
    return TASKS[name]


def find(folder: Path, task: Task, part: str) -> tuple[Path, bool] | None:
    """The file of a part, and whether it has a header with the names of its columns."""
    names = task.valid if part == "valid" else (part,)
    tables = [place for name in names for place in (f"{task.name}/{name}.tsv", f"{task.name}.{name}.tsv")]
    if part == "all":
        tables.append(f"{task.name}.tsv")
    plain = [file for name, file in task.originals if name in names]
    for name in tables + plain:
        for path in forms_of(folder / name):
            return Path(path), name in tables
    return None


def need(folder: Path, task: Task, part: str) -> list[Example]:
    found = find(folder, task, part)
    if found is None:
        originals = [f"or {file}" for name, file in task.originals if name == part]
        raise ValueError(
            f"no part {part} of {task.name} in {folder}: give {task.name}/{part}.tsv there, with the columns label and "
            f"{' and '.join(names[0] for names in task.texts)} {' '.join(originals)}".rstrip()
        )
    examples = read(*found, task)
    if not examples:
        raise ValueError(f"{found[0]} is empty: get it again")
    return examples


def read(path: Path, has_header: bool, task: Task) -> list[Example]:
    """The examples of a file, UTF-8 with tabs and without quoting, or an original."""
    try:
        with opened(path) as file:
            data = file.read()
    except UNPACKING_ERRORS as error:
        raise ValueError(f"{path} cannot be unpacked ({error}): get it again") from None
    if has_header:
        return from_table(Table(path, data=data), task)
    rows = [line.rstrip("\r") for line in decoded(path, data, task.encoding).split("\n")]
    if rows[-1] == "":
        rows.pop()
    cells = [line.partition(" ")[::2] for line in rows]
    return [example(path, n, label, [words], task) for n, (label, words) in enumerate(cells, 1)]


def from_table(table: Table, task: Task) -> list[Example]:
    labels, texts = table.column(LABEL), [table.column(names) for names in task.texts]
    folds = table.column(["fold"]) if "fold" in table.header else [None] * len(labels)
    found = []
    for number, (label, fold, *sentences) in enumerate(zip(labels, folds, *texts), table.first_line):
        if label == task.no_label:
            continue
        one = example(table.path, number, label, sentences, task)
        if fold is not None:
            if not fold.isdecimal():
                raise ValueError(f"{table.path}, line {number}: the fold {fold!r} is no number 0, 1, ...")
            one.fold = int(fold)
        found.append(one)
    if len(found) < len(labels):
        print(f"{table.path}: {len(labels) - len(found):,} examples without a label are left out")
    return found


def example(path: Path, number: int, label: str, texts: Sequence[str], task: Task) -> Example:
    if label not in task.labels:
        raise ValueError(f"{path}, line {number}: the label {label!r} is none of {' '.join(task.labels)}")
    return Example(task.labels.index(label), [words_of(text, task.split) for text in texts], texts)


def words_of(text: str, split: bool) -> list[str]:
    """Words in lower case: as the blanks have it, or numbers, words and single signs."""
    return text.lower().split() if split else re.findall(r"\w+|[^\w\s]", text.lower())


def digest(one: Example) -> int:
    """The same number for the same texts, on every machine."""
    return int(hashlib.sha1("\t".join(map(" ".join, one.texts)).encode()).hexdigest()[:12], 16)


def in_folds(folder: Path, task: Task) -> list[Example]:
    """With the folds that the file says, or with ten by a digest: equal sentences are in one fold."""
    examples = need(folder, task, "all")
    for one in examples:
        one.fold = digest(one) % FOLDS if one.fold is None else one.fold
    return examples


def folds_of(examples: Iterable[Example]) -> int:
    return 1 + max(one.fold or 0 for one in examples)


def parts_of(folder: Path, task: Task, fold: int | None) -> dict[str, list[Example]]:
    """train, valid and, where the data have it, test."""
    if fold is not None:
        return checked(task, divided(in_folds(folder, task), fold))
    parts = {"train": need(folder, task, "train")}
    if find(folder, task, "valid"):
        parts["valid"] = need(folder, task, "valid")
    else:
        held_out = [digest(one) % HELD_OUT == 0 for one in parts["train"]]
        parts["valid"] = [one for one, out in zip(parts["train"], held_out) if out]
        parts["train"] = [one for one, out in zip(parts["train"], held_out) if not out]
    if find(folder, task, "test"):
        parts["test"] = need(folder, task, "test")
    return checked(task, parts)


def divided(examples: Sequence[Example], fold: int) -> dict[str, list[Example]]:
    """This fold is for tests, the next one for validation."""
    validation = (fold + 1) % folds_of(examples)
    return {
        "train": [one for one in examples if one.fold not in (fold, validation)],
        "valid": [one for one in examples if one.fold == validation],
        "test": [one for one in examples if one.fold == fold],
    }


def checked(task: Task, parts: dict[str, list[Example]]) -> dict[str, list[Example]]:
    """Raises ValueError for a part without examples, and for a label that training has not seen."""
    for part, examples in parts.items():
        if not examples:
            raise ValueError(f"{task.name} has no examples in its part {part}: get its file again")
    unseen = {one.label for part in parts.values() for one in part} - {one.label for one in parts["train"]}
    if unseen:
        raise ValueError(
            f"{task.name}: training has no example of the label {task.labels[min(unseen)]}: get its file again"
        )
    return parts


def cut(texts: Sequence[list[str]], room: int) -> list[list[str]]:
    """Cuts the texts to ``room`` words in total: the longest gives up its end first."""
    lengths = [len(text) for text in texts]
    while sum(lengths) > room:
        lengths[lengths.index(max(lengths))] -= 1
    return [text[:length] for text, length in zip(texts, lengths)]


def sequence(texts: Sequence[list[str]], longest: int) -> list[str]:
    """One text as it is; a pair with [CLS] before it and [SEP] within it. An empty one is an unknown word."""
    if len(texts) == 1:
        return cut(texts, longest)[0] or [UNKNOWN]
    first, second = cut(texts, longest - 2)
    return [FIRST, *first, BETWEEN, *second]


def vocabulary(
    train: Iterable[Sequence[str]], others: Iterable[Sequence[str]], least: int, known: set[str]
) -> list[str]:
    """The words of training that stand there so often, the most frequent ones first; then words that have a vector and
    stand in the other parts alone: the test part must not make a word of training known."""
    count = Counter(word for words in train for word in words)
    special = [UNKNOWN, FIRST, BETWEEN]
    no_words = {*special, *OF_FAIRSEQ}
    found = [word for word, times in sorted(count.items(), key=lambda item: (-item[1], item[0])) if times >= least]
    others_known = {word for words in others for word in words if word in known} - set(count)
    return special + [word for word in [*found, *sorted(others_known)] if word not in no_words]


def read_glove(path: Path, wanted: set[str], dimension: int) -> dict[str, np.ndarray]:
    """The vectors of these words in a file of lines: a word and its numbers."""
    found = {}
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                word, *numbers = line.rstrip("\n").rsplit(" ", dimension)
                if len(numbers) != dimension or (number == 1 and " " in word):
                    raise ValueError(f"{path}, line {number}: not {dimension} numbers, the EMBED_DIM of the settings")
                if word in wanted:
                    found[word] = vector_of(numbers, f"{path}, line {number}")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no UTF-8 ({error.reason}): give GloVe's text file, unpacked") from None
    if not found:
        raise ValueError(f"{path} has a vector for no word of the data: give GloVe's text file, in lower case")
    return found


def vector_of(numbers: Sequence[str], where: str) -> np.ndarray:
    try:
        return np.array(numbers, dtype=np.float32)
    except ValueError as error:
        raise ValueError(f"{where}: {error}: give GloVe's text file") from None


def arrays(examples: Sequence[Example], number: dict[str, int], longest: int) -> dict[str, Any]:
    sequences = [sequence(one.texts, longest) for one in examples]
    return {
        "inputs": np.array([number.get(word, 0) for words in sequences for word in words]),
        "lengths": np.array([len(words) for words in sequences]),
        "labels": np.array([one.label for one in examples]),
        "symbols": np.array(list(number)),
    }


def prepare(task: Task, texts: str | Path, out: str | Path, fold: int | None = None, **settings: Any) -> str:
    """Writes OUT. settings: those of ``write_arrays``. Returns what is in it, a line. Raises ValueError or OSError, one
    line."""
    return write_arrays(task, parts_of(Path(texts), task, fold), out, fold, **settings)


def write_arrays(
    task: Task,
    parts: dict[str, list[Example]],
    out: str | Path,
    fold: int | None = None,
    longest: int = 256,
    least: int = 1,
    glove: str | Path | None = None,
    dimension: int = 0,
) -> str:
    """Writes OUT, complete or not at all. Returns what is in it, a line. longest: 3 or more."""
    words = {part: [sequence(one.texts, longest) for one in examples] for part, examples in parts.items()}
    every = {word for sequences in words.values() for one in sequences for word in one}
    vectors = read_glove(Path(glove), every, dimension) if glove else {}
    others = [one for part in words if part != "train" for one in words[part]]
    symbols = vocabulary(words["train"], others, least, set(vectors))
    number = {word: index for index, word in enumerate(symbols)}
    counts = {part: len(examples) for part, examples in parts.items()}
    facts = {
        "task": task.name,
        "fold": fold,
        "labels": task.labels,
        "settings": f"MAX_LENGTH={longest} MIN_COUNT={least}",
        "examples": counts,
        "words": len(symbols),
        "vectors": len(vectors),
    }
    with prepared_folder(Path(out)) as folder:
        for part, examples in parts.items():
            np.savez(folder / f"{part}.npz", **arrays(examples, number, longest))
        if glove:
            table = np.full((len(symbols), dimension), np.nan, dtype=np.float32)
            for word, vector in vectors.items():
                if word in number:
                    table[number[word]] = vector
            np.save(folder / "embeddings.npy", table)
        (folder / "facts.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    sizes = ", ".join(f"{count:,} {part}" for part, count in counts.items())
    return f"{task.name}: {sizes}; {len(symbols):,} words{f', {len(vectors):,} with a vector' if glove else ''}"


def prepare_finetuning(
    task: Task, texts: str | Path, out: str | Path, vocabulary: str | Path, fold: int | None = None
) -> str:
    """Writes OUT for ``sentence_pairs``: sentences as they are in the files, in the vocabulary of a pretraining."""
    splits = {
        part: Split(list(zip(*(one.sentences for one in examples))), [one.label for one in examples])
        for part, examples in parts_of(Path(texts), task, fold).items()
    }
    return write_data(out, vocabulary, task.name, task.labels, splits)


def prepare_all(name: str, texts: str | Path, out: str | Path, **settings: Any) -> None:
    """Writes OUT for a task; for one in folds OUT-fold0, OUT-fold1, ... settings: those of ``write_arrays``, or
    ``vocabulary``, the folder of a pretraining, for data to fine-tune on."""
    task = task_of(name)
    make: Callable[..., str] = prepare_finetuning if "vocabulary" in settings else prepare
    if not task.in_folds:
        print(make(task, texts, out, **settings))
        return
    examples = in_folds(Path(texts), task)
    folds = range(folds_of(examples))
    for fold in folds:  # before the first is written
        checked(task, divided(examples, fold))
    for fold in folds:
        print(f"fold {fold} of {make(task, texts, f'{out}-fold{fold}', fold=fold, **settings)}")
    for path in Path(out).parent.iterdir():
        match = re.fullmatch(rf"{re.escape(Path(out).name)}-fold(\d+)", path.name)
        if match and int(match[1]) not in folds and not path.is_symlink():  # of a file with more folds
            with contextlib.suppress(ValueError):
                refuse_to_replace(path)
                shutil.rmtree(path)
                print(f"{path} is removed: the file has {len(folds)} folds")
