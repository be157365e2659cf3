"""Which encodings differ from a baseline: the statistics of every comparison of runs that differ in encoding and seed.

Runs of one seed begin with the same common weights and see the same batches, so one linear model serves a table:
figure = encoding + seed, with one error for all its runs. Differences from the baseline have Dunnett's simultaneous
95 % intervals and p values (Dunnett 1955): the chance that any of them is called different by mistake is 5 %, if the
runs of all encodings spread alike.
"""

import itertools
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import numpy as np

from ..atomic_files import write_json
from .markdown import markdown_table, with_deviation

LEVEL, ALPHA = 0.95, 0.05
#: of the test for which seeds_needed counts seeds
POWER = 0.8
HIGHER, LOWER, SAME = "higher", "lower", "not distinguishable"
#: seeds that an encoding and the baseline need in common for an interval
ENOUGH_SEEDS = 3
#: an encoding whose standard deviation is so many times the table's median has no part in the common error
OTHER_SPREAD = 5
#: one whose deviation is so many times the median is named: its intervals may be too narrow, the others too wide
WIDE_SPREAD = 2
#: fewer encodings do not show what spread is usual
TO_COMPARE = 4

#: encoding -> seed -> a figure of the run: a loss, an accuracy, BLEU
Values = Mapping[str, Mapping[int, float]]


@dataclass(frozen=True)
class Difference:
    """An encoding's difference from another one, over the seeds that both have."""

    mean: float
    seeds: int
    #: half the width of the 95 % interval; infinite where none can be computed
    half_width: float = math.inf
    #: of the hypothesis that there is no difference
    p_value: float = 1.0
    #: why there is no interval
    reason: str = ""

    @property
    def verdict(self) -> str:
        """``higher`` or ``lower`` where the p value is below 5 %."""
        if self.p_value >= ALPHA:
            return SAME
        return HIGHER if self.mean > 0 else LOWER

    def judged(self) -> tuple[str, str]:
        """p and the verdict, as a table has them."""
        if math.isinf(self.half_width):
            return "", self.reason
        return "< 0.001" if self.p_value < 0.001 else f"{self.p_value:.3f}", self.verdict

    def text(self, digits: int = 3) -> str:
        """-0.250 ± 0.031: the mean and half the width of the interval."""
        if math.isinf(self.half_width):
            return f"{self.mean:+.{digits}f}"
        return f"{self.mean:+.{digits}f} ± {self.half_width:.{digits}f}"

    def as_json(self) -> dict[str, Any]:
        known = math.isfinite(self.half_width)
        return {
            "mean": self.mean,
            "low": self.mean - self.half_width if known else None,
            "high": self.mean + self.half_width if known else None,
            "seeds": self.seeds,
            "p": self.p_value if known else None,
            "verdict": self.verdict if known else self.reason,
        }


