import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import pythons

from fairseq_relpos.cli import doctor
from fairseq_relpos.gated import compiled

# Run as a file, doctor reports on installations in which the package itself does not import.
DOCTOR = Path(doctor.__file__)


def run_doctor(pythonpath):
    done = pythons.run(DOCTOR, PYTHONPATH=str(pythonpath))
    assert not done.stderr, done.stderr
    return done


def line(done, name):
    (found,) = [x for x in done.stdout.splitlines() if x.split()[1:2] == [name]]
    return found


def package(folder, name, source=""):
    path = folder / name / "__init__.py"
    path.parent.mkdir(parents=True)
    path.write_text(source)
    return path.parent


@pytest.mark.slow
def test_broken_fairseq_fails_with_its_error_and_the_remedy(tmp_path):
    package(tmp_path, "fairseq", "raise ValueError('mutable default <class Config> for field x')")
    done = run_doctor(tmp_path)
    assert done.returncode == 1
    fairseq = line(done, "fairseq")
    assert fairseq.startswith("FAIL")
    assert "ValueError: mutable default" in fairseq
    assert "fairseq-fixed==0.12.3.1" in fairseq
    assert "fairseq-train cannot run" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("place", ["apex", "apex.normalization"])
def test_an_apex_that_breaks_the_import_of_fairseq_is_named_and_fairseq_stays(tmp_path, place):
    apex = package(tmp_path, "apex")
    package(apex, "multi_tensor_apply")
    broken = apex if place == "apex" else package(apex, "normalization")
    (broken / "__init__.py").write_text("raise RuntimeError('built for another torch')")
    done = run_doctor(tmp_path)
    assert done.returncode == 1
    fairseq = line(done, "fairseq")
    assert fairseq.startswith("FAIL") and "apex" in fairseq and "RuntimeError: built for another torch" in fairseq
    assert "pip uninstall -y apex" in fairseq and "build it again" in fairseq
    assert "uninstall -y fairseq" not in done.stdout and "fairseq-fixed==" not in done.stdout


def test_a_folder_called_fairseq_is_not_fairseq(tmp_path, monkeypatch):
    (tmp_path / "fairseq").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "fairseq", raising=False)
    check = doctor.check_fairseq()
    assert check.status == "FAIL" and "is a folder, not the package" in check.found


def without(monkeypatch, name):
    monkeypatch.setattr(doctor, "find_spec", lambda module: None if module == name else object())


def test_what_is_missing_fails_or_warns_and_says_how_to_install_it(monkeypatch):
    without(monkeypatch, "fairseq")
    check = doctor.check_fairseq()
    assert check.status == "FAIL" and doctor.INSTALL_FAIRSEQ in check.advice
    without(monkeypatch, "sacrebleu")
    check = doctor.check_library("sacrebleu", "2.3", "scores")
    assert check.status == "warn" and "pip install 'sacrebleu>=2.3' (scores)" in check.advice
    without(monkeypatch, "torch")
    monkeypatch.setattr(doctor, "attempt_import", lambda name: (None, ImportError("No module named 'torch'")))
    assert doctor.check_torch().status == "FAIL"
    assert doctor.check_gpu().status == doctor.check_bf16().status == "warn"


def test_old_library_is_refused_with_the_version_wanted(monkeypatch):
    monkeypatch.setattr(doctor, "attempt_import", lambda n: (SimpleNamespace(__version__="1.19.5"), None))
    check = doctor.check_library("numpy", "1.24", needed=True)
    assert check.status == "FAIL" and "1.19.5" in check.found and "numpy>=1.24" in check.advice


def installed(monkeypatch, folder, name, version, source):
    """Installs a distribution that stands in for the real one."""
    package(folder, name, source)
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setitem(sys.modules, name, None)  # so that what is imported in its place goes with the test
    monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("name", ["torchaudio", "torchvision"])
