"""Which encodings differ from a baseline: the statistics of every comparison of runs that differ in encoding and seed.

Runs of one seed begin with the same common weights and see the same batches, so the difference from the baseline is
taken seed by seed. Its 95 % interval and its p value are those of Student's t. Where several encodings are compared
with one baseline, Holm's correction keeps the chance that any of them is called different by mistake below 5 %.
"""

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from ..atomic_files import whole_file
from .losses import markdown, with_deviation

LEVEL, ALPHA = 0.95, 0.05
HIGHER, LOWER, SAME = "higher", "lower", "not distinguishable"

#: encoding -> seed -> a figure of the run: a loss, an accuracy, BLEU
Values = Mapping[str, Mapping[int, float]]


@dataclass(frozen=True)
class Difference:
    """An encoding's difference from the baseline, over the seeds that both have."""

    mean: float
    seeds: int
    #: half the width of the 95 % interval; infinite with one seed
    half_width: float = math.inf
    #: of the hypothesis that there is no difference
    p_value: float = 1.0
    #: the same after Holm's correction over all encodings that are compared
    corrected: float = 1.0

    @property
    def verdict(self) -> str:
        """``higher`` or ``lower`` where the corrected p value is below 5 %."""
        if self.corrected >= ALPHA:
            return SAME
        return HIGHER if self.mean > 0 else LOWER

    def judged(self) -> tuple[str, str]:
        """p and the verdict, as a table has them."""
        if self.seeds == 1:
            return "", "one seed"
        return "< 0.001" if self.corrected < 0.001 else f"{self.corrected:.3f}", self.verdict

    def text(self, digits: int = 3) -> str:
        """-0.250 ± 0.031: the mean and half the width of the interval."""
        if self.seeds == 1:
            return f"{self.mean:+.{digits}f}"
        return f"{self.mean:+.{digits}f} ± {self.half_width:.{digits}f}"


def differences(values: Values, baseline: str | None) -> dict[str, Difference]:
    """Returns the difference of each other encoding that has a seed in common with the baseline; none without one."""
    if baseline is None:
        return {}
    if baseline not in values:
        raise ValueError(f"no run of the baseline {baseline}: there are {', '.join(sorted(values))}")
    found = {}
    for encoding, of_seed in values.items():
        seeds = sorted(of_seed.keys() & values[baseline].keys())
        if encoding != baseline and seeds:
            found[encoding] = difference([of_seed[seed] for seed in seeds], [values[baseline][seed] for seed in seeds])
    return corrected(found)


def difference(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    """Returns the difference of paired figures: Student's t test, without a correction."""
    from scipy.stats import ttest_rel

    each = [our - their for our, their in zip(ours, theirs, strict=True)]
    if not all(map(math.isfinite, each)):
        raise ValueError(f"no difference of {', '.join(map(str, [*ours, *theirs]))}: a run that diverged counts apart")
    if len(each) == 1:
        return Difference(each[0], 1)
    if len(set(each)) == 1:  # no deviation, which the test divides by
        p_value = float(each[0] == 0 or len(each) < 3)
        return Difference(each[0], len(each), 0.0, p_value, p_value)
    test = ttest_rel(ours, theirs)
    low, high = test.confidence_interval(LEVEL)
    return Difference(mean(each), len(each), (high - low) / 2, test.pvalue, test.pvalue)


def corrected(found: Mapping[str, Difference]) -> dict[str, Difference]:
    """Returns the differences with Holm's correction (Holm 1979): the smallest of m p values times m, the next times
    m - 1, and so on, never below the one before. Differences of one seed say nothing and do not count."""
    tested = sorted((name for name, one in found.items() if one.seeds > 1), key=lambda name: found[name].p_value)
    result, largest = dict(found), 0.0
    for number, name in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - number) * found[name].p_value))
        result[name] = replace(found[name], corrected=largest)
    return result


def table(values: Values, baseline: str | None, figure: str, digits: int = 3) -> str:
    """Returns a Markdown table with a row for each encoding, the baseline first. ``figure``: what the values are.
    Without a baseline there are no differences."""
    return markdown(*cells(values, baseline, figure, digits))


def cells(values: Values, baseline: str | None, figure: str, digits: int = 3) -> tuple[list[str], list[list[str]]]:
    """Returns the head and the rows of such a table."""
    found = differences(values, baseline)
    head = ["encoding", "seeds", figure, *([] if baseline is None else [f"- {baseline}", "p", "verdict"])]
    rows = []
    for encoding in sorted(values, key=lambda name: (name != baseline, name)):
        of_seed = values[encoding]
        row = [
            encoding,
            " ".join(map(str, sorted(of_seed))),
            with_deviation([of_seed[seed] for seed in sorted(of_seed)], digits),
        ]
        one = found.get(encoding)
        if baseline is None:
            pass
        elif one is None:
            row += ["the baseline" if encoding == baseline else "no common seed", "", ""]
        else:
            row += [one.text(digits), *one.judged()]
        rows.append(row)
    return head, rows


def find_baseline(encodings: Collection[str], name: str) -> str | None:
    """Returns the encoding that is called so, also where other variants of it are compared; None if there is none."""
    return next((one for one in encodings if one in (name, f"{name} (defaults)")), None)


#: what stands under such a table
LEGEND = """\
Mean ± standard deviation over the seeds. "- {baseline}": mean difference from {baseline} seed by seed ± half the
width of its 95 % interval (Student's t). p: of that difference, with Holm's correction over the encodings of the
table. The verdict is "not distinguishable" unless p < 0.05."""


def missing_seeds(values: Values, wanted: Iterable[int] = ()) -> list[str]:
    """Says which encodings lack a seed that others have, or that is wanted."""
    every = sorted(set(wanted).union(*values.values()))
    gaps = {encoding: [seed for seed in every if seed not in of_seed] for encoding, of_seed in values.items()}
    return [f"{encoding}: no seed {', '.join(map(str, lacks))}" for encoding, lacks in gaps.items() if lacks]


def write(
    path: str | Path, baseline: str | None, figures: Mapping[str, Mapping[str, Mapping[int, float | None]]]
) -> None:
    """Writes what other documents quote: {"baseline": ..., "figures": {what it is: {encoding: {seed: value}}}}."""
    with whole_file(path) as part:
        Path(part).write_text(json.dumps({"baseline": baseline, "figures": figures}, indent=1) + "\n", encoding="utf-8")


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