class Model:
    """figure = encoding + seed, by least squares over the runs of a table.

    ``aside``: encodings whose runs spread much more than those of the others, as after a lost head, and ``constant``
    ones, whose runs all have the same figure. They have no part in the common error, and no interval. ``degrees``: the
    residual degrees of freedom; ``deviation``: the residual standard deviation. ``wide``: encodings that spread so much
    more than usual that their intervals may be too narrow, and those of the others too wide.
    Raises ValueError if a figure is not finite: a run that diverged counts apart.
    """

    def __init__(self, values: Values):
        for encoding, of_seed in values.items():
            if not all(map(math.isfinite, of_seed.values())):
                raise ValueError(f"{encoding}: {list(of_seed.values())} has no mean: a run that diverged counts apart")
        self.values = values
        spreads = relative_spreads(values)
        self.aside = [name for name, spread in spreads.items() if spread > OTHER_SPREAD]
        # of a pair, the paired differences still spread
        self.constant = [name for name, of_seed in values.items() if len(values) > 2 and is_constant(of_seed)]
        self.wide = [name for name, spread in spreads.items() if WIDE_SPREAD < spread <= OTHER_SPREAD]
        left_out = {*self.aside, *self.constant}
        runs = [(name, seed) for name, of_seed in values.items() if name not in left_out for seed in of_seed]
        seeds = sorted({seed for _, seed in runs})
        self.encodings = list(dict.fromkeys(name for name, _ in runs))
        # a column for each encoding, and one for each seed but the first
        design = np.zeros((len(runs), len(self.encodings) + len(seeds[1:])))
        for row, (name, seed) in enumerate(runs):
            design[row] = [name == each for each in self.encodings] + [seed == each for each in seeds[1:]]
        figures = np.array([values[name][seed] for name, seed in runs])
        inverse = np.linalg.pinv(design)
        self.effects = (inverse @ figures)[: len(self.encodings)]
        self.unscaled = (inverse @ inverse.T)[: len(self.encodings), : len(self.encodings)]
        residuals = figures - design @ (inverse @ figures)
        self.degrees = len(runs) - int(np.linalg.matrix_rank(design)) if runs else 0
        squares = float(residuals @ residuals)
        exact = squares <= 1e-20 * float(figures @ figures)  # equal differences leave rounding errors alone
        self.deviation = math.sqrt(squares / self.degrees) if self.degrees and not exact else 0.0

    def seeds(self, ours: str, theirs: str) -> list[int]:
        return sorted(self.values[ours].keys() & self.values[theirs].keys())

    def reason(self, ours: str, theirs: str) -> str:
        """Why there is no interval of this difference; empty if there is one."""
        if len(self.seeds(ours, theirs)) < ENOUGH_SEEDS:
            return "too few seeds"
        if {ours, theirs} & set(self.aside):
            return "not tested: unequal spread"
        if {ours, theirs} & set(self.constant):
            return "not tested: no spread"
        return "" if self.deviation else "no error"

    def without_interval(self, ours: str, theirs: str) -> Difference:
        seeds = self.seeds(ours, theirs)
        gap = mean(self.values[ours][seed] - self.values[theirs][seed] for seed in seeds)
        return Difference(gap, len(seeds), reason=self.reason(ours, theirs))

    def differences(self, pairs: Sequence[tuple[str, str]]) -> list[Difference]:
        """Returns the difference of each pair, the first minus the second, with simultaneous intervals and p values
        over all pairs: with one common second encoding they are Dunnett's, with one pair Student's."""
        tested = [pair for pair in pairs if not self.reason(*pair)]
        if not tested:
            return [self.without_interval(*pair) for pair in pairs]
        contrasts = np.array([[(n == ours) - (n == theirs) for n in self.encodings] for ours, theirs in tested], float)
        covariance = contrasts @ self.unscaled @ contrasts.T
        errors = np.sqrt(np.diag(covariance))
        joint = Joint(covariance / np.outer(errors, errors), self.degrees)
        found = {}
        for pair, gap, error in zip(tested, contrasts @ self.effects, self.deviation * errors):
            half_width = float(joint.critical * error)
            found[pair] = Difference(
                float(gap), len(self.seeds(*pair)), half_width, joint.p_value(float(abs(gap) / error))
            )
        return [found.get(pair) or self.without_interval(*pair) for pair in pairs]

    def seeds_needed(self, gap: float) -> int:
        """Returns the smallest number n of seeds of each encoding with which a two-sided t test at 5 % finds a
        difference of ``gap``, in the unit of the figures, with a power of 80 %: P(t' > t_0.975) >= 0.8 for t' of the
        noncentral t distribution with the noncentrality gap / (s sqrt(2 / n)), where s is the residual standard
        deviation, and (encodings - 1)(n - 1) degrees of freedom. Raises ValueError if ``gap`` or s is not above 0."""
        from scipy import stats

        if not (gap > 0 and self.deviation > 0):
            raise ValueError(f"gap {gap}, standard deviation {self.deviation}: both must be above 0")

        def power(seeds: int) -> float:
            degrees = (len(self.encodings) - 1) * (seeds - 1)
            distance = gap / (self.deviation * math.sqrt(2 / seeds))
            return float(stats.nct.sf(stats.t.ppf(1 - ALPHA / 2, degrees), degrees, distance))

        return next(seeds for seeds in itertools.count(2) if power(seeds) >= POWER)


