import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from served import served

from fairseq_relpos import version
from fairseq_relpos.cli import EXTRAS

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted([*ROOT.glob("scripts/*.sh"), *ROOT.glob("examples/**/*.sh"), ROOT / ".ci/run"])


@pytest.fixture(scope="module")
def arguments():
    """The keyword arguments that setup.py gives to setuptools."""
    program = (
        "import json, runpy, setuptools; setuptools.setup = lambda **kw: print(json.dumps(kw, default=repr));"
        "runpy.run_path('setup.py')"
    )
    return json.loads(subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True))


def distribution(requirement):
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


def test_every_requirement_is_pinned(arguments):
    pins = [x for x in (ROOT / "constraints.txt").read_text().splitlines() if not x.startswith("#")]
    assert all(re.fullmatch(r'[\w.-]+==[\w.]+(; python_version (<|>=) "3\.11")?', x) for x in pins)
    required = arguments["install_requires"] + sum(arguments["extras_require"].values(), [])
    assert {distribution(r) for r in required} <= {distribution(x) for x in pins}


def test_version_is_written_in_one_place(arguments):
    import fairseq_relpos

    assert arguments["version"] == fairseq_relpos.__version__
    assert f"version: {fairseq_relpos.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {fairseq_relpos.__version__} " in (ROOT / "CHANGELOG.md").read_text()


def test_the_table_of_what_ran_has_the_pythons_that_setup_promises(arguments):
    promised = {c.split()[-1] for c in arguments["classifiers"] if re.search(r":: 3\.\d+$", c)}
    rows = re.findall(r"^\| (3\.\d+)\.\d+ \|", (ROOT / "docs/installing.md").read_text(), re.M)
    assert set(rows) == promised
    known = re.search(r"(?m)^ +(3\.10.*)\) ;;$", (ROOT / "scripts/setup.sh").read_text())[1]
    assert set(known.split(" | ")) == promised


def test_the_package_alone_needs_torch_and_numpy_and_extras_the_rest(arguments):
    """So a user's own fairseq is kept."""
    assert {distribution(r) for r in arguments["install_requires"]} == {"torch", "numpy"}
    extras = arguments["extras_require"]
    assert extras["fairseq"] == ["fairseq-fixed==0.12.3.1", *extras["recipes"]]
    assert set(EXTRAS.values()) <= set(extras)  # those that messages name


RELATIVE = re.compile(r"\]\((?![a-z]+://)")


@pytest.mark.parametrize("address", ["", "https://example.org/fairseq_relpos"])
def test_the_page_of_the_package_has_no_relative_link(address, tmp_path):
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "fairseq_relpos", tmp_path / "fairseq_relpos", ignore=shutil.ignore_patterns("__pycache__"))
    about = tmp_path / "fairseq_relpos/version.py"
    about.write_text(about.read_text().replace('REPOSITORY = ""', f'REPOSITORY = "{address}"'))
    program = "from setuptools import build_meta as b; print(b.prepare_metadata_for_build_wheel('.'))"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True)
    metadata = next(tmp_path.glob("*.dist-info/METADATA")).read_text()
    assert "# fairseq_relpos" in metadata and not RELATIVE.search(metadata)
    assert ("Project-URL: Source, " + address in metadata) == bool(address)
    assert ("/blob/main/docs/installing.md#versions-that-ran" in metadata) == bool(address)
    assert ("/raw/main/docs/images/tupe_r_bias.png" in metadata) == bool(address)


def test_every_folder_with_code_is_a_package_that_gets_installed(arguments):
    folders = {p.parent.relative_to(ROOT) for p in (ROOT / "fairseq_relpos").rglob("*.py")}
    assert {".".join(f.parts) for f in folders} == set(arguments["packages"])


