"""`fairseq-relpos doctor`: can `fairseq-train --user-dir fairseq_relpos` run here?

This file imports only the standard library until a check needs more, so that it can report on an installation in
which torch, fairseq or this package does not import. In such a case run the file itself:
`python fairseq_relpos/cli/doctor.py`.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import logging
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import timeit
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]
INSTALL_FAIRSEQ = (
    "env -u CUDA_HOME pip install --no-build-isolation fairseq-fixed==0.12.3.1"
    " (after torch, setuptools, wheel, cython and numpy)"
)


@dataclass(frozen=True)
class Check:
    """The result of one check. FAIL: fairseq-train cannot run with the plugin; warn: something else cannot."""

    name: str
    status: str  # "ok", "warn" or "FAIL"
    found: str
    advice: str = ""

    def __str__(self):
        line = f"{self.status:4}  {self.name:16}  {self.found}"
        return f"{line}; to do: {self.advice}" if self.advice else line


def one_line(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


def attempt_import(name: str) -> tuple[Any, Exception | None]:
    """Imports a module. Returns it and None, or None and the error."""
    try:
        return importlib.import_module(name), None
    except Exception as error:  # a broken installation raises anything
        return None, error


def installed_version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


# --- Python and the libraries ---


def check_python() -> Check:
    version = sys.version.split()[0]
    if sys.version_info < (3, 10):  # noqa: UP036 - somebody may run it with an older one
        return Check("python", "FAIL", version, "use Python 3.10 or newer")
    return Check("python", "ok", f"{version} ({sys.executable})")


def check_library(name: str, oldest: str, why: str = "", needed: bool = False) -> Check:
    """Checks that a library imports and is at least `oldest`; `why` says what fails without it."""

    def numbers(version):
        return tuple(map(int, re.findall(r"\d+", version)[:2]))

    bad = "FAIL" if needed else "warn"
    install = f"pip install '{name}>={oldest}'" + (f" ({why})" if why else "")
    if find_spec(name) is None:
        return Check(name, bad, "not installed", install)
    module, error = attempt_import(name)
    if error:
        return Check(name, bad, f"does not import: {one_line(error)}", install)
    version = getattr(module, "__version__", None) or installed_version(name) or "unknown"
    if numbers(version) < numbers(oldest):
        return Check(name, bad, f"{version}, which is too old", install)
    return Check(name, "ok", version)


def check_torch() -> Check:
    check = check_library("torch", "2.4", needed=True)
    if check.status != "ok":
        return check
    built = importlib.import_module("torch").version
    build = f"CUDA {built.cuda}" if built.cuda else f"ROCm {built.hip}" if built.hip else "CPU"
    return Check("torch", "ok", f"{check.found} ({build} build)")


#: name, oldest version, what fails without it
LIBRARIES = (
    ("sentencepiece", "0.2.2", "the recipes build vocabularies with it"),
    ("sacrebleu", "2.3", "translation is scored with it"),
    ("sacremoses", "0.1", "the translation recipes tokenise with it"),
    ("tensorboard", "2.10", "--tensorboard-logdir writes nothing without it"),
    ("transformers", "5.4", "models of Hugging Face need it"),
)


def check_companion(name: str, use: str) -> Check:
    """A library whose compiled code fits one build of torch. Where it is installed, transformers imports it and fails
    with it. fairseq-fixed brings torchaudio's CUDA build to a CPU build of torch."""
    if find_spec(name) is None:
        return Check(name, "ok", f"not installed ({use})")
    _, error = attempt_import(name)
    version = installed_version(name) or "of unknown version"
    if error is None:
        return Check(name, "ok", version)
    found = f"{version} does not fit torch {installed_version('torch')}, and transformers fails with it"
    advice = f"pip uninstall -y {name} ({use}; its build for this torch is where torch came from)"
    return Check(name, "warn", f"{found}: {one_line(error)}", advice)


# --- fairseq ---


def raised_in_apex(error: BaseException) -> bool:
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(str(frame.f_globals.get("__name__")).startswith("apex") for frame in frames)