class Joint:
    """The joint distribution of t values with these correlations: p values and the critical value of the largest."""

    def __init__(self, correlations: np.ndarray, degrees: int):
        self.correlations, self.degrees = correlations, degrees

    def p_value(self, t: float) -> float:
        """The chance that any t value is as far from 0."""
        from scipy import stats

        if len(self.correlations) == 1:
            return float(2 * stats.t.sf(t, self.degrees))
        everywhere = np.full(len(self.correlations), t)
        inside = stats.multivariate_t.cdf(
            everywhere,
            shape=self.correlations,
            df=self.degrees,
            lower_limit=-everywhere,
            allow_singular=True,
            random_state=np.random.RandomState(0),  # integrates at random points: the same ones each time
        )
        return min(1.0, max(0.0, 1.0 - float(inside)))

    @cached_property
    def critical(self) -> float:
        from scipy import optimize, stats

        single = stats.t.ppf((1 + LEVEL) / 2, self.degrees)
        if len(self.correlations) == 1:
            return float(single)
        most = stats.t.ppf(1 - ALPHA / 2 / len(self.correlations), self.degrees)  # Bonferroni's
        return float(optimize.brentq(lambda t: self.p_value(t) - ALPHA, single * 0.99, most * 1.01, xtol=1e-3))


def relative_spreads(values: Values) -> dict[str, float]:
    """Returns the standard deviation of each encoding, without what all runs of a seed have in common, divided by the
    median one. Empty for fewer encodings than ``TO_COMPARE``."""
    many = {n: of_seed for n, of_seed in values.items() if len(of_seed) >= ENOUGH_SEEDS and not is_constant(of_seed)}
    if len(many) < TO_COMPARE:
        return {}
    level = {name: median(of_seed.values()) for name, of_seed in many.items()}
    seeds = sorted({seed for of_seed in many.values() for seed in of_seed})
    runs_of = {s: [many[name][s] - level[name] for name in many if s in many[name]] for s in seeds}
    # of one or two runs the median would be the outlier, or half of it
    of_a_seed = {s: median(runs) if len(runs) > 2 else 0.0 for s, runs in runs_of.items()}
    spread = {name: stdev(y - of_a_seed[seed] for seed, y in of_seed.items()) for name, of_seed in many.items()}
    usual = median(spread.values())
    return {name: of_one / usual for name, of_one in spread.items()} if usual else {}


def is_constant(of_seed: Mapping[int, float]) -> bool:
    """Whether all of enough runs have the same figure, as at the end of a scale: they have no normal error."""
    return len(of_seed) >= ENOUGH_SEEDS and len(set(of_seed.values())) == 1


def from_baseline(values: Values, baseline: str | None) -> dict[str, Difference]:
    """Returns the difference of each other encoding that has a seed in common with the baseline; none without one."""
    if baseline is None:
        return {}
    if baseline not in values:
        raise ValueError(f"no run of the baseline {baseline}: there are {', '.join(sorted(values))}")
    model = Model(values)
    others = [name for name in values if name != baseline and model.seeds(name, baseline)]
    return dict(zip(others, model.differences([(name, baseline) for name in others])))


