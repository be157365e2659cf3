"""The documentation says what the code says."""

import itertools
import re
from pathlib import Path

import pythons
import torch
from loops import scale_up

from fairseq_relpos.encodings import ENCODINGS, Dims, build, names_for
from fairseq_relpos.positions import Positions
from fairseq_relpos.terms import evaluate

ROOT = Path(__file__).parents[1]


def test_generated_pages_are_up_to_date():
    pythons.output(ROOT / "scripts/make_docs.py", "--check")


def test_pages_with_measured_figures_say_what_the_results_say(benchmark_module):
    report = benchmark_module("report")
    stale = [path.name for path, text in report.pages().items() if path.read_text(encoding="utf-8") != text]
    assert not stale, "run python benchmarks/report.py"


def test_the_page_on_language_models_says_of_every_encoding_what_it_does_with_a_memory():
    page = (ROOT / "docs/language-models.md").read_text(encoding="utf-8")
    _, table = page.split("### What each encoding does with it\n")
    named = [line.split("|")[1] for line in table.split("###")[0].splitlines() if line.startswith("| `")]
    assert sorted(re.findall("`(.+?)`", " ".join(named))) == sorted(ENCODINGS)


def tells_left_from_right(name):
    """Whether a text that is read backwards has other logits, or other position vectors, than the text has."""
    torch.manual_seed(0)
    encoding = scale_up(build(name, Dims(8, 2, 9, padding_idx=1)).double())
    q, k = torch.randn(2, 1, 2, 7, 4, dtype=torch.float64)
    forwards, backwards = (
        evaluate(encoding.terms(*pair, Positions.of(7, 7))) for pair in ((q, k), (q.flip(2), k.flip(2)))
    )
    if not torch.allclose(forwards.flip(2, 3), backwards, atol=1e-9):
        return True
    vectors = None if encoding.stack is None else encoding.embed(torch.full((1, 7), 5))
    return vectors is not None and not torch.allclose(vectors.flip(1), vectors)


def test_the_page_on_choosing_says_which_encodings_cannot_tell_left_from_right():
    page = (ROOT / "docs/choosing.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| left and right")]
    named = {name for name in re.findall("`(.+?)`", row) if name in ENCODINGS}
    bidirectional = names_for(causal=False)
    assert named == {name for name in ENCODINGS if name in bidirectional and not tells_left_from_right(name)}
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace("\n", " ")
    said = re.search('"Distance" is .*? use its size alone', readme)[0]
    assert {*re.findall("`(.+?)`", said), "none"} == named


def test_every_link_to_a_file_leads_somewhere():
    places = "*.md", "docs/*.md", "examples/**/*.md", "benchmarks/*.md"
    for page in itertools.chain.from_iterable(map(ROOT.glob, places)):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_example_of_an_encoding_passes_its_own_test_and_takes_given_positions():
    page = (ROOT / "docs/adding-an-encoding.md").read_text(encoding="utf-8")
    encoding, *others = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    (test,) = [block for block in others if "def test_mine" in block]
    try:
        exec(encoding, {"__name__": "mine", "__package__": "fairseq_relpos.encodings"})
        names = {}
        exec(test, names)
        names["test_mine_falls_with_the_distance"]((7, 7))
        q, k = torch.randn(2, 1, 2, 3, 4)
        ids = torch.tensor([[0, 2, 7]])
        logits = evaluate(build("mine", Dims(8, 2, 9)).terms(q, k, Positions.of(3, 3, position_ids=ids)))
        torch.testing.assert_close(logits, q @ k.mT / 2 - 0.5 * (ids[0] - ids[0, :, None]).abs())
    finally:
        ENCODINGS.pop("mine", None)