def fairseq_remedy(error: Exception) -> str:
    if raised_in_apex(error):
        return "pip uninstall -y apex, or build it again for this torch (fairseq itself is not the cause)"
    missing = re.match(r"No module named '([^'.]+)", str(error))
    if missing and missing[1] not in ("fairseq", "fairseq_cli"):
        return f"pip install {missing[1]}"
    return f"pip uninstall -y fairseq fairseq-fixed, then {INSTALL_FAIRSEQ}"


def check_fairseq() -> Check:
    spec = find_spec("fairseq")
    if spec is None:
        return Check("fairseq", "FAIL", "not installed", INSTALL_FAIRSEQ)
    if spec.origin is None:
        folder = next(iter(spec.submodule_search_locations or ["fairseq"]))
        advice = f"run this elsewhere, or install it (pip install -e {folder})"
        return Check("fairseq", "FAIL", f"{folder} is a folder, not the package", advice)

    versions = {name: installed_version(name) for name in ("fairseq-fixed", "fairseq")}
    distributions = [f"{name} {version}" for name, version in versions.items() if version]
    found = " and ".join(distributions) or f"source folder {Path(spec.origin).parent}"
    for module in ("fairseq.models.roberta", "fairseq_cli.train"):
        _, error = attempt_import(module)
        if error:
            cause = "does not import" + (" because apex does not" if raised_in_apex(error) else "")
            return Check("fairseq", "FAIL", f"{found} {cause}: {one_line(error)}", fairseq_remedy(error))
    if len(distributions) > 1:
        advice = f"pip uninstall -y fairseq fairseq-fixed, then install one: {INSTALL_FAIRSEQ}"
        return Check("fairseq", "warn", f"{found}, which share one folder", advice)
    return Check("fairseq", "ok", found)


# --- this package ---


def check_plugin() -> Check:
    """Checks that importing the package gives fairseq a `roberta_NAME` for every encoding."""
    encodings, error = attempt_import("fairseq_relpos.encodings")
    if error:
        advice = "repair the FAIL above, or pip install this package again"
        return Check("plugin", "FAIL", f"does not import: {one_line(error)}", advice)
    version = importlib.import_module("fairseq_relpos").__version__
    models, error = attempt_import("fairseq.models")
    if not error:
        importlib.import_module("fairseq_relpos").register()
    if error:
        found = f"{version}, without fairseq: list, show and params work, training does not"
        return Check("plugin", "FAIL", found, "install fairseq (above)")
    names = [name for name in encodings.ENCODINGS if f"roberta_{name}" in models.ARCH_MODEL_REGISTRY]
    return Check("plugin", "ok", f"{version}, {len(names)} encodings as --arch roberta_NAME")


def check_command() -> Check:
    path = shutil.which("fairseq-train")
    advice = "source .venv/bin/activate, or python -m fairseq_cli.train in place of fairseq-train"
    if path is None:
        return Check("fairseq-train", "warn", "not on PATH", advice)
    if Path(path).parent != Path(sys.executable).parent:
        found = f"{path} belongs to another Python than {sys.executable}"
        return Check("fairseq-train", "warn", found, advice)
    return Check("fairseq-train", "ok", path)


def check_user_dir() -> Check:
    """Checks `--user-dir fairseq_relpos`: fairseq looks in the current folder, then beside fairseq itself."""
    here = Path("fairseq_relpos")
    if here.exists() and here.resolve() != PACKAGE:
        advice = f"run in another folder, or give --user-dir {here.resolve()} and install that one"
        return Check("--user-dir", "warn", f"{here.resolve()} hides {PACKAGE}", advice)
    spec = find_spec("fairseq")
    beside_fairseq = spec and spec.origin and Path(spec.origin).parents[1] / "fairseq_relpos"
    if here.exists() or (beside_fairseq and beside_fairseq.exists()):
        return Check("--user-dir", "ok", f"fairseq_relpos works here; everywhere: {PACKAGE}")
    return Check("--user-dir", "ok", f"{PACKAGE} (the bare name does not work in this folder)")