def test_what_the_code_reads_is_installed_with_it(arguments):
    patterns = arguments["package_data"][""]
    files = [p for p in (ROOT / "fairseq_relpos").rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")]
    assert ROOT / "fairseq_relpos/gated/gated.cpp" in files
    assert not [p for p in files if not any(p.match(pattern) for pattern in patterns)]


def test_the_sdist_has_all_that_the_repository_has():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("no clone")
    setuptools_adds = {"setup.py", "pyproject.toml", "MANIFEST.in", "fairseq_relpos"}
    tracked = {line.split("/")[0] for line in listed.stdout.splitlines()} - setuptools_adds - {".gitignore"}
    assert tracked - set((ROOT / "MANIFEST.in").read_text().split()) == set()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_script_parses_and_is_executable_unless_it_is_only_sourced(script):
    assert os.access(script, os.X_OK) == script.read_text().startswith("#!")
    subprocess.run(["bash", "-n", script], check=True)


def test_an_extra_comes_from_the_installed_package_or_a_checkout(monkeypatch):
    assert version.install("hf") == "pip install 'fairseq_relpos[hf]'"
    assert "--no-build-isolation 'fairseq_relpos[fairseq]'" in version.install("fairseq")

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert version.install("hf").startswith("pip install '.[hf]' in a checkout")


def test_who_has_nothing_installs_from_the_address_of_the_repository(monkeypatch):
    assert version.install_package("hf").startswith("pip install '.[hf]' in a checkout")
    monkeypatch.setattr(version, "REPOSITORY", "https://example.org/fairseq_relpos")
    requirement = Requirement(shlex.split(version.install_package("hf"))[2])
    assert (requirement.name, requirement.extras) == ("fairseq_relpos", {"hf"})
    assert requirement.url == "git+https://example.org/fairseq_relpos"


# --- scripts/setup.sh on machines that lack something ---


@pytest.fixture
def checkout(tmp_path):
    """The files that setup.sh reads, in a folder of their own."""
    (tmp_path / "scripts").mkdir()
    for name in ("setup.py", "pyproject.toml", "constraints.txt", "scripts/setup.sh"):
        shutil.copy(ROOT / name, tmp_path / name)
    cpu_index_at(tmp_path, "http://127.0.0.1:9")
    return tmp_path


def cpu_index_at(checkout, address, name="CPU_INDEX"):
    """Another address in place of PyTorch's own."""
    script = checkout / "scripts/setup.sh"
    changed, count = re.subn(rf"(?m)^{name}=\S*", f"{name}={address}", script.read_text())
    assert count == 1
    script.write_text(changed)


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return path


def python_that(checkout, reaction):
    """This Python, but for what the shell text `reaction` does to its arguments."""
    return program(checkout / "fake/python", f'{reaction}\nexec "{sys.executable}" "$@"')


def setup_sh(checkout, **environ):
    clean = {k: v for k, v in os.environ.items() if k not in ("CC", "CXX", "TORCH_INDEX_URL")}
    return subprocess.run(
        ["bash", "scripts/setup.sh"],
        cwd=checkout,
        env={**clean, "PYTHON": sys.executable, "no_proxy": "127.0.0.1", **environ},
        capture_output=True,
        text=True,
        timeout=600,
    )


def assert_one_line_error(done, *parts):
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert all(part in done.stderr for part in ("setup: error: ", *parts)), done.stderr


def old_python(checkout):
    return {"PYTHON": str(program(checkout / "fake/python3.8", OLD_PYTHON))}


def only_old_pythons(checkout):
    for name in ("python3.12", "python3.11", "python3.10", "python3"):
        program(checkout / "fake" / name, OLD_PYTHON)
    return {"PYTHON": "", "PATH": f"{checkout}/fake:{os.environ['PATH']}"}


def newer_python_that_does_not_run(checkout):
    """It is passed over."""
    program(checkout / "fake/python3.12", "echo 'no such version' >&2; exit 127")
    program(checkout / "fake/python3.11", f'exec "{sys.executable}" "$@"')
    return {"PYTHON": "", "PATH": f"{checkout}/fake:{os.environ['PATH']}", "CXX": "no-such-compiler"}


def no_venv_module(checkout):
    return {"PYTHON": str(python_that(checkout, '[[ "$*" != *ensurepip* ]] || exit 1'))}


def no_headers(checkout):
    return {"PYTHON": str(python_that(checkout, '[[ "$*" != *sysconfig* ]] || { echo /nowhere; exit; }'))}


def full_disk(checkout):
    full = '[[ "$*" != *"-m venv"* ]] || { echo "[Errno 28] No space left on device"; exit 1; }'
    return {"PYTHON": str(python_that(checkout, full))}


def stamp_as_ready(checkout):
    stamp = "cat setup.py pyproject.toml constraints.txt scripts/setup.sh | cksum > .venv/setup.stamp"
    subprocess.run(stamp, shell=True, check=True, cwd=checkout)


def environment_of_another_folder(checkout):
    program(checkout / ".venv/bin/python", f'exec "{sys.executable}" "$@"')
    (checkout / ".venv/bin/activate").write_text("VIRTUAL_ENV=/another/folder/.venv\n")
    return {}


def environment_of_another_python(checkout):
    """Also where nothing else is left to do."""
    program(checkout / ".venv/bin/python", f'exec "{sys.executable}" "$@"')
    stamp_as_ready(checkout)
    return {"PYTHON": str(python_that(checkout, '[[ "$*" != *sys.version* ]] || { echo 3.99; exit; }'))}


OLD_PYTHON = 'case "$*" in *exit*) exit 1 ;; *print*) echo 3.8 ;; esac'


@pytest.mark.parametrize(
    "machine, parts",
    [
        (old_python, ["is Python 3.8", "3.10 or newer"]),
        (lambda checkout: {"PYTHON": "python-no-such"}, ["does not run"]),
        (only_old_pythons, ["no Python 3.10 or newer", "apt-get install python3.11"]),
        (newer_python_that_does_not_run, ["no-such-compiler"]),
        (no_venv_module, ["apt-get install python3.", "-venv"]),
        (lambda checkout: {"CXX": "no-such-compiler"}, ["'no-such-compiler'", "apt-get install g++"]),
        (no_headers, ["/nowhere/Python.h", "apt-get install python3.", "-dev"]),
        (full_disk, ["the disk is full"]),
        (environment_of_another_folder, ["made in another folder", "remove it"]),
        (environment_of_another_python, ["fake/python is another", "remove .venv"]),
    ],
)
def test_setup_names_what_a_machine_lacks(checkout, machine, parts):
    assert_one_line_error(setup_sh(checkout, **machine(checkout)), *parts)


# A python whose venv is one line more than an empty folder: its pip writes down what it is asked.
MAKES_A_VENV = """
case "$*" in
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; exit ;;
  "-m pip --version") exit 0 ;;
  "-m pip "*) echo "${@:3}" >>pip.log; exit ;;
esac"""


@pytest.fixture
def machine(checkout):
    """machine(gpu=..., free=...) runs setup.sh on one like that, with a pip that installs nothing."""

    def run(gpu=False, free=20, capability="8.0", **environ):
        several = f"""case "$*" in *compute_cap*) echo {capability}; exit ;; esac
        echo 'GPU 0: A100'; sleep 0.2; echo 'GPU 1: A100'; echo 'GPU 2: A100'"""
        program(checkout / "fake/nvidia-smi", several if gpu else "echo 'No devices were found'; exit 6")
        program(checkout / "fake/df", f"printf 'Filesystem\\nx 1 1 {free * 2**20} 1%% /\\n'")
        python = python_that(checkout, MAKES_A_VENV)
        return setup_sh(checkout, PYTHON=str(python), PATH=f"{checkout}/fake:{os.environ['PATH']}", **environ)

    return run


TORCH = re.search(r"(?m)^torch==(.*)", (ROOT / "constraints.txt").read_text())[1]


@pytest.fixture
def cpu_index(checkout, tmp_path_factory):
    """A server in place of PyTorch's: its cpu has a wheel of torch for this Python, its cu126 only lists one."""
    python = "cp{}{}".format(*sys.version_info)
    root = tmp_path_factory.mktemp("index")
    for build in ("cpu", "cu126"):
        (root / build / "torch").mkdir(parents=True)
        wheel = f"torch-{TORCH}+{build}-{python}-{python}-linux_{platform.machine()}.whl"
        link = wheel.replace("+", "%2B")
        (root / build / "torch/index.html").write_text(f'<a href="{link}">{wheel}</a>')
    folder = root / "cpu"
    with zipfile.ZipFile(folder / "torch" / wheel.replace("cu126", "cpu"), "w") as file:
        info = f"torch-{TORCH}+cpu.dist-info"
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {TORCH}+cpu\n")
        file.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nTag: {python}-{python}-linux_{platform.machine()}\n")
        file.writestr(f"{info}/RECORD", "")

    with served(root) as address:
        cpu_index_at(checkout, f"{address}/cpu")
        yield folder, address


def torch_line(checkout):
    """The line of pip's log about torch."""
    (line,) = [
        x for x in (checkout / "pip.log").read_text().splitlines() if re.search(r"install .*\btorch(==\S+)?$", x)
    ]
    return line


def test_setup_takes_the_cpu_build_where_there_is_no_gpu(checkout, machine, cpu_index):
    done = machine(free=4)
    assert done.returncode == 0, done.stderr
    assert "no GPU" in done.stdout and "0.2 GB to download" in done.stdout
    asked = torch_line(checkout).split()
    assert asked[-1].endswith("+cpu") and asked[-3] == "--extra-index-url"
    # what it says is enough for pip to take that wheel, and no other
    pip = [sys.executable, "-m", "pip", "--isolated", *asked, "--dry-run", "--no-deps", "--ignore-installed"]
    found = subprocess.run([*pip, "--index-url", "file:///nowhere"], cwd=checkout, capture_output=True, text=True)
    assert f"Would install {asked[-1].replace('==', '-')}" in found.stdout, found.stderr

    # it stays so, and another build is taken when it is asked for
    assert "ready" in machine(gpu=True).stdout
    cuda = machine(free=8, TORCH_INDEX_URL=f"{cpu_index[1]}/cu126")
    assert cuda.returncode == 0 and "uninstall -y torch" in (checkout / "pip.log").read_text()
    assert f"/cu126 torch=={TORCH}+cu126" in (checkout / "pip.log").read_text()


def torch_is_there(checkout, version=TORCH):
    info = checkout / f".venv/lib/python3.11/site-packages/torch-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").touch()


