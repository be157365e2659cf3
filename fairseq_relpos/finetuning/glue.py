"""The nine tasks of GLUE: their files, columns and labels, and what the papers report of them.

python glue.py TASK CONVENTION prints the metric. It needs no other part of the package.
"""

import sys
from dataclasses import dataclass, field

#: files in the folder of a task, by split; the last kind is of the GLUE server
FILES = {"train": "train.tsv", "valid": "dev.tsv", "test": "test.tsv"}
MNLI_FILES = {
    "train": "train.tsv",
    "valid": "dev_matched.tsv",
    "valid1": "dev_mismatched.tsv",
    "test": "test_matched.tsv",
    "test1": "test_mismatched.tsv",
    "test2": "diagnostic.tsv",
}
#: no score needs them
OPTIONAL = ("test", "test1", "test2")

SENTENCES = (("sentence1",), ("sentence2",))
QUESTIONS = (("question1",), ("question2",))


@dataclass(frozen=True)
class Task:
    """``columns``: for each sentence the names that its column may have. ``labels``: None where they are numbers."""

    name: str
    columns: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...] | None = ("0", "1")
    label_columns: tuple[str, ...] = ("label",)
    files: dict[str, str] = field(default_factory=lambda: FILES)
    #: names of the columns where a file has no line for them
    without_header: tuple[str, ...] = ()
    #: file for the GLUE server, by split
    server: dict[str, str] = field(default_factory=dict)
    #: the largest value of a number; a model is trained on values from 0 to 1
    largest: float = 1.0

    @property
    def regression(self) -> bool:
        return self.labels is None


ENTAILMENT = ("entailment", "not_entailment")
TASKS = {
    task.name: task
    for task in (
        Task(
            "CoLA",
            (("sentence",),),
            without_header=("source", "label", "mark", "sentence"),
            server={"test": "CoLA.tsv"},
        ),
        Task("SST-2", (("sentence",),), server={"test": "SST-2.tsv"}),
        Task(
            "MRPC",
            (("#1 String", "sentence1"), ("#2 String", "sentence2")),
            label_columns=("Quality", "label"),
            server={"test": "MRPC.tsv"},
        ),
        Task("STS-B", SENTENCES, None, ("score",), server={"test": "STS-B.tsv"}, largest=5.0),
        Task("QQP", QUESTIONS, label_columns=("is_duplicate", "label"), server={"test": "QQP.tsv"}),
        Task(
            "MNLI",
            SENTENCES,
            ("contradiction", "entailment", "neutral"),
            ("gold_label",),
            MNLI_FILES,
            server={"test": "MNLI-m.tsv", "test1": "MNLI-mm.tsv", "test2": "AX.tsv"},
        ),
        Task("QNLI", (("question",), ("sentence",)), ENTAILMENT, server={"test": "QNLI.tsv"}),
        Task("RTE", SENTENCES, ENTAILMENT, server={"test": "RTE.tsv"}),
        Task("WNLI", SENTENCES, server={"test": "WNLI.tsv"}),
    )
}

#: what each paper reports where it is not the accuracy; "glue" is the benchmark's own, the mean of two metrics
CONVENTIONS = {
    "tupe": {"CoLA": "mcc", "STS-B": "pearson"},
    "huang": {"CoLA": "mcc", "STS-B": "pearson", "QQP": "f1", "MRPC": "f1"},
    "m4m": {"CoLA": "mcc", "STS-B": "spearman", "QQP": "f1", "MRPC": "f1"},
    "glue": {"CoLA": "mcc", "STS-B": "pearson_spearman", "QQP": "accuracy_f1", "MRPC": "accuracy_f1"},
}


_TUPE = ("MNLI", "QNLI", "QQP", "SST-2", "CoLA", "MRPC", "RTE", "STS-B")
_M4M = ("MNLI", "SST-2")
#: what the papers' own models reach, by convention, encoding and task; of MNLI matched / mismatched
PAPERS = {
    "tupe": {  # Table 1
        "learned": dict(zip(_TUPE, "84.93/84.91 91.34 91.04 92.88 55.19 88.29 68.61 89.43".split())),
        "bert_r": dict(zip(_TUPE, "85.81/85.84 92.16 91.12 92.90 55.43 89.26 71.46 88.94".split())),
        "tupe_a": dict(zip(_TUPE, "86.05/85.99 91.92 91.16 93.19 63.09 88.37 71.61 88.88".split())),
        "tupe_r": dict(zip(_TUPE, "86.21/86.19 92.17 91.30 93.26 63.56 89.89 73.56 89.23".split())),
    },
    "huang": {
        "learned": {"MNLI": "83.57/83.65", "QQP": "87.64", "SST-2": "90.48", "MRPC": "88.40"},
        "m4": {"MNLI": "84.45/84.51", "QQP": "87.41", "SST-2": "91.74", "MRPC": "88.88"},
    },
    "m4m": {  # Table 1
        "learned": dict(zip(_M4M, ("81.25", "90.25"))),
        "shaw": dict(zip(_M4M, ("82.88", "91.28"))),
        "m2": dict(zip(_M4M, ("82.41", "90.36"))),
        "m4": dict(zip(_M4M, ("83.05", "91.05"))),
        "deberta": dict(zip(_M4M, ("83.67", "90.71"))),
        "m4m": dict(zip(_M4M, ("83.58", "91.62"))),
        "m4_reset": dict(zip(_M4M, ("82.30", "91.39"))),
        "abs_m4m": dict(zip(_M4M, ("83.19", "91.16"))),
    },
}


def task_of(name: str) -> Task:
    if name not in TASKS:
        raise ValueError(f"no task {name!r}: give {', '.join(TASKS)}")
    return TASKS[name]


def metric_of(task: str, convention: str) -> str:
    """The metric of this task that a paper reports, and by which the best checkpoint is chosen."""
    if convention not in CONVENTIONS:
        raise ValueError(f"CONVENTION={convention}: give {', '.join(CONVENTIONS)}")
    return CONVENTIONS[convention].get(task_of(task).name, "accuracy")


if __name__ == "__main__":
    try:
        print(metric_of(*sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"run.sh: error: {error}")
