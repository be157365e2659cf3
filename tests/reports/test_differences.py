"""Statistics of a comparison, against formulas written out and published figures."""

import math
from statistics import mean, stdev

import pytest

from fairseq_relpos.reports import differences

#: two-sided critical values of Student's t at 5 %, from a printed table
STUDENT = {2: 12.706, 3: 4.303, 5: 2.776}


def values_of(**by_encoding):
    return {name: dict(enumerate(values, 1)) for name, values in by_encoding.items()}


def test_one_pair_alone_is_students_test_of_paired_differences():
    theirs, ours = [3.0, 3.4, 2.9, 3.1, 2.2], [2.5, 3.3, 2.7, 2.6, 2.1]
    for count in (3, 5):
        found = differences.from_baseline(values_of(base=theirs[:count], other=ours[:count]), "base")["other"]
        each = [our - their for our, their in zip(ours[:count], theirs)]
        assert found.mean == pytest.approx(mean(each)) and found.seeds == count
        assert found.half_width == pytest.approx(STUDENT[count] * stdev(each) / count**0.5, rel=1e-3)
        # the interval leaves 0 out just where the p value is below 5 %
        assert (found.p_value < 0.05) == (abs(found.mean) > found.half_width)


def test_all_runs_of_a_table_share_one_error():
    """Figures of a randomised block design, with sums of squares written out: rows minus means of rows and columns."""
    values = values_of(base=[4.0, 4.2, 4.5], x=[3.1, 3.5, 3.6], y=[3.9, 4.3, 4.6], z=[2.0, 2.1, 2.5])
    rows = [[*of_seed.values()] for of_seed in values.values()]
    whole = mean(map(mean, rows))
    columns = [mean(column) for column in zip(*rows)]
    squares = sum((y - mean(row) - columns[j] + whole) ** 2 for row in rows for j, y in enumerate(row))
    model = differences.Model(values)
    assert differences.note_of(values, "base").endswith(f"{model.deviation:.2g}, 6 degrees of freedom.")
    assert model.degrees == (4 - 1) * (3 - 1) and model.deviation == pytest.approx((squares / 6) ** 0.5)
    found = differences.from_baseline(values, "base")
    assert found["x"].mean == pytest.approx(mean(rows[1]) - mean(rows[0]))
    # Dunnett's critical value for three against one with 6 degrees of freedom is 3.10 in the printed table
    assert found["x"].half_width == pytest.approx(3.10 * model.deviation * (2 / 3) ** 0.5, rel=0.005)
    assert [found[name].verdict for name in "xyz"] == ["lower", "not distinguishable", "lower"]


@pytest.mark.parametrize(
    "degrees, others, critical", [(10, 2, 2.57), (10, 3, 2.76), (20, 2, 2.38), (20, 3, 2.54), (20, 4, 2.65)]
)
def test_critical_values_are_those_of_dunnetts_table(degrees, others, critical):
    correlations = [[1.0 if i == j else 0.5 for j in range(others)] for i in range(others)]
    joint = differences.Joint(correlations, degrees)
    assert joint.critical == pytest.approx(critical, abs=0.01)
    assert joint.p_value(joint.critical) == pytest.approx(0.05, abs=1e-3)


def test_more_seeds_of_some_encodings_narrow_their_intervals():
    four = {n: {1: 1.0 + n, 2: 1.21 + n, 3: 1.29 + n, 4: 1.43 + n, 5: 1.5 + n} for n in range(3)}
    few = {
        name: {seed: y + 0.01 * (name * seed % 3) for seed, y in of.items() if seed < 4 or name < 2}
        for name, of in four.items()
    }
    found = differences.from_baseline(few, 0)
    assert (found[1].seeds, found[2].seeds) == (5, 3) and found[1].half_width < found[2].half_width


