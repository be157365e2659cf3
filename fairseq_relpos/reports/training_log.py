"""A reader of the log that fairseq-train writes with ``--log-file FILE`` or prints; ``--log-format json`` is best."""

import ast
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

from .run_settings import HOW_COMPUTED

#: fairseq logs losses in bits
NATS = math.log(2)
#: criterions whose loss is in nats or a squared error, not in fairseq's bits
IN_OWN_UNITS = ("sequence_labels", "sentence_scores")

LOG_NAME = "train.log"
#: what the line with the settings has, and the line under a training that has come to its end
SETTINGS = re.compile(r"'common': .*'seed': \d+")
END = "done training in"

#: flags that make a variant of an encoding, beside --position-hparams -> their names there
VARIANTS = {"position-layers": "layers", "attention-window": "window", "randomized-positions": "randomized"}
#: groups of fairseq's settings that are about neither the model nor its training, except some of HOW_COMPUTED
OTHER_GROUPS = """
common common_eval distributed_training bmuf generation eval_lm interactive scoring bpe tokenizer
""".split()


@dataclass
class Run:
    """One training run, as its log tells it. Losses are in nats per predicted token, by number of updates.

    A run may have several starts: a training that was stopped and resumed.
    """

    name: str
    encoding: str
    seed: int
    log: Path = Path()

    # --- the model and its training ---
    #: the values of --position-hparams, --position-layers, --attention-window and --randomized-positions, if given
    variant: str = ""
    parameters: int | None = None
    #: words in the tables of token embeddings
    vocabularies: set[int] = field(default_factory=set)
    #: the settings of the last start, by the names of their flags; see ``settings_of``
    settings: dict[str, str] = field(default_factory=dict)
    #: those of earlier starts from which the last one resumed
    earlier_settings: list[dict[str, str]] = field(default_factory=list)
    #: whether the last start has come to its end
    ended: bool = False

    # --- losses ---
    #: False for criterions of the plugin that can have squared errors
    in_nats: bool = True
    #: whether it is that of a sentence, not of a token
    of_sentences: bool = False
    train: dict[int, float] = field(default_factory=dict)
    #: all that the log says of the loss in training, means over an epoch too, in this order
    training_losses: list[float] = field(default_factory=list)
    #: split -> losses
    valid: dict[str, dict[int, float]] = field(default_factory=dict)
    #: split -> losses without label smoothing, where the criterion has it
    valid_nll: dict[str, dict[int, float]] = field(default_factory=dict)
    #: split -> what the loss rises by when the tokens are permuted, where the criterion measures it
    order_gap: dict[str, dict[int, float]] = field(default_factory=dict)

    # --- time and memory ---
    #: time of the run, over all its starts. Validation counts, but not in a second or later start that was stopped
    seconds: float = 0
    #: target tokens, by number of updates
    tokens_per_second: dict[int, float] = field(default_factory=dict)
    #: the present speed: that of the last line
    updates_per_second: float = 0
    #: memory of a GPU: the least that was free, and all of it
    gb_free: float = math.inf
    gb_total: float | None = None

    @property
    def updates(self) -> int:
        return max(self.train, default=0)

    @property
    def max_updates(self) -> int:
        """--max-update of the last start."""
        return int(self.settings.get("max-update", 0))

    @property
    def losses(self) -> dict[str, dict[int, float]]:
        """Split -> validation losses, without label smoothing where the criterion has it."""
        return self.valid_nll or self.valid

    @property
    def speed(self) -> float | None:
        """Target tokens a second. The median: a validation falls into some of the measurements."""
        return median(self.tokens_per_second.values()) if self.tokens_per_second else None


def first_update(by_split: dict[str, dict[int, float]], is_reached: Callable[[float], bool]) -> int | None:
    """Returns the first validation at which the mean over the splits is what is looked for, None if there is none."""
    updates = sorted(set.intersection(*map(set, by_split.values()))) if by_split else []
    return next((u for u in updates if is_reached(mean(values[u] for values in by_split.values()))), None)


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


