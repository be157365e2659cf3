#!/usr/bin/env bash
# Make .venv and install fairseq, the plugin (editable) and the test tools into it, at the
# versions in constraints.txt. Run it again at any time: it goes on where it stopped, and
# returns at once when there is nothing to do.
#
#   PYTHON=python3.12 bash scripts/setup.sh            # choose the interpreter
#   TORCH_INDEX_URL=https://download.pytorch.org/whl/cu126 bash scripts/setup.sh
#                                                      # choose the torch build (V100: cu126)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

NEEDED_GB=4          # CPU build of torch and Triton: 2.2 GB installed, and room to unpack and compile
VENV=$(pwd -P)/.venv
LOG=$VENV/setup.log
STAMP=$VENV/setup.stamp
TORCH_SOURCE=$VENV/torch-index-url

say() { echo "setup: $*"; }
die() { echo "setup: error: $*" >&2; exit 1; }

runs_and_is_new_enough() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null
}

version_of() {
  "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

choose_python() {
  if [ -n "${PYTHON:-}" ]; then
    runs_and_is_new_enough "$PYTHON" ||
      die "PYTHON=$PYTHON is Python $(version_of "$PYTHON" || echo '(does not run)'); needs 3.10 or newer: set PYTHON to one"
    return
  fi
  for PYTHON in python3.12 python3.11 python3.10 python3; do
    if runs_and_is_new_enough "$PYTHON"; then return; fi
  done
  die "no Python 3.10 or newer on PATH: install python3.11 (apt-get install python3.11 python3.11-venv python3.11-dev) or set PYTHON"
}

# Everything that would otherwise fail minutes later, inside pip.
check_machine() {
  local version gigabytes_free include
  version=$(version_of "$PYTHON")
  "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
    die "$PYTHON has no venv module: apt-get install python$version-venv"
  command -v "${CXX:-c++}" >/dev/null ||
    die "no C++ compiler '${CXX:-c++}', which fairseq needs: apt-get install g++ (or set CXX)"
  command -v "${CC:-cc}" >/dev/null ||
    die "no C compiler '${CC:-cc}', which fairseq needs: apt-get install gcc (or set CC)"
  include=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))')
  [ -e "$include/Python.h" ] ||
    die "$include/Python.h is missing, which fairseq needs: apt-get install python$version-dev"
  gigabytes_free=$(($(df -Pk . | awk 'NR == 2 { print $4 }') / 1024 / 1024))
  [ "$gigabytes_free" -ge "$NEEDED_GB" ] ||
    die "$gigabytes_free GB free in $PWD, $NEEDED_GB GB needed: make room (a CUDA build of torch takes 8 GB)"
  case $version in
    3.10 | 3.11 | 3.12) ;;
    *) say "Python $version was never tried here; if this fails, set PYTHON to 3.10, 3.11 or 3.12" ;;
  esac
}

make_venv() {
  "$PYTHON" -m venv "$VENV" >>"$LOG" 2>&1 || explain_failure
}

pip_install() {
  # CUDA_HOME would make fairseq's build look for CUDA sources that its sdist does not carry.
  env -u CUDA_HOME "$VENV/bin/python" -m pip install -c constraints.txt "$@" >>"$LOG" 2>&1 ||
    explain_failure
}

explain_failure() {
  if grep -q 'No space left on device' "$LOG"; then
    die "the disk is full: make room ($NEEDED_GB GB, or 8 GB for a CUDA build of torch) and run this again"
  fi
  tail -n 15 "$LOG" >&2
  die "the last command failed (above; all of it in $LOG): mend that and run this again, it goes on where it stopped"
}

# Two scripts started at once must not install into one .venv at the same time.
if command -v flock >/dev/null; then
  exec 9<constraints.txt
  flock 9
fi

if [ -x "$VENV/bin/python" ]; then
  runs_and_is_new_enough "$VENV/bin/python" ||
    die "$VENV holds no working Python 3.10 or newer: remove it and run this again"
  grep -qF "$VENV" "$VENV/bin/activate" 2>/dev/null || [ ! -e "$VENV/bin/activate" ] ||
    die "$VENV was made in another folder and its commands still point there: remove it and run this again"
fi

wanted=$(cat setup.py pyproject.toml constraints.txt scripts/setup.sh | cksum)
old_torch_source=$(cat "$TORCH_SOURCE" 2>/dev/null || true)
torch_source=${TORCH_INDEX_URL:-$old_torch_source}
if [ "$wanted" = "$(cat "$STAMP" 2>/dev/null)" ] && [ "$torch_source" = "$old_torch_source" ]; then
  say "ready: $VENV"
  exit 0
fi

[ ! -x "$VENV/bin/python" ] || PYTHON=$VENV/bin/python
choose_python
check_machine
mkdir -p "$VENV"
: >"$LOG"
rm -f "$STAMP"

if ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
  say "1/4 .venv with $PYTHON ($("$PYTHON" -c 'import platform; print(platform.python_version())'))"
  make_venv
fi

say "2/4 torch and the build tools (half a minute; a CUDA build downloads 3 GB)"
if [ "$torch_source" != "$old_torch_source" ]; then
  # pip takes any build of the pinned version for the right one, so the old one must go first.
  "$VENV/bin/python" -m pip uninstall -y torch >>"$LOG" 2>&1
fi
pip_install pip
# An extra index, not the only one: what torch needs is pinned to versions that PyPI has.
pip_install ${torch_source:+--extra-index-url "$torch_source"} torch
[ -z "$torch_source" ] || echo "$torch_source" >"$TORCH_SOURCE"
pip_install "setuptools>=77" wheel "cython>=3" numpy

# With build isolation pip would fetch a second torch, the newest, and compile against that.
say "3/4 fairseq (compiles for about two minutes)"
pip_install --no-build-isolation "fairseq-fixed==0.12.3.1"

say "4/4 the plugin, logging and test tools"
pip_install --no-build-isolation --editable ".[fairseq,log,dev]"

echo "$wanted" >"$STAMP"
say "ready: $VENV (activate: source .venv/bin/activate)"