@pytest.mark.parametrize("effect, seeds", [(0.5, 34), (0.8, 15), (1.0, 10)])
def test_the_seeds_that_a_difference_needs_are_those_of_the_paired_tests_in_print(effect, seeds):
    """Sample sizes of the paired t test, two-sided, 5 %, power 80 %, by its standardised effect, as in G*Power."""
    model = differences.Model(values_of(base=[3.0, 3.4, 2.9], other=[2.5, 3.3, 2.7]))
    assert model.seeds_needed(effect * model.deviation * 2**0.5) == seeds
    with pytest.raises(ValueError, match="above 0"):
        model.seeds_needed(0.0)


def test_a_row_with_another_spread_is_named_and_has_no_part_in_the_error():
    usual = values_of(base=[4.0, 4.03, 4.01], x=[3.5, 3.52, 3.54], y=[3.6, 3.65, 3.6], z=[3.7, 3.7, 3.74])
    values = {**usual, "lost": {1: 3.9, 2: 4.7, 3: 3.9}, "lost_too": {1: 3.9, 2: 4.8, 3: 3.95}}
    model = differences.Model(values)
    assert model.aside == ["lost", "lost_too"] and model.deviation == differences.Model(usual).deviation
    assert "`lost`, `lost_too`" in differences.note_of(values, "base")
    found = differences.from_baseline(values, "base")
    assert found["lost"].half_width == math.inf and found["lost"].judged() == ("", "not tested: unequal spread")
    assert found["x"].half_width == differences.from_baseline(usual, "base")["x"].half_width


def test_an_outlier_at_a_seed_of_two_encodings_sets_only_one_aside():
    noise = {1: 0.01, 2: -0.01, 3: 0.004}
    values = {name: {s: level + x for s, x in noise.items()} for level, name in enumerate(("a", "b", "c", "d"))}
    for number, of_seed in enumerate(values.values()):
        of_seed[1] += 0.002 * number
    values["a"][4], values["b"][4] = -0.003, 2.0
    assert differences.Model(values).aside == ["b"]


def test_a_row_that_spreads_more_than_twice_as_much_as_usual_is_named_as_such():
    values = values_of(base=[4.0, 4.03, 4.01], x=[3.5, 3.52, 3.54], y=[3.6, 3.65, 3.6], wide=[3.7, 3.8, 3.65])
    model = differences.Model(values)
    assert (model.wide, model.aside) == (["wide"], [])
    assert "usual: `wide`. Their intervals may be too narrow" in differences.note_of(values, "base")
    assert "usual: `wide`. The baseline is one of them, so that all intervals" in differences.note_of(values, "wide")
    assert "do not show whether" not in differences.note_of(values, "base")
    few = {name: values[name] for name in ("base", "x", "wide")}
    assert "So few encodings do not show whether their runs spread alike" in differences.note_of(few, "base")
    pair = {name: values[name] for name in ("base", "wide")}
    assert "do not show whether" not in differences.note_of(pair, "base")
    assert differences.from_baseline(values, "base")["wide"].half_width < math.inf


def test_a_row_without_spread_has_no_part_in_the_error_and_no_interval():
    usual = values_of(base=[0.9, 0.93, 0.91], x=[0.8, 0.82, 0.84], y=[0.6, 0.65, 0.6])
    values = {**usual, "perfect": {1: 1.0, 2: 1.0, 3: 1.0}}
    found = differences.from_baseline(values, "base")
    assert found["perfect"].judged() == ("", "not tested: no spread")
    assert found["perfect"].mean == pytest.approx(1 - 2.74 / 3)
    assert found["x"].half_width == differences.from_baseline(usual, "base")["x"].half_width
    note = differences.note_of(values, "base")
    assert "the same figure: `perfect`." in note and "common seeds" in note
    # in a pair, the paired differences spread
    assert differences.paired([4000, 4000, 2000], [6000, 6000, 6000]).half_width < math.inf
    assert differences.from_baseline(values_of(base=[1.0] * 3, x=[1.0] * 3, y=[1.0] * 3), "base")["x"].judged() == (
        "",
        "not tested: no spread",
    )