def read_run(path: str | Path) -> Run:
    """Reads a run. ``path``: a log file, or a folder with a train.log in it."""
    path = Path(path)
    log = path / LOG_NAME if path.is_dir() else path
    if not log.exists():
        raise ValueError(
            f"no training log {log}: give a log that fairseq-train wrote with "
            f"--log-format json --log-file, or a folder with a {LOG_NAME}"
        )
    run = Run(path.name if path.is_dir() else path.stem, "", 0, log)
    reader = Reader(run)
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        reader.read_line(line)
    if not run.settings:
        raise ValueError(f"{log} is no log of fairseq-train: write one with --log-file")
    return run


class Reader:
    """Fills a run with what the lines of its log say.

    Each start of fairseq-train appends to the log, and writes its settings first. Figures of earlier starts remain, up
    to the update from which the new start resumed.
    """

    def __init__(self, run: Run):
        self.run = run
        #: the name of the loss in the log, and the factor from there to the run's losses
        self.loss, self.unit = "loss", NATS
        #: whether no update of the present start has been read yet
        self.is_starting = False
        #: time of all starts before the present one, and of the updates of this one
        self.earlier_seconds, self.training_seconds = 0.0, 0.0

    def read_line(self, line: str) -> None:
        run = self.run
        if SETTINGS.search(line) and line.rstrip().endswith("}"):  # the line is not cut short
            self.begin_start(line)
        elif not run.settings:
            pass  # no start yet
        elif said := re.search(r"num\. shared model params: ([\d,]+)", line):
            run.parameters = int(said[1].replace(",", ""))
        elif said := re.search(r"\(embed_tokens\): Embedding\((\d+)", line):
            run.vocabularies.add(int(said[1]))
        elif said := re.search(r"total memory = ([\d.]+) GB", line):
            run.gb_total = float(said[1])
        elif END in line:
            self.end_start(line)
        else:
            self.read_figures(entry_of(line))

    def begin_start(self, line: str) -> None:
        run = self.run
        if run.settings and not self.is_starting:
            run.earlier_settings.append(run.settings)
        run.settings, every = settings_of(line[line.index("{") :].strip(), run.name)
        run.seed = int(every["seed"])
        # stock architectures have none of the plugin's flags
        run.encoding = every.get("position-encoding") or every["arch"]
        run.variant = variant_of(every)
        run.ended = False
        criterion = every.get("criterion")
        run.in_nats = criterion not in IN_OWN_UNITS
        self.unit = NATS if run.in_nats else 1.0
        # the whole loss of electra is a sum of two that do not compare
        self.loss = "disc_loss" if criterion == "electra" else "loss"
        # these divide their nll_loss by the tokens of the input
        run.of_sentences = criterion in ("sentence_prediction", "sentence_ranking")
        self.is_starting = True
        self.earlier_seconds, self.training_seconds = run.seconds, 0.0

    def end_start(self, line: str) -> None:
        run = self.run
        run.ended = True
        said = re.search(rf"{END} ([\d.]+)", line)
        if said and self.earlier_seconds:
            run.seconds = max(run.seconds, self.earlier_seconds + float(said[1]))

    def read_figures(self, entry: dict[str, str]) -> None:
        """Reads a line about updates, an epoch or a validation."""
        loss = entry.get("loss", entry.get("train_loss"))
        if loss is not None:
            self.run.training_losses.append(float(loss) * self.unit)
        updates = [int(value) for key, value in entry.items() if key.endswith("num_updates")]
        if updates and self.is_starting:
            self.forget_from(min(updates))
            self.is_starting = False
        if "num_updates" in entry and "loss" in entry:
            self.read_training(entry, int(entry["num_updates"]))
        for key, value in entry.items():
            split = key.removesuffix("_num_updates")
            if split not in (key, "train"):
                self.read_validation(entry, split, int(value))

    def read_training(self, entry: dict[str, str], update: int) -> None:
        run = self.run
        run.train[update] = float(entry[self.loss]) * self.unit
        run.updates_per_second = float(entry.get("ups", 0))
        if "wps" in entry:
            run.tokens_per_second[update] = float(entry["wps"])
        if entry.get("gb_free") is not None:  # null: a run of a GPU that resumed without one
            run.gb_free = min(run.gb_free, float(entry["gb_free"]))
        self.training_seconds += float(entry.get("train_wall", 0))
        # in a run that resumes, fairseq's wall stays at 0
        seconds = float(entry.get("wall", 0)) or self.earlier_seconds + self.training_seconds
        run.seconds = max(run.seconds, seconds)

    def read_validation(self, entry: dict[str, str], split: str, update: int) -> None:
        run = self.run
        without_smoothing = {} if run.of_sentences else {"nll_loss": run.valid_nll}
        for name, values in {self.loss: run.valid, **without_smoothing, "order_gap": run.order_gap}.items():
            if f"{split}_{name}" in entry:
                values.setdefault(split, {})[update] = float(entry[f"{split}_{name}"]) * self.unit

    def forget_from(self, update: int) -> None:
        """Takes back what earlier starts logged at this update and later: this start repeats it, or was made anew."""

        def before(values: dict[int, float]) -> dict[int, float]:
            return {number: value for number, value in values.items() if number < update}

        def of_splits(by_split: dict[str, dict[int, float]]) -> dict[str, dict[int, float]]:
            return {split: kept for split, values in by_split.items() if (kept := before(values))}

        run = self.run
        run.train, run.tokens_per_second = before(run.train), before(run.tokens_per_second)
        run.valid, run.valid_nll = of_splits(run.valid), of_splits(run.valid_nll)
        run.order_gap = of_splits(run.order_gap)
        if not run.train:  # nothing is left of the earlier starts
            run.seconds = self.earlier_seconds = 0
            run.gb_free = math.inf
            run.earlier_settings.clear()


