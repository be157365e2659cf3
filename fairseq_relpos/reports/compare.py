"""``fairseq-relpos compare``: one report over runs of any recipe, or of fairseq-train without one.

Runs of one task are compared with one another: what differs in their settings, losses and scores seed by seed, speed,
memory and parameters. The report warns where runs differ in more than the encoding, and where a model does not use
positions. It refuses runs of different data.
"""

import argparse
import math
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from ..atomic_files import write_json, write_text
from . import differences, extrapolation_plot, run_folder
from .markdown import with_deviation
from .page import Page, Picture
from .run_folder import EVALUATED, TEXT, USED, RunFolder
from .run_settings import HOW_COMPUTED, NOT_GIVEN, OF_A_FOLD, batch_of, counted, differing_settings, is_free, may_change
from .training_log import tell_variants_apart

#: names of runs in one line
MOST_NAMES = 4

NO_BASELINE = "Mean ± standard deviation over the seeds. `--baseline NAME` compares each with one of them."
ORDER_GAP = f"""\
The order gap is what the loss rises by when the tokens of each block are permuted. Below {USED} nats a model reads \
bags of words."""
NOT_MEASURED = """\
Nobody has measured whether these models use positions: \
`fairseq-relpos order-gap CHECKPOINT DATA --json RUN/order_gap.json` does."""
SPEED = """\
Tokens a second are the median of a run. Other processes may have slowed it down: a difference in speed is less sure \
than a difference in loss or score."""
#: figures that are better when they are lower; all others are scores
LOSSES = re.compile("(last validation )?loss|error|mse|perplexity", re.IGNORECASE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = " ".join(__doc__.split("\n\n")[1].split())
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="folder of a run with the log of fairseq-train in it, or such a log"
    )
    parser.add_argument(
        "--baseline",
        action="append",
        metavar="NAME",
        help="the encoding from which differences are taken; once more for a task that has other encodings",
    )
    parser.add_argument("--json", metavar="FILE", help="write all figures here, too")
    parser.add_argument(
        "--html", metavar="FILE", help="write the report with pictures here, too: one file for a browser"
    )


def run(args: argparse.Namespace) -> None:
    tasks = compare(args.runs, args.baseline or [])
    print(page_of(tasks).markdown())
    for path in filter(None, (args.json, args.html)):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    if args.json:
        write_json(args.json, {"tasks": [task.as_json() for task in tasks]})
    if args.html:
        with tempfile.TemporaryDirectory() as folder:
            write_text(args.html, page_of(tasks, Path(folder)).html())


def compare(paths: Sequence[str | Path], baselines: Sequence[str] = ()) -> list["Task"]:
    """Reads the runs. Raises ValueError for runs that cannot be compared."""
    twice = sorted(str(path) for path, count in Counter(map(Path, paths)).items() if count > 1)
    if twice:
        raise ValueError(f"{', '.join(twice)} is given twice: give each run once")
    folders = [run_folder.read(path) for path in paths]
    run_folder.refuse_unfinished(folders)
    # a run that has not been evaluated stands beside those of the same data that have
    named = {(folder.kind, folder.data_name): folder.task for folder in folders if folder.task}
    by_task: dict[str, list[RunFolder]] = {}
    for folder in folders:
        task = folder.task or named.get((folder.kind, folder.data_name))
        by_task.setdefault(f"{task} ({folder.kind})" if task else folder.kind, []).append(folder)
    tasks = [Task.of(name, folders, baselines) for name, folders in by_task.items()]
    for name in baselines:
        if not any(differences.find_baseline(task.rows, name) for task in tasks):
            raise ValueError(
                f"--baseline {name}: no such run; there are {listed(row for t in tasks for row in t.rows)}"
            )
    return tasks


