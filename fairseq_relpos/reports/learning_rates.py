"""The learning rate of each encoding in a comparison: the best one of a grid, by the validation of one seed.

    python -m fairseq_relpos.reports.learning_rates RUNS ENCODING SEED      # prints it

Other seeds are trained with that rate alone, and all is reported on text that had no part in the choice.
"""

import math
import sys
from collections.abc import Iterable
from pathlib import Path

from .training_log import Run, read_run


def figure_of(run: Run) -> float:
    """Returns the loss of the last validation, the mean over the validation splits; without label smoothing where the
    criterion has it."""
    losses = run.valid_nll or run.valid
    if not losses:
        raise ValueError(f"{run.name} has not been validated")
    return sum(of_split[max(of_split)] for of_split in losses.values()) / len(losses)


def tried(runs: Iterable[Run], seed: int) -> dict[str, dict[str, float]]:
    """Returns encoding -> learning rate -> figure of the runs with this seed, from the lowest rate to the highest."""
    found: dict[str, dict[str, float]] = {}
    for run in sorted(runs, key=lambda run: float(run.learning_rate)):
        if run.seed == seed:
            found.setdefault(run.encoding, {})[run.learning_rate] = figure_of(run)
    return found


def best(figures: dict[str, float]) -> str:
    """Returns the rate with the lowest figure. A figure that is no number is the worst."""
    return min(figures, key=lambda rate: math.inf if math.isnan(figures[rate]) else figures[rate])


def main(runs_folder: str, encoding: str, seed: str) -> None:
    trained = Path(runs_folder).glob(f"lr*/{encoding}-seed{seed}/trained")
    runs = [read_run(path.parent) for path in trained]
    if not runs:
        sys.exit(f"learning_rates: error: no run of {encoding} with seed {seed} in {runs_folder} has come to its end")
    (figures,) = tried(runs, int(seed)).values()
    print(best(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