def variant_of(settings: dict[str, str]) -> str:
    parts = sorted(settings.get("position-hparams", "").split())  # in any order, they are the same
    for flag, word in VARIANTS.items():
        value = settings.get(flag, "None")
        if value not in ("None", "all", ""):
            parts += [word, value]
    return " ".join(parts)


def entry_of(line: str) -> dict[str, str]:
    """Returns the figures of a line as --log-format json names them, whatever the format. Other lines have none."""
    validated = re.search(r"epoch \d+ \| valid on '([^']+)' subset \| (.+)", line)
    if validated:
        cells = [cell.split() for cell in validated[2].split(" | ")]
        return {f"{validated[1]}_{cell[0]}": cell[1] for cell in cells if len(cell) == 2}
    trained = re.search(r"epoch \d+: +\d+ / \d+ (.*loss=.+)", line)
    if trained:
        return dict(re.findall(r"(\w+)=([^,\s]+)", trained[1]))
    start = line.find("{")
    try:
        entry = json.loads(line[start:]) if start >= 0 else {}
    except ValueError:
        return {}  # the last line of a run that is being written, or not one of fairseq's
    return entry if isinstance(entry, dict) else {}


def settings_of(line: str, run: str) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the value of each of fairseq's settings by the name of its flag without "--", also of those that were not
    given: those of the model and its training, and all of them. A component is called like the flag that chooses it:
    task, criterion, optimizer, lr-scheduler, arch."""
    try:
        groups = _plain(ast.parse(line, mode="eval").body)
    except SyntaxError:
        raise ValueError(f"the settings in the log of {run} cannot be read: is the log whole?") from None
    every: dict[str, str] = {}
    for group, values in groups.items():
        if isinstance(values, dict):
            for name, value in values.items():
                flag = name if name != "_name" else "arch" if group == "model" else group
                every.setdefault(flag.replace("_", "-"), _text(value))
    others = {name.replace("_", "-") for group in OTHER_GROUPS for name in groups.get(group) or ()}
    return {name: v for name, v in every.items() if name not in others or HOW_COMPUTED.fullmatch(name)}, every


def _plain(node: ast.expr) -> Any:
    if isinstance(node, ast.Dict):
        return {_plain(key): _plain(value) for key, value in zip(node.keys, node.values) if key is not None}
    if isinstance(node, ast.Call):  # Namespace(...)
        return {keyword.arg: _plain(keyword.value) for keyword in node.keywords}
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_plain(element) for element in node.elts]
    return node.value if isinstance(node, ast.Constant) else ast.unparse(node)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