def test_a_companion_of_another_build_of_torch_is_named_with_what_fails_and_the_command(monkeypatch, tmp_path, name):
    installed(monkeypatch, tmp_path, name, "2.11.0", "raise OSError('libc10_cuda.so: no such file')")
    check = doctor.check_companion(name, "speech")
    assert check.status == "warn" and f"pip uninstall -y {name}" in check.advice
    for what in ("2.11.0 does not fit torch", "transformers fails with it: OSError: libc10_cuda"):
        assert what in check.found
    monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / name / "__init__.py").write_text("works = True")
    assert doctor.check_companion(name, "speech") == doctor.Check(name, "ok", "2.11.0")
    without(monkeypatch, name)
    assert doctor.check_companion(name, "speech").status == "ok"


@pytest.mark.parametrize(
    "message, remedy",
    [
        ("No module named 'bitarray'", "pip install bitarray"),
        ("No module named 'fairseq.data.data_utils_fast'", "fairseq-fixed"),
    ],
)
def test_each_import_error_of_fairseq_has_its_remedy(message, remedy):
    assert remedy in doctor.fairseq_remedy(ImportError(message))


@pytest.mark.parametrize(
    "arch_list, capability, served",
    [
        (["sm_75", "sm_80", "sm_90"], (7, 0), False),
        (["sm_50", "sm_60", "sm_70"], (7, 0), True),
        (["sm_80"], (8, 6), True),
        (["sm_86"], (8, 0), False),
        (["sm_90a"], (9, 0), True),
        (["sm_90", "compute_90"], (12, 0), True),
        (["sm_100", "sm_120"], (12, 0), True),
    ],
)
def test_kernels_serve_the_same_major_version_and_ptx_serves_later_ones(arch_list, capability, served):
    assert doctor.torch_serves(arch_list, *capability) is served


def fake_torch(capability, arch_list, cuda="12.8"):
    return SimpleNamespace(
        version=SimpleNamespace(cuda=cuda),
        cuda=SimpleNamespace(
            is_available=lambda: True,
            device_count=lambda: 2,
            get_device_capability=lambda index: capability,
            get_device_name=lambda index: "Tesla V100",
            get_arch_list=lambda: arch_list,
        ),
    )


@pytest.mark.parametrize(
    "capability, arch_list, advice",
    [
        ((7, 0), ["sm_75", "sm_80"], "'torch<2.15' from https://download.pytorch.org/whl/cu126,"),  # the last with it
        ((12, 0), ["sm_75", "sm_80"], "install torch from https://download.pytorch.org/whl/cu128 or newer"),
        ((7, 0), ["sm_70", "sm_80"], ""),
    ],
)
def test_a_gpu_without_kernels_fails_and_names_a_build_that_has_them(monkeypatch, capability, arch_list, advice):
    torch = fake_torch(capability, arch_list)
    monkeypatch.setattr(doctor, "attempt_import", lambda name: (torch, None))
    check = doctor.check_gpu()
    assert f"2 x Tesla V100 (sm_{capability[0]}{capability[1]})" in check.found
    assert check.status == ("FAIL" if advice else "ok") and advice in check.advice


def test_bare_user_dir_is_said_to_work_only_where_it_does(tmp_path, monkeypatch):
    monkeypatch.chdir(doctor.PACKAGE.parent)
    assert "fairseq_relpos works here" in doctor.check_user_dir().found

    monkeypatch.chdir(tmp_path)
    assert str(doctor.PACKAGE) in doctor.check_user_dir().found

    (tmp_path / "fairseq_relpos").mkdir()
    check = doctor.check_user_dir()
    assert check.status == "warn" and "hides" in check.found


@pytest.mark.parametrize("statuses, code", [(["ok", "warn"], 0), (["ok", "FAIL", "ok"], 1)])
def test_only_a_failed_check_makes_the_exit_status_nonzero(monkeypatch, capsys, statuses, code):
    checks = [lambda s=s: doctor.Check("thing", s, "found", "do this") for s in statuses]
    monkeypatch.setattr(doctor, "CHECKS", checks)
    assert doctor.run() == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split(maxsplit=2) == ["ok", "thing", "found; to do: do this"]
    assert len([x for x in lines if "thing" in x]) == len(statuses)


