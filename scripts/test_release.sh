#!/usr/bin/env bash
# Build the sdist and the wheel, install the wheel with fairseq and transformers into a new venv, and go there, away
# from this folder, from ten lines of text to a trained model in transformers. The last lines name the versions, for
# the table in docs/installing.md. All of it lies in a temporary folder (TMPDIR): 2 GB, with a CUDA build of torch 6 GB.
#
#   PYTHON=python3.12 TORCH=2.15.0 bash scripts/test_release.sh      # else python3 and the torch of constraints.txt
#
# TORCH_INDEX_URL has the meaning that it has for scripts/setup.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { echo "release: $*"; }
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }; }
TORCH=${TORCH:-$(sed -n 's/^torch==//p' constraints.txt)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
grep -v '^torch' constraints.txt >"$work/pins"
install() { env -u CUDA_HOME "$work/venv/bin/python" -m pip install -q -c "$work/pins" --no-build-isolation "$@"; }

say "1/5 torch $TORCH and the build tools"
"${PYTHON:-python3}" -m venv "$work/venv"
export PATH=$work/venv/bin:$PATH OMP_NUM_THREADS=1
unset PYTHONPATH
install pip "setuptools>=77" wheel "cython>=3" numpy
install ${TORCH_INDEX_URL:+--extra-index-url "$TORCH_INDEX_URL"} "torch==$TORCH"

say "2/5 the sdist, and the wheel from it"
quietly python -c "from setuptools import build_meta; build_meta.build_sdist('$work')"
mkdir "$work/away"
cd "$work/away" # pip would take this folder for an installation
pip wheel -q --no-deps --no-build-isolation -w "$work" "$work"/*.tar.gz

say "3/5 fairseq and the wheel"
# fairseq asks for any torchaudio; a newer one than torch does not import
install "$(echo "$work"/*.whl)[fairseq,hf]" "torchaudio<=$TORCH"
pip check

say "4/5 from ten lines of text to transformers"
quietly fairseq-relpos list
quietly fairseq-relpos show tupe_r
fairseq-relpos doctor
for word in one two three four five six seven eight nine ten; do
  echo "this is line $word of the text , and $word words are not many"
done >text
quietly fairseq-preprocess --only-source --trainpref text --validpref text --destdir data
quietly fairseq-train data --user-dir "$(fairseq-relpos path)" \
  --arch roberta_tupe_r --task masked_lm --criterion masked_lm \
  --encoder-layers 2 --encoder-embed-dim 32 --encoder-ffn-embed-dim 64 --encoder-attention-heads 2 \
  --tokens-per-sample 32 --max-positions 32 --sample-break-mode eos --batch-size 5 --required-batch-size-multiple 1 \
  --optimizer adam --lr 0.001 --max-update 20 --no-epoch-checkpoints --save-dir run
fairseq-relpos order-gap run/checkpoint_last.pt data
fairseq-relpos export-hf run/checkpoint_last.pt model --data data
python - <<'END'
import platform
import sys
from importlib.metadata import version

import fairseq_relpos.hf
from transformers import pipeline

filled = pipeline("fill-mask", model="model")("this is line <mask> of the text")
assert len(filled) == 5 and "fairseq" not in sys.modules
assert fairseq_relpos.__file__.startswith(sys.prefix)
names = "fairseq_relpos", "torch", "numpy", "transformers", "fairseq-fixed"
print("release: Python", platform.python_version() + ",", ", ".join(f"{name} {version(name)}" for name in names))
END

say "5/5 twine check"
pip install -q twine
twine check --strict "$work"/*.tar.gz "$work"/*.whl