@dataclass
class Task:
    """The runs of one task."""

    name: str
    folders: list[RunFolder]
    #: names of the rows of all tables: an encoding, with what tells it from its other variants
    rows: list[str]
    baseline: str | None
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, folders: list[RunFolder], baselines: Sequence[str]) -> "Task":
        for folder in folders:
            prepare(folder)
        warnings = check_data(folders)
        name_rows(folders)
        rows = sorted({folder.run.encoding for folder in folders})
        baseline = choose_baseline(name, rows, baselines)
        rows.sort(key=lambda row: (row != baseline, row))
        folders.sort(key=lambda folder: (rows.index(folder.run.encoding), folder.run.seed))
        task = cls(name, folders, rows, baseline, warnings)
        task.warnings += task.find_warnings(baselines)
        return task

    @property
    def title(self) -> str:
        data = self.folders[0].data_name
        return self.name if not data or data in self.name else f"{self.name} on {data}"

    @property
    def good(self) -> list[RunFolder]:
        return [folder for folder in self.folders if not folder.has_diverged]

    def of_row(self, row: str) -> list[RunFolder]:
        return [folder for folder in self.good if folder.run.encoding == row]

    @property
    def figures(self) -> dict[str, int]:
        """Returns figure -> digits."""
        return {name: figure.digits for folder in self.good for name, figure in folder.figures.items()}

    def values(self, figure: str) -> differences.Values:
        """Returns row -> seed -> value."""
        found = {
            row: {f.run.seed: f.figures[figure].value for f in self.of_row(row) if figure in f.figures}
            for row in self.rows
        }
        return {row: of_seed for row, of_seed in found.items() if of_seed}

    def baseline_of(self, figure: str) -> str | None:
        return self.baseline if self.baseline in self.values(figure) else None

    def settings(self, free: Callable[[str], object]) -> dict[str, dict[str, list[str]]]:
        """Returns setting -> value -> the rows that have it, of those that differ and are not free to."""
        found: dict[str, dict[str, list[str]]] = {}
        every = [folder.run.settings for folder in self.folders]
        alike = counted(every)
        for name, by_value in differing_settings(every, lambda name: name in alike or free(name)).items():
            found[name] = {}
            for value, numbers in by_value.items():
                rows = [self.folders[number].run.encoding for number in numbers]
                found[name][value] = list(dict.fromkeys(rows))
        return found

    @property
    def differing(self) -> dict[str, dict[str, list[str]]]:
        """The settings that differ besides the encoding, the seed and how it is computed."""
        return self.settings(is_free)

    @property
    def computed_otherwise(self) -> dict[str, dict[str, list[str]]]:
        found = self.settings(lambda name: not HOW_COMPUTED.fullmatch(name))
        machines: dict[str, list[str]] = {}
        for folder in self.folders:
            if folder.machine:
                rows = machines.setdefault(folder.machine.split(";")[0], [])
                if folder.run.encoding not in rows:
                    rows.append(folder.run.encoding)
        return {**found, **({"machine": machines} if len(machines) > 1 else {})}

    def find_warnings(self, baselines: Sequence[str]) -> Iterator[str]:
        differing = self.differing
        rates = differing.pop("lr", None)
        if differing:
            yield f"the runs differ in more than the encoding and the seed: {in_words(differing)}"
        if rates:
            yield (
                f"the learning rates differ ({in_words({'lr': rates})}): a fair choice tries the same rates for each "
                "encoding, and chooses on the validation data"
            )
        updates = {folder.updates for folder in self.good}
        if len(updates) > 1 and "max-update" not in differing:
            yield (
                f"the runs have made from {min(updates):,} to {max(updates):,} updates: a longer training alone may "
                "give a better figure"
            )
        # a model without an encoding has none to use
        unused = [f.run.name for f in self.good if f.uses_positions is False and f.run.encoding.split()[0] != "none"]
        if unused:
            yield (
                f"these models do not use positions, with an order gap below {USED} nats: {listed(unused)}. Their "
                "losses say how soon an encoding begins to be used, not how good it is in the end"
            )
        if diverged := [folder.run.name for folder in self.folders if folder.has_diverged]:
            yield f"left out of all figures, because they have diverged: {listed(diverged)}"
        if self.baseline and not self.of_row(self.baseline):
            yield f"every run of {self.baseline}, the baseline, has diverged, so no differences"
        if baselines and not self.baseline:
            yield f"no run of {' or '.join(baselines)}, the baseline, so no differences"
        if seeds := differences.missing_seeds({row: {f.run.seed: 0.0 for f in self.of_row(row)} for row in self.rows}):
            yield f"not every row has the same seeds: {'; '.join(seeds)}"
        lacking = defaultdict(list)
        for figure in self.figures:
            lacking[tuple(f.run.name for f in self.good if figure not in f.figures)].append(figure)
        yield from (f"not known of {listed(runs)}: {'; '.join(found)}" for runs, found in lacking.items() if runs)
        if any(folder.facts.get("fold") is not None for folder in self.folders):
            yield "folds stand in the place of seeds. They share training data: the intervals are too narrow"
        for folder in self.folders:
            yield from folder.notes

    def as_json(self) -> dict[str, Any]:
        """Returns what differences.write would write of each task, and all else."""
        return {
            "task": self.name,
            "baseline": self.baseline,
            "figures": {figure: self.values(figure) for figure in self.figures},
            "differences": {
                figure: {row: one.as_json() for row, one in self.differences_of(figure).items()}
                for figure in self.figures
            },
            "settings": self.differing,
            "computed": self.computed_otherwise,
            "warnings": self.warnings,
            "runs": [self.run_as_json(folder) for folder in self.folders],
        }

    def differences_of(self, figure: str) -> dict[str, differences.Difference]:
        return differences.from_baseline(self.values(figure), self.baseline_of(figure))

    def run_as_json(self, folder: RunFolder) -> dict[str, Any]:
        run = folder.run
        return {
            "run": run.name,
            "row": run.encoding,
            "seed": run.seed,
            "diverged": folder.has_diverged,
            "uses_positions": folder.uses_positions,
            "order_gap": {split: gap if math.isfinite(gap) else None for split, gap in folder.gaps.items()},
            "parameters": run.parameters,
            "updates": folder.updates,
            "tokens_per_second": run.speed,
            "seconds": run.seconds,
            "gigabytes": folder.gigabytes,
            "machine": folder.machine,
            "commit": folder.kept("commit.txt").strip(),
        }