# --- speed: only a GPU that this torch cannot serve stops fairseq-train ---


def torch_serves(arch_list: list[str], major: int, minor: int) -> bool:
    """Whether a build with kernels for `arch_list` (sm_80, compute_90, ...) runs on sm_<major><minor>."""
    for arch in arch_list:
        kind, digits = re.findall(r"(\w+?)_(\d+)", arch)[0]
        built = divmod(int(digits), 10)
        if kind == "compute" and built <= (major, minor):
            return True
        if kind == "sm" and built[0] == major and built[1] <= minor:
            return True
    return False


def check_gpu() -> Check:
    torch, error = attempt_import("torch")
    if error:
        return Check("GPU", "warn", "not looked for: torch does not import")
    if not torch.cuda.is_available():
        if shutil.which("nvidia-smi") is None:
            return Check("GPU", "ok", "none: training runs on the CPU")
        build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
        advice = "nvidia-smi tells the driver's CUDA version: install a torch built for it or older"
        return Check("GPU", "warn", f"torch ({build} build) sees no GPU", advice)

    devices, not_served = [], []
    for index in range(torch.cuda.device_count()):
        major, minor = torch.cuda.get_device_capability(index)
        devices.append(f"{torch.cuda.get_device_name(index)} (sm_{major}{minor})")
        # ROCm has other names for architectures (gfx90a) and raises an error by itself.
        if torch.version.cuda and not torch_serves(torch.cuda.get_arch_list(), major, minor):
            not_served.append((major, minor))
    found = ", ".join(f"{devices.count(d)} x {d}" for d in dict.fromkeys(devices))
    if not_served:
        # Only builds for CUDA 12.6 serve GPUs before sm_75, V100s among them, and torch 2.14 is the last that has them.
        wanted, build = ("'torch<2.15'", "cu126") if min(not_served) < (7, 5) else ("torch", "cu128 or newer")
        advice = f"install {wanted} from https://download.pytorch.org/whl/{build}, or train with --cpu"
        lacking = ", ".join(f"sm_{major}{minor}" for major, minor in sorted(set(not_served)))
        return Check("GPU", "FAIL", f"{found}: this torch has no kernels for {lacking}", advice)
    return Check("GPU", "ok", found)


def check_bf16() -> Check:
    """Times a product of bfloat16 and one of float32 on the CPU, which says whether --amp helps there."""
    torch, error = attempt_import("torch")
    if error:
        return Check("bf16 on the CPU", "warn", "not timed: torch does not import")

    def seconds(dtype):
        x = torch.ones(512, 512, dtype=dtype)
        return min(timeit.repeat(lambda: x @ x, number=1, repeat=5))

    times = seconds(torch.bfloat16) / seconds(torch.float32)
    helps = "makes a training here faster" if times < 0.7 else "does not help here"
    return Check("bf16 on the CPU", "ok", f"a product takes {times:.2f} times as long as in float32: --amp {helps}")


def check_fused() -> Check:
    """Says whose Adam and LayerNorm a training uses."""
    torch, error = attempt_import("torch")
    adam, no_adam = attempt_import("fairseq.optim.fused_adam")
    norm, no_norm = attempt_import("fairseq.modules.layer_norm")
    if error or no_adam or no_norm:
        return Check("fused kernels", "warn", "not looked for: torch or fairseq does not import")
    gpu = torch.cuda.is_available()
    fused_adam = gpu and adam.get_fused_adam_class() is not None
    fused_norm = gpu and norm.has_fused_layernorm
    kernel = "fused" if gpu else "foreach"
    found = (
        f"--optimizer adam is {'apex FusedAdam' if fused_adam else 'a loop of fairseq in Python'}, "
        f"--optimizer torch_adamw is torch's {kernel} kernel, "
        f"LayerNorm is {'apex' if fused_norm else 'torch'}'s"
    )
    return Check("fused kernels", "ok", found)