def test_figures_that_no_run_has_reached_have_no_differences():
    assert differences.from_baseline({"base": {}, "x": {}}, "base") == {}


def test_pairs_are_of_one_seed_whatever_their_order():
    values = {"base": {3: 1.0, 1: 2.0, 2: 4.0}, "other": {1: 1.0, 2: 3.5, 3: 0.25, 9: 77.0}}
    found = differences.from_baseline(values, "base")["other"]
    assert found.mean == pytest.approx(mean([-1, -0.5, -0.75])) and found.seeds == 3


def test_holms_correction():
    # Holm's steps by hand: 4 x .005, 3 x .01, 2 x .03, and .04, which must not fall below the one before
    assert differences.holm([0.04, 0.005, 0.03, 0.01]) == pytest.approx([0.06, 0.02, 0.06, 0.03])


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_seeds_have_no_interval(count):
    values = {
        "base": {1: 1.0, 2: 1.1, 3: 1.2},
        "x": {1: 0.5, 2: 0.6, 3: 0.69},
        "y": dict.fromkeys(range(1, count + 1), 0.1),
    }
    found = differences.from_baseline(values, "base")
    assert found["x"].verdict == "lower" and found["x"].half_width < math.inf
    assert found["y"].half_width == math.inf and found["y"].verdict == "not distinguishable"
    assert found["y"].judged() == ("", "too few seeds") and "±" not in found["y"].text()


def test_equal_differences_leave_no_error_to_judge_by():
    found = differences.from_baseline(values_of(base=[1, 2, 3], same=[1, 2, 3], shifted=[2, 3, 4]), "base")
    assert {one.judged() for one in found.values()} == {("", "no error")}
    with pytest.raises(ValueError, match="nan.*a run that diverged counts apart"):
        differences.paired([1, math.nan], [1, 2])


def test_the_table_has_the_baseline_first_and_says_what_is_missing():
    values = {"z": {1: 1.0, 2: 1.5}, "base": {1: 1.0, 2: 1.25, 3: 2.0}, "lone": {7: 1.0}}
    lines = differences.table(values, "base", "loss (nats)", digits=2).splitlines()
    assert lines[0] == "| encoding | seeds | loss (nats) | - base | p | verdict |"
    assert lines[2] == "| base | 1 2 3 | 1.42 ± 0.52 | the baseline |  |  |"
    assert lines[3] == "| lone | 7 | 1.00 | no common seed |  |  |"
    assert lines[4:] == ["| z | 1 2 | 1.25 ± 0.35 | +0.12 |  | too few seeds |"]  # no interval, so no common error
    assert differences.missing_seeds(values) == ["no seed 3, 7: z", "no seed 7: base", "no seed 1, 2, 3: lone"]
    assert differences.missing_seeds({"z": {1: 1.0}, "y": {1: 2.0}}, [1, 2]) == ["no seed 2: z, y"]


def test_the_legend_names_no_baseline_where_there_is_none():
    assert "difference from t5" in differences.legend("t5") and "difference" not in differences.legend(None)


def test_a_baseline_without_runs_is_named():
    with pytest.raises(ValueError, match="no run of the baseline t5: there are learned, none"):
        differences.from_baseline(values_of(none=[1], learned=[2]), "t5")
    assert differences.table(values_of(none=[1]), None, "loss").splitlines()[::2] == [
        "| encoding | seeds | loss |",
        "| none | 1 | 1.000 |",
    ]


def test_what_is_written_is_read_without_what_is_not_known(tmp_path):
    differences.write(tmp_path / "a.json", "t5", {"updates": {"t5": {1: 200, 2: None}}})
    assert differences.read(tmp_path / "a.json") == ("t5", {"updates": {"t5": {1: 200}}})