def paired(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    """Returns the difference of paired figures: Student's t test."""
    model = Model({"ours": dict(enumerate(ours)), "theirs": dict(enumerate(theirs))})
    (found,) = model.differences([("ours", "theirs")])
    return found


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns the p values with Holm's correction (Holm 1979): the smallest of m times m, the next times m - 1, and so
    on, never below the one before."""
    result, largest = list(p_values), 0.0
    for number, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - number) * p_values[place]))
        result[place] = largest
    return result


def table(values: Values, baseline: str | None, figure: str, digits: int = 3) -> str:
    """Returns a Markdown table with a row for each encoding, the baseline first, and the error that they share.
    ``figure``: what the values are. Without a baseline there are no differences."""
    rows, note = markdown_table(*cells(values, baseline, figure, digits)), note_of(values, baseline)
    return f"{rows}\n\n{note}" if note else rows


def note_of(values: Values, baseline: str | None) -> str:
    """Returns what stands under such a table: the error that its intervals share, and the rows that it does not fit."""
    if baseline is None:
        return ""
    model = Model(values)
    told = []
    if any(not model.reason(name, baseline) for name in values if name != baseline):
        told = [f"Common error: standard deviation {model.deviation:.2g}, {model.degrees} degrees of freedom."]
        if model.wide:
            told.append(f"Spread more than twice as much as usual: {_listed(model.wide)}.")
            told.append(
                "The baseline is one of them, so that all intervals may be too narrow."
                if baseline in model.wide
                else "Their intervals may be too narrow, those of the others too wide."
            )
        if len(model.encodings) > 2 and not relative_spreads(values):  # a pair has its own error
            told.append("So few encodings do not show whether their runs spread alike.")
    if model.aside:
        told.append(f"Left out of the error, because their runs spread much more: {_listed(model.aside)}.")
    if model.constant:
        told.append(f"Left out of the error, because all their runs have the same figure: {_listed(model.constant)}.")
    if model.aside or model.constant:
        told.append("A difference without an interval is a mean over common seeds.")
    return " ".join(told)


def _listed(encodings: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in encodings)  # one of them is called none


def cells(values: Values, baseline: str | None, figure: str, digits: int = 3) -> tuple[list[str], list[list[str]]]:
    """Returns the head and the rows of such a table."""
    found = from_baseline(values, baseline)
    head = ["encoding", "seeds", figure, *([] if baseline is None else [f"- {baseline}", "p", "verdict"])]
    rows = []
    for encoding in sorted(values, key=lambda name: (name != baseline, name)):
        of_seed = dict(sorted(values[encoding].items()))
        row = [encoding, " ".join(map(str, of_seed)), with_deviation(list(of_seed.values()), digits)]
        if encoding in found:
            row += [found[encoding].text(digits), *found[encoding].judged()]
        elif baseline is not None:
            row += ["the baseline" if encoding == baseline else "no common seed", "", ""]
        rows.append(row)
    return head, rows


def find_baseline(encodings: Collection[str], name: str) -> str | None:
    """Returns the encoding that is called so, also where other variants of it are compared; None if there is none."""
    return next((one for one in encodings if one in (name, f"{name} (defaults)")), None)


def legend(baseline: str | None) -> str:
    """Returns what the columns of such a table are."""
    return LEGEND.format(baseline=baseline) if baseline else "Mean ± standard deviation over the seeds."


LEGEND = """\
Mean ± standard deviation over the seeds. "- {baseline}": difference from {baseline} ± half the width of its 95 %
interval. One linear model serves a table (encoding + seed, with one error for all runs): where encodings have
different seeds, its differences are not quite those of the means. Intervals and p are Dunnett's for several encodings
against one, and hold where all runs spread alike. The verdict is "not distinguishable" unless p < 0.05."""


def missing_seeds(values: Values, wanted: Iterable[int] = ()) -> list[str]:
    """Says which seeds are missing that other encodings have, or that are wanted: a line for each group of seeds."""
    every = sorted(set(wanted).union(*values.values()))
    lacking: dict[str, list[str]] = {}
    for encoding, of_seed in values.items():
        lacking.setdefault(", ".join(str(seed) for seed in every if seed not in of_seed), []).append(encoding)
    return [f"no seed {seeds}: {', '.join(encodings)}" for seeds, encodings in lacking.items() if seeds]


def write(
    path: str | Path, baseline: str | None, figures: Mapping[str, Mapping[str, Mapping[int, float | None]]]
) -> None:
    """Writes what other documents quote: {"baseline": ..., "figures": {what it is: {encoding: {seed: value}}}}."""
    write_json(path, {"baseline": baseline, "figures": figures})


def read(path: str | Path) -> tuple[str | None, dict[str, dict[str, dict[int, float]]]]:
    """Returns the baseline and the figures of such a file; values that are None are left out."""
    found = json.loads(Path(path).read_text(encoding="utf-8"))
    return found["baseline"], {
        what: {
            encoding: {int(seed): value for seed, value in of_seed.items() if value is not None}
            for encoding, of_seed in values.items()
        }
        for what, values in found["figures"].items()
    }
