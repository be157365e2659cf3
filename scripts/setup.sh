#!/usr/bin/env bash
# Make .venv and install fairseq, the plugin (editable) and the test tools into it, at the
# versions in constraints.txt. Run it again at any time: it continues where it stopped, and
# returns at once when there is nothing to do.
#
#   PYTHON=python3.12 bash scripts/setup.sh            # choose the interpreter
#
# If nvidia-smi lists a GPU, torch comes from PyPI, which has the CUDA build. For GPUs older than sm_75, such as a V100, it
# is a build for CUDA 12.6: no other has kernels for them, and none after torch 2.14. Without a GPU it is the CPU build.
# TORCH_INDEX_URL chooses another build, now or later, or a mirror of PyTorch's wheels. .venv remembers it:
#
#   TORCH_INDEX_URL=https://download.pytorch.org/whl/cu126 bash scripts/setup.sh      # GPUs on other nodes, none here
#   TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu bash scripts/setup.sh        # there is a GPU, do not use it
set -euo pipefail
shopt -s extglob
cd "$(dirname "${BASH_SOURCE[0]}")/.."

CPU_INDEX=https://download.pytorch.org/whl/cpu
OLD_GPU_INDEX=https://download.pytorch.org/whl/cu126
SECONDS_TO_ANSWER=8
# free space, with room to unpack and compile
GB_WITH_CPU_BUILD=4    # installed 2.2 GB with Triton; downloaded 0.5 GB
GB_WITH_CUDA_BUILD=8   # installed 5.3 GB; downloaded 3 GB
GB_WITHOUT_TORCH=2     # where torch is there already
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
  local version include
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
  case $version in
    3.10 | 3.11 | 3.12 | 3.13) ;;
    *) say "Python $version was never tried here; if this fails, set PYTHON to 3.10, 3.11, 3.12 or 3.13" ;;
  esac
}

# All of the output is read: a pipe that closes at the first line would end nvidia-smi with an error.
has_gpu() { [[ $'\n'$(timeout 10 nvidia-smi -L 2>/dev/null) == *$'\nGPU '* ]]; }
# whether one of them is older than sm_75
has_old_gpu() {
  timeout 10 nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
    awk '/^[0-9.]+$/ && $1 < 7.5 { old = 1 } END { exit !old }'
}
# whether torch is there at the version wanted, in whatever build
has_torch() {
  compgen -G "$VENV/lib/python*/site-packages/torch-$torch_version.dist-info/RECORD" >/dev/null ||
    compgen -G "$VENV/lib/python*/site-packages/torch-$torch_version+*.dist-info/RECORD" >/dev/null
}

# torch_at INDEX BUILD: the version of torch with its build, BUILD being a regular expression, that the index has
# for this Python and machine; if it has none, why. Like pip it takes user:password@ and PIP_CERT.
torch_at() {
  timeout $((2 * SECONDS_TO_ANSWER)) "$PYTHON" - "${1%/}/torch/" "$SECONDS_TO_ANSWER" "$torch_version" "$2" 2>&1 <<'END'
import base64, http.client, os, platform, re, ssl, sys, urllib.parse, urllib.request
address, seconds, version, build = sys.argv[1:]
python = "cp%d%d" % sys.version_info[:2]
wheel = rf"torch-({re.escape(version)}{build})-{python}-(?:{python}|none)-[\w.]*{platform.machine()}\.whl"
try:
    parts = urllib.parse.urlsplit(address)
    user, _, host = parts.netloc.rpartition("@")
    path = parts.path + "index.html" * (parts.scheme == "file")
    request = urllib.request.Request(parts._replace(netloc=host, path=path).geturl())
    if user:
        coded = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
        request.add_header("Authorization", f"Basic {coded}")
    certificates = os.environ.get("PIP_CERT") or os.environ.get("REQUESTS_CA_BUNDLE")
    trust = ssl.create_default_context(cafile=certificates) if parts.scheme == "https" else None
    page = urllib.request.urlopen(request, timeout=float(seconds), context=trust).read().decode()
except (OSError, ValueError, http.client.HTTPException) as error:
    sys.exit(f"does not answer ({getattr(error, 'reason', error)})")
found = re.findall(wheel, urllib.parse.unquote(page))
if not found:
    sys.exit(f"has no torch {version} for {python} on {platform.machine()}")
print(max(found))
END
}

