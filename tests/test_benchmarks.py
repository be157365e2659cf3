"""What the benchmarks compute beside times: limits and goals."""

import json
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from fairseq_relpos.encodings import Dims


@pytest.mark.parametrize(
    "name, products",
    [
        ("none", 7),
        ("t5", 7),
        ("tupe_r", 7),
        ("m1", 7),
        ("shaw", 7 + 4),
        ("transformer_xl", 7 + 4),
        ("lfhc", 7 + 4 * 33 / 64),  # 16 to either side
        ("m4", 7 + 8),
        ("deberta", 7 + 8),
        ("m3", 0),
        ("shaw:max_distance=8:heads=each", 7 + 4 * 17 / 64),
    ],
)
def test_a_limit_counts_the_exact_products(benchmark_module, name, products):
    form = benchmark_module("attention").OneEncoding(name, Dims(32, 2, 64), "eager", 0.0)
    assert form.products() == pytest.approx(products)


def test_steps_of_one_round_have_the_baselines_with_the_same_dropout(benchmark_module):
    attention = benchmark_module("attention")
    args = Namespace(heads=2, head_dim=8, batch=1, encodings=["t5", "m3"], backends=["auto", "sdpa"], threads=[1])
    args.layers = 1
    steps = attention.steps_of(16, 0.1, args)
    names = {key[:2] for key in steps}
    assert {attention.SDPA, attention.PLAIN, ("t5", "auto"), ("t5", "sdpa"), ("m3", "auto")} < names
    assert ("m3", "sdpa") not in names  # which does not serve it
    assert all(step.form.dropout == 0.1 for key, step in steps.items() if key[0] != attention.PRODUCT)
    assert all(step() >= 0 for step in steps.values())


def test_layers_compute_once_what_they_share(benchmark_module):
    form = benchmark_module("attention").OneEncoding("tupe_r", Dims(16, 2, 8), "eager", 0.0)
    evaluated = []
    evaluate = form.encoding.stack.evaluate
    form.encoding.stack.evaluate = lambda pos: evaluated.append(pos) or evaluate(pos)
    outs = form.layers(*torch.randn(3, 1, 2, 8, 8), 12)
    assert len(evaluated) == 1 and len(outs) == 12


def test_a_goal_that_was_missed_is_named_with_its_limit(benchmark_module, tmp_path):
    goals = benchmark_module("goals")
    row = {"dropout": 0.0, "threads": 1, "backend": "auto", "speedup": 1.0, "scratch_mib": 1.0, "length": 512}
    rows = [
        {**row, "encoding": name, "allocator": allocator, "ratio": ratio, "limit": limit}
        for name, ratio, limit in (("m4", 2.2, 2.0), ("m4m", 3.0, 2.0))
        for allocator in ("tuned", "default")
    ]
    (tmp_path / "attention_cpu.json").write_text(json.dumps({"settings": {"batch": 8}, "rows": rows}))
    lines = goals.goals_table(tmp_path).splitlines()
    assert "| `m4` | 8 x 512 | 2.20 | 2.20 | 2.40, reached | 2.00 | 1.10 | - | - |" in lines
    assert "| `m4m` | 8 x 512 | 3.00 | 3.00 | 2.40, **missed** | 2.00 | 1.50 | - | - |" in lines


def test_language_models_step_with_a_memory_beside_themselves_without(benchmark_module, tmp_path):
    train_step, report, goals = (benchmark_module(name) for name in ("train_step", "report", "goals"))
    archs = ["transformer_lm_tupe_r_gpt", "transformer_lm_t5_gpt"]
    sizes = {"layers": 1, "dim": 16, "ffn": 16, "heads": 2, "vocabulary": 50, "length": 8, "batch": 2, "threads": 1}
    flags = {"backend": "auto", "torch_compile": False, "unpad": False, "device": "cpu", "dtype": "float32"}
    args = Namespace(stock="transformer_lm_gpt", archs=archs, memory_length=8, **sizes, **flags)
    steps = train_step.steps_of(0.0, args)
    names = [args.stock, *archs, *(f"{arch}, memory 8" for arch in archs)]
    assert list(steps) == [*names, train_step.PRODUCT]
    for name in names:
        assert steps[name]() > 0 and steps[name]() > 0
    for arch in archs:
        with_memory, without = (
            steps[name].model.decoder.embed_positions.segment_memory for name in (f"{arch}, memory 8", arch)
        )
        (segment,) = with_memory.last[True].values()
        assert {x.shape for x in segment.past.values()} == {(8, 2, 16)} and without.last[True] == {}

    row = {"allocator": "tuned", "seconds": 1.0, "mfu": 0.5, "quartiles": []}
    rows = [
        {**row, "dropout": dropout, "arch": name, "ratio": 1.25, "times_without": 1.7 if "," in name else None}
        for dropout in (0.0, 0.1)
        for name in names
    ]
    settings = {**vars(args), "rounds": 1, "length": 128, "memory_length": 8}
    _, table = report.train_step(settings, rows)
    assert (
        table[0].endswith(" times without segment memory |")
        and table[-1].endswith(" 1.70 |")
        and table[2].endswith(" - |")
    )
    for each in rows:
        each["arch"] = each["arch"].replace("memory 8", "memory 128")
    (tmp_path / "train_step_cpu_lm_128.json").write_text(json.dumps({"settings": settings, "rows": rows}))
    (table,) = goals.language_models(tmp_path)
    missed = "1.70 | 1.60, **missed** | 1.70 | 1.60, **missed** |"
    assert table.splitlines()[2:] == [
        f"| `tupe_r` | 2 x 128 | 0.80 | - | 0.80 | - | {missed}",
        f"| `t5` | 2 x 128 | 0.80 | 0.95, **missed** | 0.80 | 0.95, **missed** | {missed}",
    ]


def test_the_pages_have_the_figures_of_the_gpu():
    root = Path(__file__).parents[1]
    rows = json.loads((root / "benchmarks/results/attention_gpu.json").read_text())["rows"]
    at_512, found = (
        {(x["encoding"], x["backend"]): x["ratio"] for x in rows if (x["length"], x["dropout"]) == (length, 0.1)}
        for length in (512, 2048)
    )
    readme, page = ((root / name).read_text() for name in ("README.md", "docs/performance.md"))
    for name in ("t5", "shaw", "m4", "m4m"):
        other = min(ratio for (encoding, backend), ratio in found.items() if encoding == name and backend != "triton")
        triton = found[name, "triton"]
        assert f"`{name}` {at_512[name, 'triton']:.1f} and {triton:.1f}" in readme
        assert any(text in page for text in (f"{triton:.1f} with `{name}` ({other:.1f})", f"{triton:.1f} times"))
