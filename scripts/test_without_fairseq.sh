#!/usr/bin/env bash
# Build the sdist and the wheel, install the wheel into a venv without fairseq, and run there, away from this
# folder, what needs torch alone: a smoke test and a part of the tests. Arguments go to pytest.
#
#   PYTHON=python3.12 bash scripts/test_without_fairseq.sh     # another Python, with setuptools and wheel
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# the mathematics of the other encodings is the same with fairseq beside it
PARTS=(tests/nn tests/encodings/test_{t5,shaw,tupe}.py tests/test_{rows,terms}.py)

say() { echo "without fairseq: $*"; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ROOT=$PWD
VENV=$ROOT/.venv-without-fairseq
STAMP=$VENV/stamp
if [ -z "${PYTHON:-}" ]; then
  bash scripts/setup.sh
  PYTHON=$ROOT/.venv/bin/python
fi

say "1/4 the sdist, and the wheel from it"
"$PYTHON" -c "from setuptools import build_meta; build_meta.build_sdist('$work')" >"$work/log" 2>&1 ||
  { cat "$work/log" >&2; exit 1; }
wanted=$("$PYTHON" -V; cat setup.py constraints.txt scripts/test_without_fairseq.sh | cksum)
cp -r tests docs README.md pyproject.toml "$work"
cd "$work" # pip would take this folder for an installation
"$PYTHON" -m pip wheel -q --no-deps --no-build-isolation ./*.tar.gz

if [ "$wanted" != "$(cat "$STAMP" 2>/dev/null)" ]; then
  say "2/4 $VENV, with what the wheel asks for"
  rm -rf "$VENV"
  "$PYTHON" -m venv "$VENV"
  # the build of torch that .venv has
  index=$(cat "$ROOT/.venv/torch-index-url" 2>/dev/null || true)
  torch=$("$PYTHON" -c 'from importlib import metadata as m; print("torch==" + m.version("torch"))' 2>/dev/null || echo torch)
  "$VENV/bin/python" -m pip install -q -c "$ROOT/constraints.txt" ${index:+--extra-index-url "$index"} "$torch" pytest ./*.whl
  echo "$wanted" >"$STAMP"
else
  say "2/4 $VENV is there"
  "$VENV/bin/python" -m pip install -q --no-deps --force-reinstall ./*.whl
fi

say "3/4 the command and the module"
export PATH=$VENV/bin:$PATH OMP_NUM_THREADS=1
unset PYTHONPATH
fairseq-relpos list >/dev/null
fairseq-relpos show tupe_r >/dev/null
fairseq-relpos params >/dev/null
fairseq-relpos import-hf a b 2>import.log && exit 1
grep -q "^[^ ]* import-hf: error: it needs fairseq" import.log
python - <<'END'
import importlib.util
import sys
from pathlib import Path

assert importlib.util.find_spec("fairseq") is None, "this venv has a fairseq"

import torch

import fairseq_relpos
from fairseq_relpos.encodings import ENCODINGS, names_for
from fairseq_relpos.nn import RelPosEncoder

assert Path(fairseq_relpos.__file__).is_relative_to(sys.prefix), fairseq_relpos.__file__
for name in ENCODINGS:
    encoder = RelPosEncoder(16, 2, 2, name, max_len=8, causal=name not in names_for(causal=False))
    encoder(torch.randn(2, 7, 16)).sum().backward()
END

say "4/4 tests"
python -m pytest -q "${PARTS[@]}" "$@"
