"""docs/claims.md: verdicts from figures that are made up, and the papers and encodings that it names."""

import configparser
from pathlib import Path

import pytest

from fairseq_relpos.encodings import ENCODINGS
from fairseq_relpos.references import bibliography
from fairseq_relpos.reports import differences

ROOT = Path(__file__).parents[1]


@pytest.fixture
def claims(script_module, monkeypatch, tmp_path):
    module = script_module("claims")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def section(**changes):
    text = {"claim": "x", "theirs": "1, 2; Table 1", "recipe": "small", "figure": "loss on", "ours": "m4"}
    return {**text, "against": "shaw", "better": "lower", **changes}


@pytest.mark.parametrize(
    "ours, better, verdict",
    [
        ([1.0, 1.1, 1.2], "lower", "supported"),
        ([1.0, 1.1, 1.2], "higher", "contradicted at this scale"),
        ([3.0, 3.1, 3.21], "lower", "contradicted at this scale"),
        ([1.0, 2.4, 2.2], "lower", "not distinguishable"),
        ([1.0], "lower", "too few seeds"),
    ],
)
def test_a_verdict_needs_seeds_and_looks_at_the_direction(claims, tmp_path, ours, better, verdict):
    (tmp_path / "examples/small").mkdir(parents=True)
    values = {"m4": dict(enumerate(ours, 1)), "shaw": {1: 2.0, 2: 2.11, 3: 2.2}}
    differences.write(tmp_path / "examples/small/results.json", "shaw", {"loss on news": values, "gap": {}})
    found = claims.Test(section(better=better)).row("M4")
    assert found[0] == "**M4**: x" and found[2].startswith("loss on news: ") and found[-1] == verdict
    assert found[4] == " ".join(map(str, range(1, len(ours) + 1)))


def test_a_pair_with_more_spread_than_usual_is_tested_by_its_own_runs(claims, tmp_path):
    (tmp_path / "examples/small").mkdir(parents=True)
    shaw, t5, rope = ({1: y, 2: y + 0.03, 3: y + 0.01} for y in (2.0, 2.5, 2.7))
    values = {"m4": {1: 1.0, 2: 1.1, 3: 0.95}, "shaw": shaw, "t5": {1: 2.5, 2: 2.51, 3: 2.54}, "rope": rope}
    values["m1"] = {1: 3.0, 2: 3.05, 3: 3.0}
    differences.write(tmp_path / "examples/small/results.json", "shaw", {"loss on news": values})
    test = claims.Test(section())
    ours, theirs = ([values[name][seed] for seed in (1, 2, 3)] for name in ("m4", "shaw"))
    assert test.difference == differences.paired(ours, theirs)
    verdict = test.row("M4")[-1]
    assert verdict.startswith("supported") and "by these runs alone" in verdict and "`m4`" in verdict
    values["constant"] = {1: 9.0, 2: 9.0, 3: 9.0}
    differences.write(tmp_path / "examples/small/results.json", "shaw", {"loss on news": values})
    assert claims.Test(section(against="constant")).row("M4")[-1] == "not tested: no spread"
    *_, verdict = claims.Test(section(ours="t5", better="higher")).row("T5")
    assert verdict == "supported"


def test_a_run_that_never_got_there_is_named(claims, tmp_path):
    (tmp_path / "examples/small").mkdir(parents=True)
    loss = {"m4": {1: 1.0, 2: 1.1, 3: 1.2}, "shaw": {1: 2.0, 2: 2.1, 3: 2.2}}
    soon = {"m4": {1: 200, 2: None, 3: 300}, "shaw": {1: 400, 2: 400, 3: 400}}  # and 4 has no figure yet
    loss["m4"][4] = 1.3
    figures = {"loss": loss, "updates until there": soon}
    differences.write(tmp_path / "examples/small/results.json", "shaw", figures)
    assert claims.Test(section(figure="updates until")).row("M4")[4] == "1 3 (seed 2 of `m4` never reached it)"
    assert claims.Test(section(figure="loss")).row("M4")[4] == "1 2 3"


def test_without_runs_the_command_is_named(claims, tmp_path):
    without = "no runs yet: `bash examples/small/compare.sh m4 shaw`"
    assert claims.Test(section()).row("M4")[2:] == [without, "", "", "", "not tested"]
    (tmp_path / "examples/small").mkdir(parents=True)
    differences.write(tmp_path / "examples/small/results.json", "shaw", {"loss on news": {"shaw": {1: 2.0}}})
    assert claims.Test(section()).row("M4")[2] == without


def test_claims_name_papers_encodings_and_recipes_that_there_are():
    found = configparser.ConfigParser(interpolation=None)
    found.read(ROOT / "docs/claims.ini", encoding="utf-8")
    assert len(found.sections()) >= 10
    for title in found.sections():
        claim = found[title]
        encodings = {claim[key].partition(" ")[0] for key in ("ours", "against")}  # without their flags
        assert claim["paper"] in bibliography() and encodings <= set(ENCODINGS), title
        assert (ROOT / "examples" / claim["recipe"] / "compare.sh").exists() and claim["better"] in ("lower", "higher")
        assert (ROOT / "examples" / claim.get("runs", claim["recipe"]) / "RESULTS.md").exists(), title


def test_the_runs_of_a_claim_may_have_a_folder_of_their_own(claims, tmp_path):
    (tmp_path / "examples/small/longer").mkdir(parents=True)
    values = {"m4": {1: 1.0}, "shaw": {1: 2.0}}
    differences.write(tmp_path / "examples/small/longer/results.json", "shaw", {"loss on news": values})
    assert claims.Test(section(runs="small/longer")).row("M4")[2].startswith("loss on news: 1.000")
