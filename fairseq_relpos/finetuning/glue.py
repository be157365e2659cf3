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
    "m4m": {"CoLA": "mcc", "STS-B": "spearman"},
    "glue": {"CoLA": "mcc", "STS-B": "pearson_spearman", "QQP": "accuracy_f1", "MRPC": "accuracy_f1"},
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
