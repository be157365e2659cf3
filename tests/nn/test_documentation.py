"""The examples for plain PyTorch in the documentation run, with torch alone."""

import re
from pathlib import Path

import pytest
import torch

from fairseq_relpos.nn import Cache

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def examples():
    page = (ROOT / "docs/pytorch.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)


def test_the_classifier_learns_what_only_the_order_tells(examples, capsys):
    names = {}
    exec(examples[0], names)
    assert names["accuracy"] > 0.95 and capsys.readouterr().out == f"{names['accuracy']:.0%}\n"


def test_torchs_encoder_knows_the_order_after_the_attention_is_swapped(examples):
    names = {}
    exec(examples[1], names)
    model, x, pads = names["model"].eval(), names["x"], names["pads"]
    order = torch.tensor([1, 0, *range(2, 10)])
    assert not torch.allclose(model(x)[:, 2:], model(x[:, order])[:, 2:], atol=1e-5)
    assert names["out"].shape == x.shape
    torch.testing.assert_close(model(x, src_key_padding_mask=pads)[1, :7], model(x[1:, :7])[0])


def test_the_language_model_generates_with_a_cache_what_it_predicts_without(examples):
    names = {}
    exec(examples[2], names)
    assert names["tokens"].shape == (2, 23)
    model, tokens = names["model"], names["tokens"]
    cache, out = Cache(), []
    for part in tokens.split(1, 1):
        out.append(model(part, cache))
    torch.testing.assert_close(torch.cat(out, 1), names["whole"])


def test_the_lines_of_the_readme_run():
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"^```python\n(import torch\nfrom fairseq_relpos.nn .*?)^```$", page, re.M | re.S)
    names = {}
    exec(lines, names)
    assert names["out"].shape == (2, 9, 512)