def test_setup_refuses_an_index_that_was_given_and_does_not_have_the_build(checkout, machine, cpu_index):
    dead = machine(TORCH_INDEX_URL="http://me:secret@127.0.0.1:9/whl/cu126")
    assert_one_line_error(dead, "TORCH_INDEX_URL=http://127.0.0.1:9/whl/cu126 does not answer", "correct it", "unset")
    assert_one_line_error(machine(TORCH_INDEX_URL=f"{cpu_index[1]}/cu999"), "cu999 does not answer (File not found)")
    assert_one_line_error(machine(TORCH_INDEX_URL="no address"), "TORCH_INDEX_URL=no address does not answer")
    (cpu_index[0] / "torch/index.html").write_text("torch-2.0.0+cpu-cp38-cp38-linux_x86_64.whl")
    assert_one_line_error(machine(TORCH_INDEX_URL=f"{cpu_index[1]}/cpu"), f"/cpu has no torch {TORCH} for cp")
    assert not (checkout / "pip.log").exists() and not (checkout / ".venv").exists()


def test_setup_asks_a_remembered_index_again_only_for_a_torch_that_is_not_there(checkout, machine):
    torch_is_there(checkout, f"{TORCH}+cu126")
    source = checkout / ".venv/torch-index-url"
    source.write_text("http://127.0.0.1:9/whl/cu126\n")
    done = machine(free=3)
    assert done.returncode == 0 and "uninstall" not in (checkout / "pip.log").read_text(), done.stderr

    pins = checkout / "constraints.txt"
    pins.write_text(pins.read_text().replace(f"torch=={TORCH}", "torch==2.99.0"))
    assert_one_line_error(
        machine(),
        "http://127.0.0.1:9/whl/cu126, which .venv was made with, does not answer",
        "set TORCH_INDEX_URL",
        f"remove {source}",
    )


