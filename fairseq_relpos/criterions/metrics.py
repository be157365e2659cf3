"""The scores of predictions, computed by scikit-learn and scipy in full precision. All are fractions, not percentages.

``accuracy``; ``f1``, that of class 1; ``f1_N``, that of class N; ``mcc``, Matthews' correlation; ``pearson`` and
``spearman``. ``accuracy_f1`` and ``pearson_spearman`` are the mean of the two that they name, as GLUE averages them.
"""

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..diverged import Diverged

#: of classes, of numbers; an average names its parts
OF_CLASSES = ("accuracy", "f1", "mcc", "accuracy_f1")
OF_NUMBERS = ("pearson", "spearman", "pearson_spearman")
AVERAGES = {"accuracy_f1": ("accuracy", "f1"), "pearson_spearman": ("pearson", "spearman")}
_F1 = re.compile(r"f1(?:_(\d+))?")


def check_names(names: Sequence[str], regression: bool) -> None:
    """Raises ValueError for a metric that there is not, or that is not for this kind of label."""
    known = OF_NUMBERS if regression else OF_CLASSES
    for name in names:
        if name not in known and (regression or not _F1.fullmatch(name)):
            labels = "numbers" if regression else "classes"
            raise ValueError(
                f"metric {name!r} is none for labels that are {labels}: give {', '.join(known)}"
                + ("" if regression else ", or f1_N for class N")
            )


def check_classes(names: Sequence[str], classes: int) -> None:
    """Raises ValueError for ``f1_N`` of a class that there is not, whose score is always 0."""
    for name in names:
        f1 = _F1.fullmatch(name)
        if f1 and int(f1[1] or 1) >= classes:
            raise ValueError(f"metric {name!r}, but there are {classes} classes: give f1_0 to f1_{classes - 1}")


def score(name: str, predictions: npt.ArrayLike, targets: npt.ArrayLike) -> float:
    """The score of all predictions together. A correlation with predictions that are all equal is not defined; it
    counts as 0. Raises Diverged for predictions that are not finite."""
    if name in AVERAGES:
        return float(np.mean([score(part, predictions, targets) for part in AVERAGES[name]]))
    found, wanted = np.asarray(predictions), np.asarray(targets)
    if len(found) != len(wanted) or not len(found):
        raise ValueError(f"{len(found)} predictions for {len(wanted)} examples: one for each is needed")
    need_finite(found)
    f1 = _F1.fullmatch(name)
    if f1:
        from sklearn.metrics import f1_score

        label = int(f1[1] or 1)
        return float(f1_score(wanted, found, labels=[label], average="macro", zero_division=0))
    if name in OF_CLASSES:
        from sklearn.metrics import accuracy_score, matthews_corrcoef

        return float((accuracy_score if name == "accuracy" else matthews_corrcoef)(wanted, found))
    check_names([name], regression=True)
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    if np.ptp(found) == 0 or np.ptp(wanted) == 0:
        return 0.0
    from scipy import stats

    return float((stats.pearsonr if name == "pearson" else stats.spearmanr)(found, wanted)[0])


def need_finite(values: npt.ArrayLike) -> None:
    """Raises Diverged if one is NaN or infinite."""
    if not np.isfinite(np.asarray(values)).all():
        raise Diverged("predictions are not finite: the run has diverged. Try a smaller --lr")


def scores(
    predictions: npt.ArrayLike, targets: npt.ArrayLike, regression: bool, classes: int = 2, metric: str = "loss"
) -> dict[str, float]:
    """Every score that is defined for these labels, by name, and ``metric``, which chose the model. ``f1_N``, and
    ``f1`` of more than two classes, are left out otherwise."""
    known = OF_NUMBERS if regression else OF_CLASSES
    names = [name for name in known if classes == 2 or "f1" not in name or name == metric]
    if metric not in known and _F1.fullmatch(metric):
        names.append(metric)
    return {name: score(name, predictions, targets) for name in names}
