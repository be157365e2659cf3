import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted([*ROOT.glob("scripts/*.sh"), *ROOT.glob("examples/**/*.sh"), ROOT / ".ci/run"])


@pytest.fixture(scope="module")
def arguments():
    """The keyword arguments that setup.py gives to setuptools."""
    program = (
        "import json, runpy, setuptools; setuptools.setup = lambda **kw: print(json.dumps(kw));"
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


def test_fairseq_is_an_extra_so_that_a_users_own_fairseq_is_kept(arguments):
    assert not any("fairseq" in r for r in arguments["install_requires"])
    assert arguments["extras_require"]["fairseq"] == ["fairseq-fixed==0.12.3.1"]


def test_every_folder_with_code_is_a_package_that_gets_installed(arguments):
    folders = {p.parent.relative_to(ROOT) for p in (ROOT / "fairseq_relpos").rglob("*.py")}
    assert {".".join(f.parts) for f in folders} == set(arguments["packages"])


def test_what_the_code_reads_is_installed_with_it(arguments):
    patterns = arguments["package_data"][""]
    files = [p for p in (ROOT / "fairseq_relpos").rglob("*")
             if p.is_file() and p.suffix not in (".py", ".pyc")]
    assert ROOT / "fairseq_relpos/gated.cpp" in files
    assert not [p for p in files if not any(p.match(pattern) for pattern in patterns)]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_script_parses_and_is_executable_unless_it_is_only_sourced(script):
    assert os.access(script, os.X_OK) == script.read_text().startswith("#!")
    subprocess.run(["bash", "-n", script], check=True)


# --- scripts/setup.sh on machines that lack something ---


@pytest.fixture
def checkout(tmp_path):
    """What setup.sh reads, in a folder of its own."""
    (tmp_path / "scripts").mkdir()
    for name in ("setup.py", "pyproject.toml", "constraints.txt", "scripts/setup.sh"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


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
        env={**clean, "PYTHON": sys.executable, **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )


def assert_one_line_error(done, *parts):
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert all(part in done.stderr for part in ("setup: error: ", *parts)), done.stderr


OLD_PYTHON = 'case "$*" in *exit*) exit 1 ;; *print*) echo 3.8 ;; esac'


def test_setup_refuses_an_old_python(checkout):
    old = program(checkout / "fake/python3.8", OLD_PYTHON)
    done = setup_sh(checkout, PYTHON=str(old))
    assert_one_line_error(done, "is Python 3.8", "3.10 or newer")


def test_setup_refuses_a_python_that_does_not_run(checkout):
    assert_one_line_error(setup_sh(checkout, PYTHON="python-no-such"), "does not run")


def test_setup_says_what_to_install_if_path_has_only_old_pythons(checkout):
    for name in ("python3.12", "python3.11", "python3.10", "python3"):
        program(checkout / "fake" / name, OLD_PYTHON)
    done = setup_sh(checkout, PYTHON="", PATH=f"{checkout}/fake:{os.environ['PATH']}")
    assert_one_line_error(done, "no Python 3.10 or newer", "apt-get install python3.11")


def test_setup_passes_over_a_newer_python_that_does_not_run(checkout):
    program(checkout / "fake/python3.12", "echo 'no such version' >&2; exit 127")
    program(checkout / "fake/python3.11", f'exec "{sys.executable}" "$@"')
    path = f"{checkout}/fake:{os.environ['PATH']}"
    done = setup_sh(checkout, PYTHON="", PATH=path, CXX="no-such-compiler")
    assert_one_line_error(done, "no-such-compiler")


def test_setup_names_the_missing_venv_module(checkout):
    python = python_that(checkout, '[[ "$*" != *ensurepip* ]] || exit 1')
    assert_one_line_error(
        setup_sh(checkout, PYTHON=str(python)), "apt-get install python3.", "-venv"
    )


def test_setup_names_the_missing_compiler(checkout):
    done = setup_sh(checkout, CXX="no-such-compiler")
    assert_one_line_error(done, "'no-such-compiler'", "apt-get install g++")


def test_setup_names_the_missing_headers(checkout):
    python = python_that(checkout, '[[ "$*" != *sysconfig* ]] || { echo /nowhere; exit; }')
    done = setup_sh(checkout, PYTHON=str(python))
    assert_one_line_error(done, "/nowhere/Python.h", "apt-get install python3.", "-dev")


def test_setup_names_the_space_it_needs(checkout):
    program(checkout / "fake/df", "printf 'Filesystem\\nx 1 1 2000000 1%% /\\n'")
    done = setup_sh(checkout, PATH=f"{checkout}/fake:{os.environ['PATH']}")
    assert_one_line_error(done, "1 GB free", "4 GB needed")


def test_setup_names_a_disk_that_fills_up_on_the_way(checkout):
    full = '[[ "$*" != *"-m venv"* ]] || { echo "[Errno 28] No space left on device"; exit 1; }'
    done = setup_sh(checkout, PYTHON=str(python_that(checkout, full)))
    assert_one_line_error(done, "the disk is full")


def test_setup_refuses_an_environment_that_was_made_in_another_folder(checkout):
    program(checkout / ".venv/bin/python", f'exec "{sys.executable}" "$@"')
    (checkout / ".venv/bin/activate").write_text("VIRTUAL_ENV=/another/folder/.venv\n")
    assert_one_line_error(setup_sh(checkout), "made in another folder", "remove it")


def test_setup_returns_at_once_until_something_it_reads_changes(checkout):
    program(checkout / ".venv/bin/python", f'exec "{sys.executable}" "$@"')
    stamp = (
        "cat setup.py pyproject.toml constraints.txt scripts/setup.sh | cksum > .venv/setup.stamp"
    )
    subprocess.run(stamp, shell=True, check=True, cwd=checkout)
    done = setup_sh(checkout, CXX="no-such-compiler")
    assert done.returncode == 0 and "ready" in done.stdout

    another_torch = {"CXX": "no-such-compiler", "TORCH_INDEX_URL": "file:///another"}
    assert setup_sh(checkout, **another_torch).returncode == 1

    (checkout / "constraints.txt").write_text("torch==2.99.0\n")
    assert_one_line_error(setup_sh(checkout, CXX="no-such-compiler"), "no-such-compiler")