def test_setup_chooses_the_build_again_when_the_torch_that_is_there_is_an_old_one(checkout, machine, cpu_index):
    torch_is_there(checkout, "2.0.0")
    assert machine(free=4).returncode == 0
    assert torch_line(checkout).endswith(f"/cpu torch=={TORCH}+cpu")


@pytest.mark.parametrize("code, fits", {"": True, "raise OSError('no libcudart')": False}.items())
def test_setup_removes_a_torchaudio_that_does_not_fit_torch(code, fits, checkout, machine):
    torch_is_there(checkout)
    info = checkout / ".venv/lib/python3.11/site-packages/torchaudio-2.11.0.dist-info"
    info.mkdir()
    (info / "RECORD").touch()
    (checkout / "stub").mkdir()
    (checkout / "stub/torchaudio.py").write_text(code)
    done = machine(PYTHONPATH=f"{checkout}/stub")
    assert done.returncode == 0, done.stderr
    assert ("uninstall -y torchaudio" in (checkout / "pip.log").read_text()) != fits
    assert ("torchaudio does not fit" in done.stdout) != fits


def test_setup_goes_on_with_the_default_index_and_says_what_it_costs(checkout, machine, cpu_index):
    (cpu_index[0] / "torch/index.html").write_text("torch-2.0.0+cpu-cp38-cp38-linux_x86_64.whl")
    assert "has no torch" in machine().stdout
    shutil.rmtree(checkout / ".venv")
    (checkout / "pip.log").unlink()
    cpu_index_at(checkout, "http://127.0.0.1:9")
    done = machine()
    assert done.returncode == 0 and "ready" in done.stdout
    assert "127.0.0.1:9 does not answer" in done.stdout and "5.3 GB" in done.stdout
    assert "TORCH_INDEX_URL" in done.stdout and "index-url" not in torch_line(checkout)