def prepare(folder: RunFolder) -> None:
    """Adds to the settings of a run what an update is made of, and puts its fold in the place of its seed."""
    run, fold = folder.run, folder.facts.get("fold")
    for settings in (run.settings, *run.earlier_settings):
        settings["batch"] = batch_of(settings)
    if changed := differing_settings([*run.earlier_settings, run.settings], may_change):
        told = in_words({name: {value: [] for value in by_value} for name, by_value in changed.items()})
        folder.notes.append(f"{folder.path} was resumed with other settings: {told}")
    if fold is not None:
        for name in OF_A_FOLD & run.settings.keys():
            del run.settings[name]
        run.settings["training-seed"], run.seed = str(run.seed), int(fold)


def name_rows(folders: Sequence[RunFolder]) -> None:
    """Gives runs of one encoding names of their own where they are not seeds of one training."""
    groups = defaultdict(list)
    for folder in folders:
        groups[folder.run.encoding, folder.run.variant].append(folder)
    for group in groups.values():
        every = [folder.run.settings for folder in group]
        differs = differing_settings(
            every,
            lambda name: (
                name in ("position-encoding", "position-hparams") or is_free(name) and not name.startswith("position-")
            ),
        )
        names = [name for name in differs if name not in counted(every)]
        for folder in group:
            given = [f"{name}={folder.run.settings.get(name, NOT_GIVEN)}" for name in names]
            folder.run.variant = " ".join([folder.run.variant, *given]).strip()
        keys = [(folder.run.variant, folder.run.seed) for folder in group]
        if len(set(keys)) < len(keys):  # fine-tuned from several models
            for folder in group:
                start = folder.run.settings.get("finetune-from-model", "None")
                if start != "None":
                    folder.run.variant = f"{folder.run.variant} from={Path(start).parent.name}".strip()
    tell_variants_apart([folder.run for folder in folders])


def choose_baseline(task: str, rows: Sequence[str], names: Sequence[str]) -> str | None:
    """Returns the first name that is one of the rows."""
    for name in names:
        if found := differences.find_baseline(rows, name):
            return found
    for name in names:
        if several := [row for row in rows if row.startswith(f"{name} (")]:
            raise ValueError(f"--baseline {name}: {task} has {' and '.join(several)}: give one of them, in quotes")
    return None


def check_data(folders: Sequence[RunFolder]) -> list[str]:
    """Raises ValueError for runs of different data. Returns warnings where it cannot be known."""
    # each seed, or fold, may have data of its own
    names, places = {folder.data_name for folder in folders}, {Path(folder.data).name for folder in folders}
    has_own = len(names) == 1 and len(places) > 1
    groups: dict[int, list[RunFolder]] = defaultdict(list)
    for folder in folders:
        groups[folder.run.seed if has_own else 0].append(folder)
    return [warning for group in groups.values() for warning in check_same_data(group)]


