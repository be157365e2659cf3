"""The learning rate of each encoding in a comparison: the best one of a grid, by the validation of one seed.

    python -m fairseq_relpos.reports.learning_rates RUNS ENCODING SEED RATE...      # prints the best RATE

The run of a rate lies in RUNS/lrRATE/ENCODING-seedSEED. Other seeds are trained with the best rate alone, and all is
reported on text that had no part in the choice.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from .training_log import Run, read_run

#: nats that the last validation of a run may be above its best one
DIVERGED = 0.5


def has_diverged(run: Run) -> bool:
    """Returns whether the last validation is no number, or is DIVERGED above the best one."""
    return any(
        not math.isfinite(values[max(values)]) or values[max(values)] > min(values.values()) + DIVERGED
        for values in run.valid.values()
    )


def figure_of(run: Run) -> float:
    """Returns the loss of the last validation, the mean over the validation splits; without label smoothing where the
    criterion has it. Infinite if the run has diverged."""
    if not run.losses:
        raise ValueError(f"{run.name} has not been validated")
    if has_diverged(run):
        return math.inf
    return mean(of_split[max(of_split)] for of_split in run.losses.values())


def tried(place: Path, rates: Sequence[str], encoding: str, seed: str) -> dict[str, float]:
    """Returns learning rate -> figure of the rates with which a training has come to its end, or has diverged."""
    found = {}
    for rate in rates:
        folder = place / f"lr{rate}" / f"{encoding}-seed{seed}"
        if (folder / "trained").exists():
            found[rate] = figure_of(read_run(folder))
        elif (folder / "diverged").exists():
            found[rate] = math.inf
    return found


def best(figures: Mapping[str, float]) -> str | None:
    """Returns the rate with the lowest figure, None where every run has diverged."""
    finite = [rate for rate in figures if math.isfinite(figures[rate])]
    return min(finite, key=lambda rate: figures[rate], default=None)


def main(place: str, encoding: str, seed: str, *rates: str) -> None:
    try:
        figures = tried(Path(place), rates, encoding, seed)
    except ValueError as error:
        sys.exit(f"learning_rates: error: {error}")
    missing = [rate for rate in rates if rate not in figures]
    chosen = best(figures)
    if missing:
        sys.exit(
            f"learning_rates: error: {encoding}, seed {seed}: no training with {', '.join(missing)} to its end yet"
        )
    if chosen is None:
        sys.exit(f"learning_rates: error: {encoding}, seed {seed}: it has diverged with every rate: {', '.join(rates)}")
    print(chosen)


if __name__ == "__main__":
    main(*sys.argv[1:])
