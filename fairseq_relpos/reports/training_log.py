"""A reader of the log that fairseq-train writes with ``--log-format json --log-file FILE``."""

import json
import math
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

#: fairseq logs losses in bits
NATS = math.log(2)

LOG_NAME = "train.log"

#: flags that may differ between compared runs: they belong to one run or to its encoding
OF_A_RUN = {
    "arch",
    "position-encoding",
    "position-hparams",
    "position-layers",
    "left-pad-source",
    "seed",
    "save-dir",
    "log-file",
    "distributed-world-size",
    "finetune-from-model",
}


@dataclass
class Run:
    """One training run. Losses are in nats per predicted token, by number of updates."""

    name: str
    encoding: str
    seed: int
    #: --lr of a run that has come to its end by a recipe, as it was written
    learning_rate: str = ""
    #: the values of --position-hparams and --position-layers, if given
    variant: str = ""
    parameters: int | None = None
    #: the name of the loss in the log
    loss: str = "loss"
    #: the factor from a loss in the log to nats
    unit: float = NATS
    #: --max-update of the last start
    max_updates: int = 0
    train: dict[int, float] = field(default_factory=dict)
    #: split -> losses
    valid: dict[str, dict[int, float]] = field(default_factory=dict)
    #: split -> what the loss rises by when the tokens are permuted, where the criterion measures it
    order_gap: dict[str, dict[int, float]] = field(default_factory=dict)
    #: split -> losses without label smoothing, where the criterion has it
    valid_nll: dict[str, dict[int, float]] = field(default_factory=dict)
    #: target tokens, by number of updates
    tokens_per_second: dict[int, float] = field(default_factory=dict)
    #: time of the whole run, also if it was resumed; validation included
    seconds: float = 0
    #: the present speed: that of the last line
    updates_per_second: float = 0

    @property
    def updates(self) -> int:
        return max(self.train, default=0)


def first_update(by_split: dict[str, dict[int, float]], is_reached: Callable[[float], bool]) -> int | None:
    """Returns the first validation at which the mean over the splits is what is looked for, None if there is none."""
    updates = sorted(set.intersection(*map(set, by_split.values()))) if by_split else []
    return next((u for u in updates if is_reached(mean(values[u] for values in by_split.values()))), None)


def how_alike(commands: Sequence[str], differ_in: str, also: Sequence[str] = ()) -> str:
    """Returns a sentence that says in which other flags than OF_A_RUN and ``also`` the commands differ, if any."""
    runs = [flags_of(command) for command in commands]
    flags = sorted(set().union(*runs) - OF_A_RUN - {*also})
    values = {flag: sorted({run.get(flag, "not given") for run in runs}) for flag in flags}
    others = [
        f"`--{flag}` ({', '.join(v or 'given' for v in found)})" for flag, found in values.items() if len(found) > 1
    ]
    if others:
        return f"**The runs differ in more than {differ_in}**: {', '.join(others)}."
    return f"All runs differ in {differ_in} alone."


def flags_of(command: str) -> dict[str, str]:
    """Returns the value of each flag in a command, as a shell reads it. "data" is the word before --user-dir. The words
    before it belong to a launcher."""
    words = shlex.split(command)
    begin = words.index("--user-dir")
    flags = {"data": words[begin - 1]}
    name = None
    for word in words[begin:]:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            flags[name] = value
        elif name is not None:
            flags[name] = f"{flags[name]} {word}".strip()
    return flags


