"""Compiled gates against the loops in Python, and machines that cannot compile."""

import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path

import preloaded
import pytest
import torch
from compilers import CXX, needs_compiler

from fairseq_relpos.backends import fused
from fairseq_relpos.gated import compiled
from fairseq_relpos.gated.product import Compiled, Looped, gated

LENGTHS = [(1, 1), (1, 7), (7, 7), (63, 63), (130, 130), (7, 63), (130, 33), (64, 1)]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def problem(tgt_len, src_len, tables, width, dtype=torch.float32, batch=2, heads=3):
    """q, k, gate and the gradient of the result."""
    shapes = [
        (batch, heads, tgt_len, width),
        (batch, heads, src_len, width),
        (tables, tgt_len + src_len - 1, width),
        (batch, heads, tgt_len, src_len),
    ]
    return [torch.randn(shape, dtype=dtype) for shape in shapes]


def everything(form, q, k, gate, grad, threads=1):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return form.product(q, k, gate), *form.gradients(q, k, gate, grad)
    finally:
        torch.set_num_threads(before)


def poison_free_memory():
    """Memory that a kernel does not write is then NaN, not whatever was there."""
    for size in (2**8, 2**12, 2**16, 2**20):
        torch.full((size,), float("nan"))


@needs_compiler
@pytest.mark.parametrize("tables, width", [(1, 64), (3, 20)])  # 20: no number of whole vectors
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_compiled_equals_the_loops(tables, width, lengths, dtype):
    inputs = problem(*lengths, tables, width, dtype)
    expected = everything(Looped, *inputs)
    for threads in (1, 2, 5):  # with 5, threads share d
        poison_free_memory()
        for one, other in zip(everything(Compiled, *inputs, threads), expected, strict=True):
            assert one.shape == other.shape and one.dtype == dtype
            assert (one - other).abs().max() <= TOLERANCE[dtype] * other.abs().max()


@needs_compiler
def test_infinite_and_missing_numbers_stay_in_their_own_row():
    q, k, gate, _ = problem(9, 9, 1, 16)
    q[0, 0, 3], k[1, 2, 5] = float("inf"), float("nan")
    out = Compiled.product(q, k, gate)
    bad = ~out.isfinite()
    assert bad[0, 0, 3].all() and bad[1, 2, :, 5].all() and bad.sum() == 18


@needs_compiler
def test_the_same_bits_again_and_with_two_threads():
    inputs = problem(130, 130, 1, 64, batch=5)
    first = everything(Compiled, *inputs)
    for threads in (1, 2, 2, 5):
        assert all(map(torch.equal, everything(Compiled, *inputs, threads), first))


@needs_compiler
def test_transposed_and_sliced_operands():
    q, k, gate, grad = problem(40, 40, 3, 16)
    expected = everything(Looped, q, k, gate, grad)
    q, k = (x.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3) for x in (q, k))
    wide = torch.stack([gate, gate], -1)[..., 0]
    found = everything(Compiled, q, k, wide, grad.mT.contiguous().mT)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-5)


def test_gradients_are_those_of_finite_differences():
    q, k, gate, _ = problem(5, 7, 1, 4, torch.float64, batch=1, heads=2)
    assert torch.autograd.gradcheck(gated, [x.requires_grad_() for x in (q, k, gate)])


def test_half_precision_and_mixed_types_go_by_loops():
    q, k, gate, _ = problem(5, 7, 1, 4)
    exact = gated(q, k, gate)
    assert gated(q.bfloat16(), k.bfloat16(), gate.bfloat16()).dtype == torch.bfloat16
    torch.testing.assert_close(
        exact, torch.einsum("bhtd,bhsd,tsd->bhts", q, k, gate[0][torch.arange(7) - torch.arange(5)[:, None] + 4])
    )


# --- machines that cannot compile ---