def check_kernels() -> Check:
    """Runs Triton's kernels in a process of their own, because a wrong address on a GPU ends the process."""
    program = [sys.executable, "-m", "fairseq_relpos.backends.self_check"]
    path = os.pathsep.join([str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(program, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    lines = (done.stdout if done.returncode in (0, 1, 2) else done.stderr).strip().splitlines()
    found = lines[-1] if lines else "no output"
    if done.returncode == 0:
        return Check("kernels", "ok", found)
    if done.returncode == 2:
        return Check("kernels", "warn", found)
    if done.returncode != 1:
        found = f"ended with exit code {done.returncode}: {found}"
    return Check("kernels", "warn", found, "--attention-backend lean (or sdpa), and please report it with this list")


#: name, module and its source in C++, what a CPU computes with it, what takes its place
COMPILED = (
    ("attention", "fairseq_relpos.backends.fused", "SOURCE", "the backend fused", "the backend lean, which is slower"),
    ("gates", "fairseq_relpos.gated.compiled", "GATED", "the product of m3", "Python, several times slower"),
)


def check_compiled(name: str, module: str, source: str, what: str, otherwise: str) -> Check:
    """Says whether a CPU uses compiled code. The check compiles it if that has not been done before."""
    part, error = attempt_import(module)
    compiled, _ = attempt_import("fairseq_relpos.gated.compiled")
    if error:
        return Check(name, "warn", "not looked for: the plugin does not import")
    try:  # in a child process, because a broken library may kill the process that loads it
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as child:
            loads, where = child.submit(loads_library, getattr(part, source)).result()
    except BrokenProcessPool:
        folder = compiled.cache_folder()
        advice = f"rm -r {folder}; if that does not help, export FAIRSEQ_RELPOS_COMPILE=0"
        return Check(name, "FAIL", f"the library in {folder} kills the process that loads it", advice)
    if loads:
        return Check(name, "ok", f"on a CPU {what} is compiled: {where}")
    found = f"on a CPU {what} is replaced by {otherwise}: {where}"
    if os.environ.get("FAIRSEQ_RELPOS_COMPILE") == "0":
        return Check(name, "ok", found)
    return Check(name, "warn", found, "repair the compiler, if you train or evaluate on a CPU")


def loads_library(source: Any) -> tuple[bool, str]:
    library, where = importlib.import_module("fairseq_relpos.gated.compiled").attempt(source)
    return library is not None, where


CHECKS: tuple[Callable[[], Check], ...] = (
    check_python,
    check_torch,
    functools.partial(check_library, "numpy", "1.24", needed=True),
    check_fairseq,
    check_plugin,
    check_command,
    check_user_dir,
    *(functools.partial(check_library, *library) for library in LIBRARIES),
    functools.partial(check_companion, "torchaudio", "fairseq reads speech with it"),
    functools.partial(check_companion, "torchvision", "nothing here needs it"),
    *(functools.partial(check_compiled, *compiled) for compiled in COMPILED),
    check_gpu,
    check_bf16,
    check_fused,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Exit status: 0 if fairseq-train can run with the plugin, 1 if not."
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="also run the kernels of the triton backend, and compare them with lean (a minute)",
    )


def run(args: argparse.Namespace | None = None) -> int:
    # Log lines and warnings of libraries would break up the list.
    logging.disable(logging.WARNING)
    failures = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for check in [*CHECKS, *([check_kernels] if args is not None and args.gpu else [])]:
            try:
                result = check()
            except Exception as error:  # the other checks still run
                name = getattr(check, "__name__", "check_library").removeprefix("check_")
                result = Check(name, "FAIL", one_line(error))
            failures += result.status == "FAIL"
            print(result, flush=True)
    logging.disable(logging.NOTSET)
    if failures:
        print(f"\nfairseq-train cannot run with the plugin: repair each FAIL above ({failures}).")
        return 1
    here = Path("fairseq_relpos").exists()
    print(f"\nfairseq-train --user-dir {'fairseq_relpos' if here else PACKAGE} can run here.")
    return 0


if __name__ == "__main__":
    # Otherwise Python could import the modules beside this file as installed libraries.
    sys.path[0] = str(PACKAGE.parent)
    sys.exit(run())
