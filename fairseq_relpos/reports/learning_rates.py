"""The learning rate of each encoding in a comparison: the best one of a grid, by the validation of one seed.

The run of a rate lies in RUNS/lrRATE/ENCODING-seedSEED. Other seeds are trained with the best rate alone, and all is
reported on text that had no part in the choice.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median

from .run_settings import end_of
from .training_log import Run, read_run

#: nats that the last validation of a run may be above its best one, and the last training loss above the first
DIVERGED = 0.5
#: nats: those of a guess among hundreds of millions of classes. A first epoch may end above it, and all later ones
WORST_GUESS = 20.0


def why_diverged(run: Run, is_scored: bool = False) -> str:
    """Returns why a run has diverged: its numbers were not finite (exit code 76), or its loss rose. Else it is empty.
    For a run that is compared by a score the loss in training counts: while an accuracy grows, the loss in validation
    may rise without harm."""
    if (run.log.parent / "diverged").exists():
        return "its numbers were not finite"
    if is_scored:
        losses = run.training_losses
        if losses and not losses[-1] <= min(losses[0] + DIVERGED, WORST_GUESS):
            return f"the training loss ended at {losses[-1]:.4g} nats"
        return ""
    for losses in (list(of_split.values()) for of_split in run.valid.values()):
        if not (math.isfinite(losses[-1]) and losses[-1] <= min(losses) + DIVERGED):
            return "the validation loss rose"
    return ""


def figure_of(run: Run) -> float:
    """Returns the loss of the last validation, the mean over the validation splits; without label smoothing where the
    criterion has it. Infinite if the run has diverged."""
    if not run.losses:
        raise ValueError(f"{run.name} has not been validated")
    if why_diverged(run):
        return math.inf
    return mean(of_split[max(of_split)] for of_split in run.losses.values())


def tried(place: Path, rates: Sequence[str], encoding: str, seed: str) -> dict[str, float]:
    """Returns learning rate -> figure of the rates with which a training has come to its end, or has diverged."""
    found = {}
    for rate in rates:
        folder = place / f"lr{rate}" / f"{encoding}-seed{seed}"
        if is_trained(folder):
            found[rate] = figure_of(read_run(folder))
        elif (folder / "diverged").exists():
            found[rate] = math.inf
    return found


def is_trained(run: Path) -> bool:
    """Whether a run of a recipe has come to its end, and is not being made longer."""
    trained = run / "trained"
    ends = {end_of(path.read_text(encoding="utf-8")) for path in (run / "command", trained) if path.exists()}
    return trained.exists() and len(ends) == 1


def choose(scores: Mapping[str, Sequence[float]], lower: bool, rule: str = "median") -> str | None:
    """Returns the learning rate with the best median over its seeds, or (``best``) with the best seed: of equally good
    ones the first. ``scores``: rate -> those of its seeds; ``lower``: a lower one is better. None where no rate has a
    score that is finite."""
    best = min if lower else max
    figures = {rate: (median if rule == "median" else best)(of_seeds) for rate, of_seeds in scores.items()}
    finite = [rate for rate, figure in figures.items() if math.isfinite(figure)]
    return best(finite, key=lambda rate: figures[rate], default=None)


def best_of(place: Path, rates: Sequence[str], encoding: str, seed: str) -> str:
    """Returns the best of these rates. Raises ValueError, one line, if a training is missing or all have diverged."""
    figures = tried(place, rates, encoding, seed)
    missing = [rate for rate in rates if rate not in figures]
    if missing:
        raise ValueError(f"{encoding}, seed {seed}: no training with {', '.join(missing)} to its end yet")
    chosen = choose({rate: [figure] for rate, figure in figures.items()}, lower=True)
    if chosen is None:
        raise ValueError(f"{encoding}, seed {seed}: it has diverged with every rate: {', '.join(rates)}")
    return chosen
