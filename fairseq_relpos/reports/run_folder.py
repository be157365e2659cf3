"""The folder of a training, of a recipe or not: its log, data, machine and evaluations.

A recipe writes some of these files beside the log:

    command, trained                    the training that was begun last, and the one that has ended
    conditions, dictionary              digests of the data
    machine.txt, output.txt             where it ran, and what it printed
    order_gap.json, extrapolation.json  of the commands of these names
    scores.json, results.json, result.json   of the recipes
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from . import extrapolation_plot
from .learning_rates import why_diverged
from .training_log import END, LOG_NAME, SETTINGS, Run, read_run

#: nats that a loss must rise by when the tokens are permuted, if the model uses their order
USED = 0.05
#: scores of translations that are compared
COMPARED_SCORES = ("BLEU", "chrF")
#: scores of fine-tuning that are compared, where a result does not name the one that counts
ANSWERS = ("accuracy", "exact_match", "exact", "f1")
#: keys of a results.json that are not splits
NO_SPLIT = ("metrics", "splits", "majority")
#: tasks that differ in what a model remembers alone
SAME_TASK = {"lm_streams": "language_modeling"}
#: must be the same in runs that are compared
VOCABULARY, TEXT, EVALUATED = "vocabularies", "data", "evaluations"


@dataclass
class Figure:
    """A figure by which runs are compared."""

    value: float
    digits: int = 3
    #: the figure is one of several in a row, as the losses at each length: it needs no picture of its own
    in_a_row: bool = False


@dataclass
class RunFolder:
    """A run, and all that is known of it."""

    path: Path
    run: Run
    #: what an evaluation says of the run itself
    facts: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)
    #: split -> what the loss rises by when the tokens are permuted
    gaps: dict[str, float] = field(default_factory=dict)
    #: (VOCABULARY, TEXT or EVALUATED, what it is) -> a digest of it, or what else tells it from others
    digests: dict[tuple[str, str], str] = field(default_factory=dict)
    #: what a reader of the figures has to know
    notes: list[str] = field(default_factory=list)
    #: the result of `extrapolation`
    reach: dict[str, Any] | None = None

    @property
    def kind(self) -> str:
        """The task's name in fairseq."""
        task = self.run.settings.get("task", "task not known")
        return SAME_TASK.get(task, task)

    @property
    def task(self) -> str:
        """The task's name in its recipe; empty where no evaluation has it."""
        if (self.path / "result.json").exists():  # of an artificial task, which is called like its data
            return self.data_name
        return " ".join(str(self.facts[name]) for name in ("recipe", "task") if self.facts.get(name))

    @property
    def data(self) -> str:
        """The folder with the data."""
        return self.run.settings.get("data", "")

    @property
    def data_name(self) -> str:
        """The name of this folder. A seed or a fold may have data of its own."""
        return re.sub(r"-(seed|fold)\d+$", "", Path(self.data).name)

    @property
    def updates(self) -> int:
        return max([self.run.updates, *(u for of_split in self.run.valid.values() for u in of_split)])

    @cached_property
    def has_diverged(self) -> bool:
        if not all(math.isfinite(figure.value) for figure in self.figures.values()):
            return True
        is_scored = bool(self.facts) or (self.path / "result.json").exists()
        return bool(why_diverged(self.run, is_scored))

    @property
    def uses_positions(self) -> bool | None:
        """Whether the model uses the order of the tokens; None where nobody has measured it."""
        known = [gap for gap in self.gaps.values() if math.isfinite(gap)]
        return max(known) >= USED if known else None

    @property
    def machine(self) -> str:
        return self.kept("machine.txt").strip().replace("\n", "; then ")

    @property
    def gigabytes(self) -> float | None:
        """Most memory of a GPU that it has used; None where the log does not say."""
        said = re.findall(r"total memory = ([\d.]+) GB", self.kept("output.txt"))
        total = float(said[-1]) if said else self.run.gb_total  # of the last start
        return None if total is None or math.isinf(self.run.gb_free) else total - self.run.gb_free

    def kept(self, name: str) -> str:
        path = self.path / name
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def read(path: str | Path) -> RunFolder:
    """Reads a run. ``path``: its folder, or its log. Raises ValueError if there is none."""
    path = Path(path)
    log = find_log(path)
    try:
        run = read_run(log)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    run.name = str(path)
    folder = RunFolder(path if path.is_dir() else path.parent, run)
    if run.vocabularies:
        folder.digests[VOCABULARY, "words in the embeddings"] = " and ".join(f"{n:,}" for n in sorted(run.vocabularies))
    read_conditions(folder)
    read_evaluations(folder)
    for split, losses in run.losses.items():
        name = f"loss on {split}{' (nats)' if run.in_nats else ''}"
        if name not in folder.figures:
            folder.figures[f"last validation {name}"] = Figure(losses[max(losses)])
    for split, gaps in run.order_gap.items():
        folder.gaps.setdefault(split, gaps[max(gaps)])
    return folder