@pytest.mark.parametrize(
    "program, status, found",
    [
        ("print('agrees')", "ok", "agrees"),
        ("print('a kind'); print('a kind: off'); raise SystemExit(1)", "warn", "a kind: off"),
        ("print('not run: no GPU'); raise SystemExit(2)", "warn", "not run: no GPU"),
        ("import os; os.kill(os.getpid(), 11)", "warn", "ended with exit code -11: no output"),
    ],
)
def test_kernels_are_run_in_a_process_of_their_own(monkeypatch, tmp_path, program, status, found):
    stand_in = tmp_path / "python"
    stand_in.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{program}"\n')
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    result = doctor.check_kernels()
    assert (result.status, result.found) == (status, found)
    assert bool(result.advice) == (status == "warn" and not found.startswith("not run"))


def test_this_installation_can_train():
    pytest.importorskip("fairseq")
    done = run_doctor("")
    assert done.returncode == 0, done.stdout
    assert "--arch roberta_NAME" in line(done, "plugin")


def test_doctor_says_whose_adam_a_training_gets():
    found = doctor.check_fused()
    assert found.status == "ok"
    assert "--optimizer adam is a loop of fairseq in Python" in found.found
    assert "--optimizer torch_adamw is torch's foreach kernel, LayerNorm is torch's" in found.found


@pytest.mark.slow
def test_doctor_finds_an_apex_that_works(tmp_path):
    apex = package(tmp_path, "apex")
    package(apex, "normalization", "import torch\nFusedLayerNorm = torch.nn.LayerNorm")
    package(apex, "optimizers", "import torch\nFusedAdam = torch.optim.Adam")
    package(apex, "multi_tensor_apply", "class multi_tensor_applier:\n    available = True")
    program = "import torch; torch.cuda.is_available = lambda: True; from fairseq_relpos.cli import doctor; "
    paths = f"{tmp_path}:{DOCTOR.parents[2]}"
    found = pythons.output("-c", program + "print(doctor.check_fused())", PYTHONPATH=paths)
    assert "adam is apex FusedAdam" in found and "LayerNorm is apex's" in found, found


@pytest.mark.parametrize("seconds, helps", [([1.0, 4.0], True), ([9.0, 4.0], False)])
def test_doctor_says_whether_bfloat16_helps_on_the_cpu(monkeypatch, seconds, helps):
    monkeypatch.setattr(doctor.timeit, "repeat", lambda product, number, repeat: [seconds.pop(0)])
    times = f"{seconds[0] / seconds[1]:.2f} times"
    found = doctor.check_bf16()
    assert found.status == "ok" and times in found.found and ("does not help" in found.found) != helps
    monkeypatch.undo()
    assert "--amp" in doctor.check_bf16().found


def test_a_library_that_kills_its_process_does_not_end_doctor(monkeypatch):
    monkeypatch.setattr(compiled, "attempt", lambda source: os.kill(os.getpid(), signal.SIGKILL))
    check = doctor.check_compiled(*doctor.COMPILED[0])
    assert check.status == "FAIL" and str(compiled.cache_folder()) in check.found
    assert "FAIRSEQ_RELPOS_COMPILE=0" in check.advice


@pytest.mark.parametrize("part", doctor.COMPILED)
def test_doctor_says_what_is_compiled(part, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if doctor.shutil.which("c++"):
        monkeypatch.delenv("CXX", raising=False)
        check = doctor.check_compiled(*part)
        assert check.status == "ok" and str(tmp_path) in check.found

    monkeypatch.setenv("CXX", "no-such-compiler")
    check = doctor.check_compiled(*part)
    assert check.status == "warn" and "no C++ compiler 'no-such-compiler'" in check.found

    monkeypatch.setenv("FAIRSEQ_RELPOS_COMPILE", "0")
    check = doctor.check_compiled(*part)
    assert check.status == "ok" and part[-1] in check.found and not check.advice