# A build that was asked for is not replaced by another one.
refuse_torch_source() {
  local shown=${torch_source/\/\/*@/\/\/} # without a password
  [ -z "${TORCH_INDEX_URL:-}" ] ||
    die "TORCH_INDEX_URL=$shown ${1:-does not answer}: correct it, or unset it and setup chooses the build"
  die "$shown, which .venv was made with, ${1:-does not answer}: set TORCH_INDEX_URL to another index, or remove $TORCH_SOURCE and setup chooses the build"
}

# Which build of torch -> torch_source, torch_wanted, download, needed_gb
choose_torch() {
  local answer
  torch_wanted=torch
  download="3 GB to download" needed_gb=$GB_WITH_CUDA_BUILD
  if [ -n "$torch_source" ]; then
    # pip takes any build of the pinned version for the right one, so another one has to go first
    [ "$torch_source" = "$old_torch_source" ] || replaces_torch=yes
    if [ -n "$replaces_torch" ] || ! has_torch; then
      answer=$(torch_at "$torch_source" '(?:\+[\w.]+)?') || refuse_torch_source "${answer##*$'\n'}"
      torch_wanted=torch==$answer
    fi
    [[ $torch_source != */cpu?(/) ]] || download="0.2 GB to download" needed_gb=$GB_WITH_CPU_BUILD
  elif ! has_torch && [ "$(uname -s)" != Linux ]; then
    download="0.2 GB to download" needed_gb=$GB_WITH_CPU_BUILD # PyPI's is no CUDA build there
  elif ! has_torch && has_gpu && has_old_gpu; then
    answer=$(torch_at "$OLD_GPU_INDEX" '\+[\w.]+') ||
      die "a GPU older than sm_75 needs torch built for CUDA 12.6, and $OLD_GPU_INDEX ${answer##*$'\n'}: set TORCH_INDEX_URL to another index with it"
    say "a GPU older than sm_75, so torch's build for CUDA 12.6 of $OLD_GPU_INDEX (TORCH_INDEX_URL chooses another)"
    torch_source=$OLD_GPU_INDEX torch_wanted=torch==$answer
  elif ! has_torch && has_gpu; then
    say "a GPU, so torch's CUDA build of PyPI (TORCH_INDEX_URL chooses another)"
  elif ! has_torch; then
    if answer=$(torch_at "$CPU_INDEX" '\+cpu'); then
      say "no GPU (nvidia-smi lists none), so torch's CPU build of $CPU_INDEX (TORCH_INDEX_URL chooses another)"
      torch_source=$CPU_INDEX torch_wanted=torch==$answer # never PyPI's in its place
      download="0.2 GB to download" needed_gb=$GB_WITH_CPU_BUILD
    else
      answer=${answer##*$'\n'}
      say "no GPU, but $CPU_INDEX ${answer:-does not answer}, so torch of the default index: if that is a CUDA build," \
        "3 GB to download and 5.3 GB installed; TORCH_INDEX_URL=URL of another index with CPU builds avoids it"
    fi
  fi
  ! has_torch || [ -n "$replaces_torch" ] || download="it is there" needed_gb=$GB_WITHOUT_TORCH
}

check_space() {
  local gigabytes_free
  gigabytes_free=$(($(df -Pk . | awk 'NR == 2 { print $4 }') / 1024 / 1024))
  [ "$gigabytes_free" -ge "$needed_gb" ] ||
    die "$gigabytes_free GB free in $PWD, $needed_gb GB needed: make room (with torch's CPU build $GB_WITH_CPU_BUILD GB, with a CUDA build $GB_WITH_CUDA_BUILD GB; TORCH_INDEX_URL chooses)"
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
    die "the disk is full: make room ($needed_gb GB) and run this again: it continues where it stopped"
  fi
  tail -n 15 "$LOG" >&2
  die "the last command failed (above; all of it in $LOG): correct that and run this again: it continues where it stopped"
}

# Two scripts started at once must not install into one .venv at the same time.
if command -v flock >/dev/null; then
  exec 9>>constraints.txt # not for reading: NFS has no exclusive lock of that
  flock 9 2>/dev/null || say "no file locks here: let no other setup.sh run at the same time"
fi

if [ -x "$VENV/bin/python" ]; then
  runs_and_is_new_enough "$VENV/bin/python" ||
    die "$VENV holds no working Python 3.10 or newer: remove it and run this again"
  grep -qF "$VENV" "$VENV/bin/activate" 2>/dev/null || [ ! -e "$VENV/bin/activate" ] ||
    die "$VENV was made in another folder and its commands still point there: remove it and run this again"
  version=$(version_of "$VENV/bin/python")
  [ -z "${PYTHON:-}" ] || [ "$(version_of "$PYTHON")" = "$version" ] ||
    die "$VENV has Python $version, PYTHON=$PYTHON is another: remove .venv, or unset PYTHON"
fi

torch_version=$(sed -n 's/^torch==//p' constraints.txt)
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
replaces_torch=
choose_torch
check_space
mkdir -p "$VENV"
: >"$LOG"
rm -f "$STAMP"

if ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
  say "1/4 .venv with $PYTHON ($("$PYTHON" -c 'import platform; print(platform.python_version())'))"
  make_venv
fi

say "2/4 torch ($download) and the build tools"
if [ -n "$replaces_torch" ]; then
  "$VENV/bin/python" -m pip uninstall -y torch >>"$LOG" 2>&1 || explain_failure
fi
pip_install pip
# An extra index, not the only one: what torch needs is pinned to versions that PyPI has.
pip_install ${torch_source:+--extra-index-url "$torch_source"} "$torch_wanted"
[ -z "$torch_source" ] || echo "$torch_source" >"$TORCH_SOURCE"
pip_install "setuptools>=77" wheel "cython>=3" numpy

# With build isolation pip would fetch a second torch, the newest, and compile against that.
say "3/4 fairseq (compiles for about two minutes)"
pip_install --no-build-isolation "fairseq-fixed==0.12.3.1"

say "4/4 the plugin, logging and test tools"
pip_install --no-build-isolation --editable ".[fairseq,dev]"

# fairseq-fixed brings the torchaudio of PyPI, a CUDA build. transformers imports it wherever it is installed, and fails
# where it does not fit torch.
if compgen -G "$VENV/lib/python*/site-packages/torchaudio-*.dist-info/RECORD" >/dev/null &&
  ! "$VENV/bin/python" -c 'import torchaudio' 2>>"$LOG"; then
  say "torchaudio does not fit this torch and is removed: fairseq needs it for speech alone"
  "$VENV/bin/python" -m pip uninstall -y torchaudio >>"$LOG" 2>&1 || explain_failure
fi

echo "$wanted" >"$STAMP"
say "ready: $VENV (activate: source .venv/bin/activate)"