def read_run(path: str | Path) -> Run:
    """Reads a run. ``path``: a log file, or a folder with a train.log in it."""
    path = Path(path)
    log = path / LOG_NAME if path.is_dir() else path
    if not log.exists():
        raise ValueError(
            f"no training log {log}: give a log that fairseq-train wrote with "
            f"--log-format json --log-file, or a folder with a {LOG_NAME}"
        )
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    run = None
    for line in lines:
        settings = re.search(r"'common': .*'seed': (\d+)", line)
        if settings and line.rstrip().endswith("}"):  # the line is not cut short
            # each start writes one such line; a resumed run keeps what was read before
            run = run or Run(path.name if path.is_dir() else path.stem, "", 0)
            read_settings(run, line)
        elif run is not None:
            read_line(run, line)
    if run is None:
        raise ValueError(f"{log} is no log of fairseq-train: write one with --log-file")
    trained = log.parent / "trained"
    if trained.exists() and "--user-dir" in (command := trained.read_text(encoding="utf-8")):
        run.learning_rate = flags_of(command).get("lr", "")
    return run


def read_settings(run: Run, line: str) -> None:
    """Takes from the line with fairseq-train's settings what a report needs."""
    run.seed = int(_needed(r"'seed': (\d+)", line))
    if re.search(r"'criterion': {'_name': '(sequence_labels|sentence_scores)'", line):
        run.unit = 1.0  # nats already, or a squared error
    if re.search(r"'criterion': {'_name': 'electra'", line):
        run.loss = "disc_loss"  # the whole one is a sum of two that do not compare
    run.max_updates = int(_needed(r"'max_update': (\d+)", line))
    encoding = re.search(r"\bposition_encoding='([^']*)'", line)
    # stock architectures have none of the plugin's flags
    run.encoding = encoding[1] if encoding else _needed(r"\barch='(\w+)'", line)
    hparams = re.search(r"\bposition_hparams='([^']*)'", line)
    layers = re.search(r"\bposition_layers='([^']*)'", line)
    given = [hparams[1]] if hparams and hparams[1] else []
    if layers and layers[1] != "all":
        given.append(f"layers {layers[1]}")
    run.variant = " ".join(given)


def _needed(pattern, line):
    return re.search(pattern, line)[1]


def tell_variants_apart(runs: list[Run]) -> None:
    """Adds the variant to the name of the encoding, if the runs have several variants of it.

    Runs with other hyperparameters or layers must not count as seeds of the same encoding. Two runs of one variant
    with the same seed are a ValueError.
    """
    variants: dict[str, set[str]] = {}
    for run in runs:
        variants.setdefault(run.encoding, set()).add(run.variant)
    for run in runs:
        if len(variants[run.encoding]) > 1:
            run.encoding += f" ({run.variant or 'defaults'})"
    seen: dict[tuple[str, int], Run] = {}
    for run in runs:
        other = seen.setdefault((run.encoding, run.seed), run)
        if other is not run:
            raise ValueError(
                f"{other.name} and {run.name} are both {run.encoding} with seed {run.seed}: a mean over seeds "
                "takes one run of each"
            )


def read_line(run: Run, line: str) -> None:
    """Adds what one line of the log says to the run."""
    parameters = re.match(r".*num. shared model params: ([\d,]+)", line)
    if parameters:
        run.parameters = int(parameters[1].replace(",", ""))
    start = line.find("{")
    if start < 0:
        return
    try:
        entry = json.loads(line[start:])
    except ValueError:
        return  # the last line of a run that is being written, or not one of fairseq's
    if "num_updates" in entry and "loss" in entry:
        run.train[int(entry["num_updates"])] = float(entry[run.loss]) * run.unit
        run.seconds = max(run.seconds, float(entry.get("wall", 0)))
        run.updates_per_second = float(entry.get("ups", 0))
        if "wps" in entry:
            run.tokens_per_second[int(entry["num_updates"])] = float(entry["wps"])
    for key, value in entry.items():
        split = re.fullmatch(r"(\w+)_num_updates", key)
        if split and split[1] != "train":
            for name, values in ((run.loss, run.valid), ("nll_loss", run.valid_nll), ("order_gap", run.order_gap)):
                if f"{split[1]}_{name}" in entry:
                    values.setdefault(split[1], {})[int(value)] = float(entry[f"{split[1]}_{name}"]) * run.unit
