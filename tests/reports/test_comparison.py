"""Statistics of a comparison, against formulas written out and published figures."""

import math
from statistics import mean, stdev

import pytest

from fairseq_relpos.reports import comparison

#: two-sided critical values of Student's t at 5 %, from a printed table
STUDENT = {2: 12.706, 3: 4.303, 5: 2.776}


def values_of(**by_encoding):
    return {name: dict(enumerate(values, 1)) for name, values in by_encoding.items()}


@pytest.mark.parametrize("theirs", [[3.0, 3.4], [3.0, 3.4, 2.9], [3.0, 3.4, 2.9, 3.1, 2.2]])
def test_the_interval_is_students_of_the_paired_differences(theirs):
    ours = [2.5, 3.3, 2.7, 2.6, 2.1][: len(theirs)]
    found = comparison.differences(values_of(base=theirs, other=ours), "base")["other"]
    each = [our - their for our, their in zip(ours, theirs)]
    assert found.mean == pytest.approx(mean(each)) and found.seeds == len(each)
    assert found.half_width == pytest.approx(STUDENT[len(each)] * stdev(each) / len(each) ** 0.5, rel=1e-3)
    # the interval leaves 0 out just where the p value, without a correction, is below 5 %
    assert (found.p_value < 0.05) == (abs(found.mean) > found.half_width)


def test_pairs_are_of_one_seed_whatever_their_order():
    values = {"base": {3: 1.0, 1: 2.0, 2: 4.0}, "other": {1: 1.0, 2: 3.5, 3: 0.25, 9: 77.0}}
    found = comparison.differences(values, "base")["other"]
    assert found.mean == pytest.approx(mean([-1, -0.5, -0.75])) and found.seeds == 3


def test_holms_correction():
    # Holm's steps by hand: 4 x .005, 3 x .01, 2 x .03, and .04, which must not fall below the one before
    raw = {"d": 0.04, "a": 0.005, "c": 0.03, "b": 0.01}
    found = comparison.corrected({name: comparison.Difference(1.0, 3, 1.0, p) for name, p in raw.items()})
    assert {n: round(d.corrected, 9) for n, d in found.items()} == {"a": 0.02, "b": 0.03, "c": 0.06, "d": 0.06}
    assert [found[name].verdict for name in "abcd"] == [
        "higher",
        "higher",
        "not distinguishable",
        "not distinguishable",
    ]


def test_one_seed_says_nothing_and_does_not_count_in_the_correction():
    values = {"base": {1: 1.0, 2: 1.1, 3: 1.2}, "x": {1: 0.5, 2: 0.6, 3: 0.69}, "y": {1: 0.1}}
    found = comparison.differences(values, "base")
    assert found["x"].corrected == found["x"].p_value < 0.05 and found["x"].verdict == "lower"
    assert found["y"].half_width == math.inf and found["y"].verdict == "not distinguishable"
    assert found["y"].text() == "-0.900"
    assert "| y | 1 | 0.100 | -0.900 |  | one seed |" in comparison.table(values, "base", "loss")


def test_equal_differences_have_no_deviation_to_divide_by():
    found = comparison.differences(values_of(base=[1, 2, 3], same=[1, 2, 3], shifted=[2, 3, 4]), "base")
    assert found["same"].verdict == "not distinguishable" and found["shifted"].verdict == "higher"
    assert comparison.difference([2, 3], [1, 2]).verdict == "not distinguishable"  # two seeds are no evidence of that
    with pytest.raises(ValueError, match="no difference of 1, nan, 1, 2: a run that diverged counts apart"):
        comparison.difference([1, math.nan], [1, 2])


def test_the_table_has_the_baseline_first_and_says_what_is_missing():
    values = {"z": {1: 1.0, 2: 1.5}, "base": {1: 1.0, 2: 1.25, 3: 2.0}, "lone": {7: 1.0}}
    lines = comparison.table(values, "base", "loss (nats)", digits=2).splitlines()
    assert lines[0] == "| encoding | seeds | loss (nats) | - base | p | verdict |"
    assert lines[2] == "| base | 1 2 3 | 1.42 ± 0.52 | the baseline |  |  |"
    assert lines[3] == "| lone | 7 | 1.00 | no common seed |  |  |"
    assert lines[4].startswith("| z | 1 2 | 1.25 ± 0.35 | +0.12 ± 1.59 |")
    assert comparison.missing_seeds(values) == ["z: no seed 3, 7", "base: no seed 7", "lone: no seed 1, 2, 3"]
    assert comparison.missing_seeds({"z": {1: 1.0}}, [1, 2]) == ["z: no seed 2"]


def test_a_baseline_without_runs_is_named():
    with pytest.raises(ValueError, match="no run of the baseline t5: there are learned, none"):
        comparison.differences(values_of(none=[1], learned=[2]), "t5")
    assert comparison.table(values_of(none=[1]), None, "loss").splitlines()[::2] == [
        "| encoding | seeds | loss |",
        "| none | 1 | 1.000 |",
    ]


def test_what_is_written_is_read_without_what_is_not_known(tmp_path):
    comparison.write(tmp_path / "a.json", "t5", {"updates": {"t5": {1: 200, 2: None}}})
    assert comparison.read(tmp_path / "a.json") == ("t5", {"updates": {"t5": {1: 200}}})