def test_setup_takes_the_default_build_on_a_gpu(checkout, machine, cpu_index):
    done = machine(gpu=True)
    assert done.returncode == 0 and "a GPU" in done.stdout and "3 GB to download" in done.stdout
    assert "index-url" not in torch_line(checkout)


def test_setup_takes_the_last_builds_with_kernels_for_a_v100(checkout, machine, cpu_index):
    cpu_index_at(checkout, f"{cpu_index[1]}/cu126", "OLD_GPU_INDEX")
    done = machine(gpu=True, capability="7.0")
    assert done.returncode == 0, done.stderr
    assert "sm_75" in done.stdout and "3 GB to download" in done.stdout
    assert torch_line(checkout).endswith(f"/cu126 torch=={TORCH}+cu126")
    shutil.rmtree(checkout / ".venv")
    cpu_index_at(checkout, f"{cpu_index[1]}/cu999", "OLD_GPU_INDEX")
    assert_one_line_error(machine(gpu=True, capability="7.0"), "cu999", "TORCH_INDEX_URL")


def test_setup_names_the_space_that_its_choice_of_torch_needs(checkout, machine, cpu_index):
    assert_one_line_error(machine(free=3), "3 GB free", "4 GB needed")
    assert_one_line_error(machine(gpu=True, free=7), "7 GB free", "8 GB needed")
    assert_one_line_error(machine(free=3, TORCH_INDEX_URL=f"{cpu_index[1]}/cpu/"), "4 GB needed")
    assert_one_line_error(machine(free=7, TORCH_INDEX_URL=f"file://{cpu_index[0].parent}/cu126"), "8 GB needed")
    cpu_index_at(checkout, "http://127.0.0.1:9")
    assert_one_line_error(machine(free=7), "8 GB needed")


def test_setup_leaves_a_torch_that_is_there(checkout, machine):
    torch_is_there(checkout)
    done = machine(free=3)
    assert done.returncode == 0 and "does not answer" not in done.stdout
    assert "index-url" not in torch_line(checkout) and "uninstall" not in (checkout / "pip.log").read_text()


def test_setup_goes_on_without_locks_and_asks_for_one_of_a_file_that_can_be_written(checkout, machine):
    torch_is_there(checkout)
    program(checkout / "fake/flock", "echo bad >&2; grep -q '^flags:.*0$' /proc/$$/fdinfo/9 || exit 1")
    done = machine()
    assert done.returncode == 0 and "no file locks here" in done.stdout and done.stderr == ""


def test_setup_returns_at_once_until_something_it_reads_changes(checkout):
    program(checkout / ".venv/bin/python", f'exec "{sys.executable}" "$@"')
    stamp_as_ready(checkout)
    done = setup_sh(checkout, CXX="no-such-compiler")
    assert done.returncode == 0 and "ready" in done.stdout

    another_torch = {"CXX": "no-such-compiler", "TORCH_INDEX_URL": "file:///another"}
    assert setup_sh(checkout, **another_torch).returncode == 1

    (checkout / "constraints.txt").write_text("torch==2.99.0\n")
    assert_one_line_error(setup_sh(checkout, CXX="no-such-compiler"), "no-such-compiler")
