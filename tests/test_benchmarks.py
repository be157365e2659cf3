"""Limits, which the benchmarks compute beside times."""

import json
import mmap
import os
import re
import shutil
import subprocess
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
    # the memory of the next step has the gradients in it
    assert all(x.grad is None for x in steps["t5", "auto", 1].form.parameters())


def test_language_models_step_with_a_memory_beside_themselves_without(benchmark_module):
    train_step = benchmark_module("train_step")
    arch, remembering = "transformer_lm_t5_gpt", "transformer_lm_t5_gpt, memory 8"
    sizes = {"layers": 1, "dim": 16, "ffn": 16, "heads": 2, "vocabulary": 50, "length": 8, "batch": 2, "threads": 1}
    flags = {"backend": "auto", "torch_compile": False, "unpad": False, "amp": False}
    flags |= {"memory_length": 8}
    steps = train_step.steps_of(0.0, Namespace(stock="transformer_lm_gpt", archs=[arch], **sizes, **flags))
    assert list(steps) == ["transformer_lm_gpt", arch, remembering, train_step.PRODUCT]
    steps.pop(train_step.PRODUCT)
    assert all(step() > 0 and step() > 0 for step in steps.values())
    assert all(x.grad is None for step in steps.values() for x in step.model.parameters())
    with_memory, without = (
        steps[name].model.decoder.embed_positions.segment_memory.last[True] for name in (remembering, arch)
    )
    (segment,) = with_memory.values()
    assert {x.shape for x in segment.past.values()} == {(8, 2, 16)} and without == {}


def test_a_step_that_fails_ends_the_benchmark(benchmark_module):
    memory = benchmark_module("memory")

    def touch():  # memory that no allocator can have kept
        pages = mmap.mmap(-1, 2**25)
        pages[::4096] = bytes(2**13)

    assert memory.peak_memory(touch) > 0.9 * 2**25

    def fail():
        raise ValueError("no step")

    with pytest.raises(RuntimeError, match="counts its memory"):
        memory.peak_memory(fail)


TINY_PASS = Namespace(tiny=True, tokens=16, heads=2, head_dim=8, layers=3, dtype="float32", tiles=None)


def test_a_pass_on_a_gpu_has_layers_that_share_what_a_model_shares(benchmark_module):
    gpu = benchmark_module("gpu")
    for name, evaluations in (("t5:max_distance=20", 1), ("kerple_log", 3)):
        vars(TINY_PASS).update(backends=["auto", "lean", "sdpa"])
        steps = dict(gpu.steps_of(name, 8, 0.1, TINY_PASS))
        assert set(steps) == {"auto", "lean", "sdpa"}
        stack = steps["lean"].forward.encoding.stack
        shared = stack.evaluate
        found = []
        stack.evaluate = lambda pos, shared=shared, found=found: found.append(pos) or shared(pos)
        assert len(steps["lean"].forward()) == 3
        assert len(found) == evaluations
        steps["lean"]()
    for _, step in gpu.steps_of("fox", 8, 0.1, TINY_PASS):  # which reads the input of a layer
        step()


def test_rows_of_other_code_are_not_kept(benchmark_module, tmp_path, monkeypatch):
    result_file = benchmark_module("result_file")
    monkeypatch.setattr(result_file, "ROOT", tmp_path)
    (tmp_path / "fairseq_relpos").mkdir()
    (tmp_path / "benchmarks/results").mkdir(parents=True)
    code, path = tmp_path / "fairseq_relpos/kernel.py", tmp_path / "benchmarks/results/gpu.json"
    code.touch()
    path.write_text("")
    git = ["git", "-C", tmp_path, "-c", "user.name=x", "-c", "user.email=x"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    path.unlink()

    def resumed():
        return result_file.Resumed("gpu", Namespace(json=path, minutes=1, tiny=True), ("length",))

    resumed().add((8,), {"seconds": 1})
    assert resumed().left([(8,), (9,)]) == [(9,)]
    code.write_text("x = 1")
    assert resumed().left([(8,)]) == [(8,)]


def test_a_row_that_failed_on_a_gpu_leaves_the_tables_as_they_are(benchmark_module, tmp_path):
    tables = benchmark_module("speed_tables")
    for name in ("gpu_steps", "gpu_clipped", "gpu_kernels"):
        shutil.copy(Path(tables.__file__).parent / "results" / f"{name}.json", tmp_path)
    expected = tables.gpu_tables(tmp_path)
    for name, lost in (("gpu_steps", ("ratio", "stock_milliseconds")), ("gpu_clipped", ("kernels",))):
        result = json.loads((tmp_path / f"{name}.json").read_text())
        for row in result["rows"]:
            if row["encoding"] == "t5":
                row["error"] = "OutOfMemoryError"
                for key in lost:
                    del row[key]
        (tmp_path / f"{name}.json").write_text(json.dumps(result))
    kept = [line for line in expected.splitlines() if not line.startswith("| `t5` ")]
    assert [line for line in tables.gpu_tables(tmp_path).splitlines() if not line.startswith("| `t5` ")] == kept
    assert "t5" not in tables.steps_on_a_gpu(tmp_path)


def test_a_step_on_a_gpu_is_one_update(benchmark_module):
    gpu_steps = benchmark_module("gpu_steps")
    for model, encoding in (("roberta_128", "shaw:max_distance=3"), ("wmt", "t5")):
        step = gpu_steps.Step(model, "bfloat16", Namespace(tiny=True), "no", encoding)
        before = [x.clone() for x in step.half]
        step()
        assert all(x.dtype == torch.bfloat16 for x in step.half)
        assert any(not torch.equal(x, y) for x, y in zip(step.half, before))
    assert step.step.model.encoder.layers[0].self_attn.position_encoding.name == "t5"


def test_a_day_on_a_gpu_goes_on_with_the_parts_that_are_left(tmp_path):
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/bash\n"
        f'echo "$@" >>{tmp_path}/calls\n'
        f"case $* in *shared*) exit 1;; *gpu_steps.json*) exit $(cat {tmp_path}/status);; esac\n"
    )
    python.chmod(0o755)

    def day(*words, status=0):
        (tmp_path / "status").write_text(str(status))
        (tmp_path / "calls").write_text("")
        done = subprocess.run(
            ["bash", Path(__file__).parents[1] / "benchmarks/gpu_day.sh", *words],
            env={**os.environ, "PYTHON": str(python), "TINY": "1"},
            capture_output=True,
            text=True,
        )
        calls = (tmp_path / "calls").read_text().splitlines()
        return done.returncode, [re.search(r"gpu_(\w+)\.json", call)[1] for call in calls], done

    results = tmp_path / "results"
    status, parts, done = day("1", results, status=75)
    assert status == 1 and "shared" in done.stderr and "steps is not complete" in done.stdout
    assert parts == ["kernels", "steps", "clipped", "shared", "attention", "all_steps"]
    assert day("1", results)[:2] == (1, ["steps", "shared"])
    assert day("0", results)[0] == 2 and day()[0] == 2