def check_same_data(folders: Sequence[RunFolder]) -> list[str]:
    is_proven = False
    for kind, what in dict.fromkeys(key for folder in folders for key in folder.digests):
        known = {f.run.name: f.digests[kind, what] for f in folders if (kind, what) in f.digests}
        refuse_different(kind, what, known)
        is_proven = is_proven or kind == TEXT and len(known) == len(folders)
    places = {folder.data for folder in folders}
    if len(places) == 1 or is_proven:
        return []
    contents = {place: run_folder.digest_of(place) for place in places}
    if all(contents.values()):
        refuse_different(TEXT, "content", {folder.run.name: str(contents[folder.data]) for folder in folders})
    elif len({Path(place).name for place in places}) > 1:
        what = "folder; nothing here shows that they hold the same text"
        refuse_different(TEXT, what, {folder.run.name: folder.data for folder in folders})
    else:
        return [f"nothing here shows that these hold the same data: {', '.join(sorted(places))}"]
    return []


def refuse_different(kind: str, what: str, by_run: dict[str, str]) -> None:
    groups = defaultdict(list)
    for name, value in by_run.items():
        groups[value].append(name)
    if len(groups) > 1:
        # a digest is long, and its beginning tells it from another
        told = "; ".join(f"{value[:40]} of {listed(names)}" for value, names in groups.items())
        remedy = "evaluate all alike" if kind == EVALUATED else "give each group to a comparison of its own"
        raise ValueError(f"runs of different {kind} do not compare ({what}: {told}): {remedy}")


def listed(names: Iterable[str]) -> str:
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def in_words(settings: dict[str, dict[str, list[str]]]) -> str:
    told = []
    for name, by_value in settings.items():
        values = [f"{value} ({listed(rows)})" if rows else value for value, rows in by_value.items()]
        told.append(f"{name} {', '.join(values)}")
    return "; ".join(told)


def page_of(tasks: Sequence[Task], folder: Path | None = None) -> Page:
    """Returns the report; with pictures, which are drawn in ``folder``, if there is one."""
    page = Page()
    page.add("A comparison of position encodings", "h1")
    runs = sum(len(task.folders) for task in tasks)
    several = f" of {len(tasks)} tasks. Only runs of one task compare with one another" if len(tasks) > 1 else ""
    page.add(f"{runs} run{'s' if runs > 1 else ''}{several}.")
    for number, task in enumerate(tasks):
        page.add(task.title, "h2")
        add_task(page, task, folder and folder / str(number))
    return page


def add_task(page: Page, task: Task, folder: Path | None) -> None:
    for warning in task.warnings:
        page.add(warning + ".", "warning")
    page.add("What differs", "h3")
    if len(task.folders) == 1:
        page.add("There is one run.")
    elif not task.differing:
        page.add("The runs differ only in the encoding, with its own settings, and in the seed.")
    else:
        rows = [
            [name, value, listed(of)] for name, by_value in task.differing.items() for value, of in by_value.items()
        ]
        page.table(["setting", "value", "runs"], rows, words=True)
    for figure, digits in task.figures.items():
        title = figure[0].upper() + figure[1:] if figure.split()[0].islower() else figure
        page.add(f"{title}: {'lower' if LOSSES.match(figure) else 'higher'} is better", "h3")
        page.table(*differences.cells(task.values(figure), task.baseline_of(figure), figure.split(",")[0], digits))
        if note := differences.note_of(task.values(figure), task.baseline_of(figure)):
            page.add(note)
        # figures in a row, as the losses at each length, share a picture
        in_a_row = any(f.figures[figure].in_a_row for f in task.good if figure in f.figures)
        if folder and not in_a_row and task.differences_of(figure):
            page.blocks.append(difference_picture(task, figure, folder / f"figure{len(page.blocks)}.svg"))
    if task.figures:
        known = any(map(task.baseline_of, task.figures))
        legend = differences.legend(task.baseline).replace("\n", " ") if known else NO_BASELINE
        page.add(legend)
    if folder and (pictures := [*curve_pictures(task, folder)]):
        page.add("During training", "h3")
        page.blocks += pictures
    if any(folder.gaps for folder in task.good):
        page.add("Are positions used?", "h3")
        page.table(*order_gaps(task))
        page.add(ORDER_GAP)
    elif task.name.startswith("masked_lm"):
        page.add(NOT_MEASURED)
    page.add("Training", "h3")
    page.table(*training(task))
    otherwise = task.computed_otherwise
    page.add(f"Speeds do not compare, because these differ: {in_words(otherwise)}." if otherwise else SPEED)
    machines = list(dict.fromkeys(f.machine for f in task.folders if f.machine))
    page.add(f"Machine: {'; '.join(machines)}" if machines else "The machine is not known: no run has a machine.txt.")