PROGRAM = """
import logging, sys, torch
logging.basicConfig(format="%(name)s: %(message)s")
from fairseq_relpos.gated import compiled, product as gated
q, k, gate = torch.ones(1, 2, 3, 4), torch.ones(1, 2, 5, 4), torch.ones(1, 7, 4)
for _ in range(2):
    assert (gated.gated(q, k, gate) == 4).all()
print(gated.form(q, k, gate).__name__, compiled.attempt()[1])
"""


def computes(**environ):
    """(form and where the library lies, the log lines about it) of a process of its own."""
    clean = {k: v for k, v in preloaded.environment().items() if k != "FAIRSEQ_RELPOS_COMPILE"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**clean, **environ},
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    )
    logged = [x for x in done.stderr.splitlines() if x.startswith("fairseq_relpos.gated.compiled: ")]
    return done.stdout.strip(), logged


def broken_compiler(folder):
    broken = folder / "c++"
    broken.write_text("#!/bin/sh\necho warming up >&2\necho out of order >&2\nexit 1\n")
    broken.chmod(0o755)
    return {"CXX": str(broken)}


@pytest.mark.parametrize(
    "machine, said",
    [
        (lambda folder: {"PATH": str(folder), "CXX": ""}, "no C++ compiler 'c++'"),
        (broken_compiler, "out of order"),
        (lambda folder: {"FAIRSEQ_RELPOS_COMPILE": "0"}, "FAIRSEQ_RELPOS_COMPILE=0"),
    ],
)
def test_without_a_compiler_one_line_says_so_and_nothing_is_left(machine, said, tmp_path):
    found, logged = computes(**machine(tmp_path), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert found.startswith("Looped") and len(logged) == 1 and said in logged[0]
    assert not list(tmp_path.glob("cache/*/*"))


@needs_compiler
def test_an_unwritable_cache_folder_is_done_without(tmp_path):
    no_folder = tmp_path / "a file"
    no_folder.touch()
    found, logged = computes(XDG_CACHE_HOME=str(no_folder), TMPDIR=str(tmp_path))
    assert found == "Compiled built for this process" and not logged
    assert list(tmp_path.iterdir()) == [no_folder]


@needs_compiler
def test_built_once_and_built_again_where_the_file_is_empty(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = tmp_path / "fairseq_relpos" / f"gated-{compiled.fingerprint(CXX.split())}.so"
    file.parent.mkdir()
    file.touch()  # a crash can leave that
    builds = []
    build = compiled.build
    monkeypatch.setattr(compiled, "build", lambda *a: (builds.append(a), build(*a)))
    for _ in range(2):
        library, where = compiled.attempt()
        assert library is not None and where == str(file)
    assert len(builds) == 1 and sorted(file.parent.iterdir()) == [compiled.seal_of(file), file]


#: lengths of a truncated library; dlopen of most of them ends a process with SIGBUS
TRUNCATED = (1000, 5000, 10_000, 20_000, 35_000, 50_000, 65_000, 80_000, 95_000)


@pytest.fixture
def copies(monkeypatch):
    """The library of this machine, which ``compiled.build`` copies."""
    library, where = compiled.attempt(fused.SOURCE)
    if library is None or not Path(where).is_file():
        pytest.skip(f"no library: {where}")
    contents = Path(where).read_bytes()
    monkeypatch.setattr(compiled, "build", lambda compiler, target, source: target.write_bytes(contents))
    return Path(where)


def test_a_truncated_library_is_built_again_and_ends_no_process(copies, tmp_path):
    process = multiprocessing.get_context("fork").Process(target=load_truncated, args=(copies, tmp_path))
    process.start()
    process.join()
    assert process.exitcode == 0


def load_truncated(whole, folder):
    for length in TRUNCATED:
        os.environ["XDG_CACHE_HOME"] = str(folder / str(length))  # dlopen does not map a file of the same name twice
        file = compiled.cache_folder() / whole.name
        file.parent.mkdir(parents=True)
        file.write_bytes(whole.read_bytes()[:length])
        shutil.copy(compiled.seal_of(whole), file.parent)
        library, where = compiled.attempt(fused.SOURCE)
        assert library.lanes() > 0 and where == str(file) and file.read_bytes() == whole.read_bytes()


def test_a_library_with_another_byte_or_without_a_seal_is_built_again(copies, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = tmp_path / "fairseq_relpos" / copies.name

    def another_byte():  # in a new file: that one is loaded in this process
        file.unlink()
        file.write_bytes(b"x" + copies.read_bytes()[1:])

    for damage in (another_byte, compiled.seal_of(file).unlink):
        compiled.attempt(fused.SOURCE)
        damage()
        assert not compiled.is_whole(file)
        assert compiled.attempt(fused.SOURCE)[1] == str(file) and compiled.is_whole(file)


@pytest.mark.parametrize("of_others", [lambda folder: folder.chmod(0o777), lambda folder: os.chown(folder, 12345, -1)])
def test_a_library_in_a_folder_that_others_may_write_is_not_loaded(of_others, copies, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiled.attempt(fused.SOURCE)
    folder = tmp_path / "fairseq_relpos"
    assert folder.stat().st_mode & 0o777 == 0o700
    try:
        of_others(folder)
    except PermissionError:
        pytest.skip("only root can give a folder to another user")
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    for _ in range(2):
        library, where = compiled.attempt(fused.SOURCE)
        assert library.lanes() > 0 and where.startswith("built for this process") and str(folder) in where
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before
    assert len(caplog.messages) == 1 and str(folder) in caplog.text and "remove this folder" in caplog.text


@pytest.mark.parametrize("of_others", [lambda file: file.chmod(0o666), lambda file: os.chown(file, 12345, -1)])
@pytest.mark.parametrize("planted", [lambda library: library, compiled.seal_of])
def test_a_library_or_seal_that_others_could_write_is_built_again(of_others, planted, copies, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = tmp_path / "fairseq_relpos" / copies.name
    compiled.attempt(fused.SOURCE)
    file.unlink()  # this process has loaded it
    file.write_bytes(copies.read_bytes() + b"planted")
    compiled.seal_of(file).write_text(compiled.seal(file))
    try:
        of_others(planted(file))
    except PermissionError:
        pytest.skip("only root can give a file to another user")
    assert compiled.attempt(fused.SOURCE)[1] == str(file)
    assert file.read_bytes() == copies.read_bytes()
    assert {found.stat().st_uid for found in file.parent.iterdir()} == {os.geteuid()}


def test_a_library_is_kept_and_not_writable_to_others_under_any_umask(copies, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = os.umask(0)
    try:
        compiled.attempt(fused.SOURCE)
    finally:
        os.umask(before)
    files = {file: file.stat() for file in (tmp_path / "fairseq_relpos").iterdir()}
    assert len(files) == 2 and not any(found.st_mode & 0o022 for found in files.values())
    compiled.attempt(fused.SOURCE)
    assert {file: file.stat().st_mtime_ns for file in files} == {f: s.st_mtime_ns for f, s in files.items()}


@needs_compiler
def test_a_compiler_without_openmp_and_march_native_serves(tmp_path, monkeypatch):
    plain = tmp_path / "plain"
    plain.write_text(f'#!/bin/sh\ncase "$*" in *-fopenmp*|*-march*) exit 1 ;; esac\nexec {CXX} "$@"\n')
    plain.chmod(0o755)
    monkeypatch.setenv("CXX", str(plain))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library, where = compiled.attempt()
    assert library is not None, where
    inputs = problem(63, 130, 3, 20, torch.float64)
    expected = everything(Looped, *inputs)
    monkeypatch.setattr(compiled, "library", lambda: library)
    found = everything(Compiled, *inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-11, rtol=0)


def test_another_cpu_source_or_compiler_is_another_file(monkeypatch):
    first = compiled.fingerprint(["c++"])
    assert compiled.fingerprint(["clang++"]) != first
    monkeypatch.setattr(compiled, "cpu", lambda: ["another"])
    assert compiled.fingerprint(["c++"]) != first