def find_log(path: Path) -> Path:
    """Returns the log in a folder: train.log, or the only file that is one."""
    if not path.exists():
        raise ValueError(f"no run {path}: give a folder with the log of fairseq-train, or the log")
    if not path.is_dir():
        return path
    if (path / LOG_NAME).exists():
        return path / LOG_NAME
    logs = sorted(file for file in path.iterdir() if file.suffix in ("", ".log", ".txt", ".out") and is_log(file))
    if len(logs) == 1:
        return logs[0]
    if not logs and any(path.glob(f"*/{LOG_NAME}")):
        raise ValueError(f"{path} is a folder of runs: give the runs, {path}/*")
    found = ", ".join(log.name for log in logs) or "none"
    raise ValueError(
        f"{path} needs one log, and has {found}: give the log that fairseq-train wrote with --log-file, or its folder"
    )


def is_log(path: Path) -> bool:
    if not path.is_file():
        return False
    with open(path, encoding="utf-8", errors="replace") as file:
        return any(SETTINGS.search(line) for line in file)


def refuse_unfinished(folders: Iterable[RunFolder]) -> None:
    found = []
    for folder in folders:
        run, begun, trained = folder.run, folder.kept("command"), folder.kept("trained")
        if begun and begun != trained or not (run.ended or trained):
            of_all = f" of {run.max_updates:,}" if run.max_updates else ""
            lacks = "" if run.ended else f", no line '{END}' in {run.log.name}"
            found.append(f"{folder.path} has not come to its end ({folder.updates:,}{of_all} updates{lacks})")
    if found:
        raise ValueError(f"{'; '.join(found)}: wait if it still runs, else resume or omit it")


def read_conditions(folder: RunFolder) -> None:
    for line in folder.kept("conditions").splitlines():
        name, _, value = line.partition(" ")
        if name in ("dictionary", "text", "data"):
            folder.digests[VOCABULARY if name == "dictionary" else TEXT, "digest"] = value
        elif name == "start":
            folder.run.settings["start"] = value
    if dictionary := folder.kept("dictionary").strip():
        folder.digests.setdefault((VOCABULARY, "digest"), dictionary)


def read_evaluations(folder: RunFolder) -> None:
    """Reads those files that are there. One that is older than the last checkpoint is about other weights."""
    checkpoint = folder.path / "checkpoint_last.pt"
    for name, read_file in READERS.items():
        path = folder.path / name
        if not path.is_file():
            continue
        if checkpoint.exists() and path.stat().st_mtime < checkpoint.stat().st_mtime:
            folder.notes.append(f"{path} is older than the checkpoint, and left out: evaluate the run again")
            continue
        try:
            folder.figures.update(read_file(folder, json.loads(path.read_text(encoding="utf-8"))))
        except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
            raise ValueError(f"{path} cannot be read ({error!r}): remove it, and evaluate the run again") from None


def order_gap(folder: RunFolder, found: Any) -> Iterator[tuple[str, Figure]]:
    for gap in found:
        folder.gaps[gap["split"]] = gap["permuted"] - gap["loss"]
        folder.digests[EVALUATED, f"masked text of {gap['split']}"] = gap["digest"]
        if "checkpoint" in gap:
            folder.digests[EVALUATED, f"checkpoint on {gap['split']}"] = Path(gap["checkpoint"]).name
        yield f"loss on {gap['split']} (nats)", Figure(gap["loss"])