def order_gaps(task: Task) -> tuple[list[str], list[list[str]]]:
    splits = list(dict.fromkeys(split for folder in task.good for split in folder.gaps))
    rows = []
    for row in task.rows:
        found = [folder for folder in task.of_row(row) if folder.gaps]
        if found:
            cells = [[folder.gaps[split] for folder in found if split in folder.gaps] for split in splits]
            used = sum(folder.uses_positions is True for folder in found)
            rows.append([row, *(with_deviation(c, sign="+") if c else "-" for c in cells), f"{used} of {len(found)}"])
    return ["encoding", *(f"gap on {split} (nats)" for split in splits), "runs that use positions"], rows


def training(task: Task) -> tuple[list[str], list[list[str]]]:
    rows = []
    for row in task.rows:
        folders = [folder for folder in task.folders if folder.run.encoding == row]
        rows.append(
            [
                row,
                distinct(f"{f.run.parameters:,}" if f.run.parameters else "-" for f in folders),
                distinct(f"{f.updates:,}" for f in folders),
                average([f.run.speed for f in folders if f.run.speed]),
                average([f.run.seconds / 60 for f in folders if f.run.seconds], 1),
                average([f.gigabytes for f in folders if f.gigabytes is not None], 1),
            ]
        )
    head = ["encoding", "parameters", "updates", "tokens/s", "minutes a run", "GB of GPU memory"]
    if all(row[-1] == "-" for row in rows):  # not logged, as on a CPU
        return head[:-1], [row[:-1] for row in rows]
    return head, rows


def distinct(texts: Iterable[str]) -> str:
    return " ".join(dict.fromkeys(texts))


def average(values: Sequence[float], digits: int = 0) -> str:
    return f"{mean(values):,.{digits}f}" if values else "-"


def curve_pictures(task: Task, folder: Path) -> Iterator[Picture]:
    """Draws validation losses against updates, and losses against the length where there are some."""
    from . import curves

    splits = dict.fromkeys(split for f in task.good for split in f.run.losses)
    for split in splits:
        lines = {row: [f.run.losses[split] for f in task.of_row(row) if split in f.run.losses] for row in task.rows}
        lines = {row: found for row, found in lines.items() if found}
        ends = [f"{row} {mean(of_run[max(of_run)] for of_run in found):.3f}" for row, found in lines.items()]
        what = f"validation loss on {split}"
        try:
            file = curves.plot({"": lines}, folder / f"loss-{split}.svg", "updates", what, skip_first=True, narrow=True)
        except ValueError:  # seeds that were never validated at the same number of updates
            continue
        yield Picture(file, f"{what} against updates. At the end: {', '.join(ends)}")
    found = [{**f.reach, "encoding": f.run.encoding, "changed": ""} for f in task.good if f.reach]
    if found and any(one["loss"] is not None for result in found for one in result["measurements"]):
        file = extrapolation_plot.plot(found, folder / "reach.svg", ["mean"], narrow=True)
        yield Picture(
            file, f"Loss on {found[0]['split']} against the number of tokens in a block, a line for each encoding"
        )


def difference_picture(task: Task, figure: str, path: Path) -> Picture:
    """Draws the differences from the baseline, seed by seed, with their intervals."""
    from .figures import colour_of, new_figure, save

    values, found = task.values(figure), task.differences_of(figure)
    shown = [row for row in values if row in found]
    theirs = values[str(task.baseline)]
    drawing, (panel,) = new_figure(width=4.6, height=0.9 + 0.28 * len(shown))
    for place, row in enumerate(reversed(shown)):
        dots = [value - theirs[seed] for seed, value in values[row].items() if seed in theirs]
        panel.plot(dots, [place] * len(dots), "o", markersize=3.5, alpha=0.6, color=colour_of(row))
        if math.isfinite(found[row].half_width):
            panel.errorbar(found[row].mean, place, xerr=found[row].half_width, fmt="|", capsize=4, color=colour_of(row))
    panel.axvline(0, color="0.4", linewidth=0.8)
    panel.set_yticks(range(len(shown)), shown[::-1])
    panel.set_ylim(-0.6, len(shown) - 0.4)
    interval = ", with 95 % interval" if any(math.isfinite(found[row].half_width) for row in shown) else ""
    panel.set_xlabel(f"{figure.split(',')[0]}\nminus that of {task.baseline}{interval}")
    panel.grid(axis="x", alpha=0.3)
    text = ", ".join(f"{row} {found[row].text(task.figures[figure])}" for row in shown)
    return Picture(save(drawing, path), f"{figure}, difference from {task.baseline}: {text}")
