"""The committed test vectors, and other implementations against them."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from refusals import assert_refused

from fairseq_relpos import vectors
from fairseq_relpos.cli import main
from fairseq_relpos.encodings import ENCODINGS

ROOT = Path(__file__).parents[1]
COMMITTED = ROOT / "tests/fixtures/vectors"
OWN = """
from fairseq_relpos import vectors

def same(case):
    return vectors.ours(case)

def logits_alone(case):
    return {"logits": vectors.ours(case)["logits"].detach().numpy()}

def none(case):
    q, k, v = (case.inputs[name] for name in "qkv")
    e = (q @ k.mT / 2).masked_fill(~case.inputs["visible"][:, None], -1e9)
    return {"out": (e.softmax(-1) @ v).transpose(1, 2).flatten(2)}

def a_little_off(case):
    return {name: 1.0001 * x for name, x in vectors.ours(case).items()}

def nan(case):
    return {"logits": float("nan") * vectors.ours(case)["logits"]}

def without_gradient(case):
    fixed = {name: x.detach() for name, x in case.parameters.items()}
    return vectors.ours(vectors.Case(**{**vars(case), "parameters": fixed}))

def too_short(case):
    return {"out": vectors.ours(case)["out"][:, 1:]}

def tensor(case):
    return vectors.ours(case)["out"]

def other_names(case):
    return {"output": vectors.ours(case)["out"]}

def two(case, other):
    pass

number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_attention.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # restores the path afterwards
    yield "own_attention"
    sys.modules.pop("own_attention", None)


@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_the_committed_numbers_are_those_of_today(name):
    with np.load(COMMITTED / f"{name}.npz") as committed:
        found = vectors.vectors_of(name)
        assert set(committed.files) == set(found)
        for key, x in found.items():
            np.testing.assert_allclose(x, committed[key], rtol=0, atol=1e-10, err_msg=key)


def test_the_committed_set_is_complete_and_small():
    assert {path.stem for path in COMMITTED.glob("*.npz")} == set(ENCODINGS)
    assert json.loads((COMMITTED / "vectors.json").read_text()) == json.loads(json.dumps(vectors.description()))
    assert sum(path.stat().st_size for path in COMMITTED.iterdir()) < 5e6


@pytest.mark.parametrize(
    "function, encoding", [("same", "fox"), ("same", "learned"), ("logits_alone", "t5"), ("none", "none")]
)
def test_what_conforms_ends_with_0(own, function, encoding, capsys):
    assert main(["conform", f"{own}:{function}", "--encoding", encoding]) == 0
    printed = capsys.readouterr().out
    assert f"{own}:{function} conforms" in printed and ("gradients/x" in printed) == (function != "logits_alone")


@pytest.mark.parametrize(
    "function, encoding, worst",
    [
        ("a_little_off", "t5", "out"),
        ("none", "t5", "out"),
        ("none", "learned", "gradients/parameters/stack.weight"),
        ("nan", "t5", "logits"),
        ("without_gradient", "t5", "gradients/parameters/stack.b"),
    ],
)
def test_what_does_not_conform_ends_with_1_and_names_the_array(own, function, encoding, worst, capsys):
    assert main(["conform", f"{own}:{function}", "--encoding", encoding]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == f"{own}:{function} does not conform"
    assert any("more than" in line and line.split()[1] == worst for line in printed)


@pytest.mark.parametrize(
    "function, encoding, what",
    [
        ("own_attention:same", "t6", "unknown position encoding 't6'"),
        ("own_attention:too_short", "t5", "out has the shape (2, 9, 8)"),
        ("own_attention:tensor", "t5", "it returned Tensor"),
        ("own_attention:other_names", "t5", "it returned the keys output"),
        ("own_attention:two", "t5", "does not take one argument"),
        ("own_attention:number", "t5", "has no number that can be called"),
        ("own_attention:missing", "t5", "has no missing"),
        ("own_attentions:same", "t5", "no module own_attentions"),
        ("own_attention", "t5", "MODULE:FUNCTION"),
    ],
)
def test_a_wrong_call_of_conform_is_one_line(own, function, encoding, what, capsys):
    assert_refused(["conform", function, "--encoding", encoding], what, capsys)


def test_vectors_are_written_as_a_whole_into_a_new_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(vectors, "ENCODINGS", {"t5": ENCODINGS["t5"]})
    assert main(["vectors", str(tmp_path / "out")]) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"t5.npz", "vectors.json"}
    (tmp_path / "file").write_text("")
    for out, what in (("out", "is there already"), ("file", "is there already"), ("missing/out", "is no folder")):
        assert_refused(["vectors", tmp_path / out], what, capsys, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t5", "deberta"])
def test_attention_of_transformers_conforms(name, monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(ROOT / "examples/vectors"))
    import adapters

    found = vectors.compare(name, getattr(adapters, name))
    assert all(x.conforms for x in found), found
    assert {x.shape for x in found} == set(vectors.SHAPES)
    assert {"out", "gradients/x", "gradients/W_q"} < {x.array for x in found}


def test_the_loss_has_no_gradient_of_pads():
    case = vectors.cases("t5")[2]
    assert case.inputs["padding"].any(1).all()
    gradient = torch.from_numpy(vectors.vectors_of("t5")["padded/gradients/x"])
    assert not gradient[case.inputs["padding"]].any() and gradient.any()