def scores(folder: RunFolder, found: Any) -> Iterator[tuple[str, Figure]]:
    if isinstance(found, list):
        return question_figures(folder, found)
    if "counts" in found:
        return language_model_figures(folder, found)
    return translation_figures(folder, found)


def question_figures(folder: RunFolder, found: Any) -> Iterator[tuple[str, Figure]]:
    for one in found:
        folder.digests[EVALUATED, f"way to compute {one['name']}"] = one["signature"] or one["meaning"]
        yield f"{one['name']} on test", Figure(one["value"], 2)


def language_model_figures(folder: RunFolder, found: Any) -> Iterator[tuple[str, Figure]]:
    folder.digests[TEXT, "numbers of lines and words"] = json.dumps(found["counts"], sort_keys=True)
    tokens = found["counts"]["test"]["tokens"]
    for one in found["scores"]:
        memory = f"a memory of {one['memory']}" if one["memory"] else "no memory"
        clamp = f", clamp {one['clamp']}" if one["clamp"] is not None else ""
        if one.get("nats") is not None:
            name = f"loss on test (nats a token), segments of {one['tokens']}, {memory}{clamp}"
            yield name, Figure(one["nats"] / tokens)


def translation_figures(folder: RunFolder, found: Any) -> Iterator[tuple[str, Figure]]:
    for split, of_split in found.items():
        for one in of_split:
            if one["name"] in COMPARED_SCORES:
                folder.digests[EVALUATED, f"way to compute {one['name']}"] = one["signature"]
                yield f"{one['name']} on {split}", Figure(one["value"], 1)


def extrapolation(folder: RunFolder, found: Any) -> Iterator[tuple[str, Figure]]:
    folder.reach = found
    folder.digests[EVALUATED, f"text of {found['split']}"] = found["digest"]
    for one in found["measurements"]:
        if one["loss"] is not None:
            context = extrapolation_plot.context(one).removeprefix("block")
            changed = f", {found['changed']}" if found.get("changed") else ""
            name = f"loss on {found['split']} (nats a token), blocks of {one['length']}{context}{changed}"
            yield name, Figure(one["loss"], in_a_row=True)


def results(folder: RunFolder, found: Any) -> Iterator[tuple[str, Figure]]:
    if "metrics" not in found:  # of a report
        return
    folder.facts = found
    names = [found["metric"]] if found.get("metric") else [name for name in ANSWERS if name in found["metrics"]]
    for split, values in splits_of(found).items():
        for name in names or [next(iter(found["metrics"]))]:
            if isinstance(values.get(name), (int, float)):
                value = float(values[name])
                yield f"{name} on {split}", Figure(value, 4 if abs(value) <= 1 else 2)


def splits_of(facts: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Returns split -> figure -> value of a results.json, the split that was scored first at the beginning."""
    others = {name: of_split for name, of_split in facts.items() if isinstance(of_split, dict) and name not in NO_SPLIT}
    return {facts.get("split", "valid"): facts["metrics"], **facts.get("splits", {}), **others}


def result(folder: RunFolder, found: Any) -> Iterator[tuple[str, Figure]]:
    yield "accuracy on test", Figure(found["test"], 4)


READERS = {
    "order_gap.json": order_gap,
    "scores.json": scores,
    "extrapolation.json": extrapolation,
    "results.json": results,
    "result.json": result,
}


def digest_of(data: str) -> str | None:
    """Returns a digest of the words and of the lengths of all sentences in a folder of fairseq-preprocess; None where
    there is none."""
    paths = [path for part in data.split(":") for path in sorted(Path(part).glob("**/*"))]
    files = [path for path in paths if re.fullmatch(r".*\.idx|dict.*\.txt", path.name) and path.is_file()]
    if not files:
        return None
    found = hashlib.sha256()
    for file in files:
        found.update(f"{file.name} {file.stat().st_size}\n".encode())
        found.update(file.read_bytes())
    return found.hexdigest()
