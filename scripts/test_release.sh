#!/usr/bin/env bash
# Build the sdist and the wheel, install the wheel into a new venv, alone and then with its extras, and run there, away
# from this folder, README's commands, from ten lines of text to models in transformers and CTranslate2. A line names the
# versions, for the table in docs/installing.md. It needs a temporary folder (TMPDIR) of 2 GB, with a CUDA build of torch
# of 6 GB. Left out: quickstart.sh, and the fetching and training of whole recipes, which take minutes to days.
#
#   PYTHON=python3.12 TORCH=2.15.0 bash scripts/test_release.sh      # else python3 and the torch of constraints.txt
#
# TORCH_INDEX_URL has the meaning that it has for scripts/setup.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { echo "release: $*"; }
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }; }
TORCH=${TORCH:-$(sed -n 's/^torch==//p' constraints.txt)}
root=$PWD work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
grep -vE '^(torch|triton)' constraints.txt >"$work/pins"
install() { env -u CUDA_HOME "$work/venv/bin/python" -m pip install -q -c "$work/pins" --no-build-isolation "$@"; }

say "1/6 torch $TORCH and the build tools"
"${PYTHON:-python3}" -m venv "$work/venv"
export PATH=$work/venv/bin:$PATH OMP_NUM_THREADS=1
unset PYTHONPATH
install pip "setuptools>=77" wheel "cython>=3" numpy
install ${TORCH_INDEX_URL:+--extra-index-url "$TORCH_INDEX_URL"} "torch==$TORCH"

say "2/6 the sdist, and the wheel from it"
quietly python -c "from setuptools import build_meta; build_meta.build_sdist('$work')"
mkdir "$work/away"
cd "$work/away" # pip would take this folder for an installation
pip wheel -q --no-deps --no-build-isolation -w "$work" "$work"/*.tar.gz

wheel=$(echo "$work"/*.whl)

say "3/6 the wheel alone: README's first lines; then with transformers: its Trainer"
install "$wheel"
sed -n '/^from fairseq_relpos.nn/,/^```$/{/^```$/d;p}' "$root/README.md" >lines.py
{ echo "import torch"; cat lines.py; } | python -
install "$wheel[hf]"
quietly python - <<'END'
import torch
from transformers import Trainer, TrainingArguments

from fairseq_relpos.hf import RelPosRobertaConfig, RelPosRobertaForMaskedLM

rows = [{"input_ids": row, "labels": row} for row in torch.randint(4, 100, (64, 16))]
config = RelPosRobertaConfig(vocab_size=100, hidden_size=48, position_encoding="tupe_r")
arguments = TrainingArguments("trainer", max_steps=20, report_to=[])
assert Trainer(RelPosRobertaForMaskedLM(config), arguments, train_dataset=rows).train().global_step == 20
END

say "4/6 fairseq and CTranslate2"
# fairseq asks for any torchaudio; a newer one than torch does not import
install "$wheel[fairseq,hf,ct2]" "torchaudio<=$TORCH"
pip check

say "5/6 from ten lines of text to transformers and CTranslate2, and a recipe"
quietly fairseq-relpos list
quietly fairseq-relpos show tupe_r
fairseq-relpos doctor
for word in one two three four five six seven eight nine ten; do
  echo "this is line $word of the text , and $word words are not many"
done | tee text.a >text
tr a-z b-za <text >text.b
small=(--encoder-layers 2 --encoder-embed-dim 32 --encoder-ffn-embed-dim 64 --encoder-attention-heads 2
  --batch-size 5 --required-batch-size-multiple 1 --optimizer adam --lr 0.001 --max-update 20 --no-epoch-checkpoints)
quietly fairseq-preprocess --only-source --trainpref text --validpref text --destdir data
mkdir run
quietly fairseq-train data --user-dir "$(fairseq-relpos path)" --arch roberta_tupe_r --task masked_lm \
  --criterion masked_lm --tokens-per-sample 32 --max-positions 32 --sample-break-mode eos "${small[@]}" --save-dir run \
  --log-format json --log-file run/train.log
fairseq-relpos order-gap run/checkpoint_last.pt data
fairseq-relpos plot bias run/checkpoint_last.pt
fairseq-relpos compare run
fairseq-relpos export-hf run/checkpoint_last.pt model --data data
fairseq-relpos import-hf model imported
fairseq-relpos warm-start imported/model.pt rope.pt --arch roberta_rope
fairseq-relpos warm-start run/checkpoint_last.pt longer.pt --arch roberta_tupe_r --max-positions 128
quietly fairseq-preprocess -s a -t b --joined-dictionary --trainpref text --validpref text --destdir pairs
quietly fairseq-train pairs --user-dir "$(fairseq-relpos path)" --arch transformer_rope --share-all-embeddings \
  --decoder-layers 2 --decoder-embed-dim 32 --decoder-ffn-embed-dim 64 --decoder-attention-heads 2 "${small[@]}" \
  --save-dir translator
fairseq-relpos export-ct2 translator/checkpoint_last.pt served --data pairs
python - <<'END'
import platform
import sys
from importlib.metadata import version

import ctranslate2
import fairseq_relpos.hf
from transformers import pipeline

filled = pipeline("fill-mask", model="model")("this is line <mask> of the text")
assert len(filled) == 5 and "fairseq" not in sys.modules
assert fairseq_relpos.__file__.startswith(sys.prefix)
assert ctranslate2.Translator("served").translate_batch([["this", "is", "line"]], max_decoding_length=5)
names = "fairseq_relpos", "torch", "numpy", "transformers", "ctranslate2", "fairseq-fixed"
print("release: Python", platform.python_version() + ",", ", ".join(f"{name} {version(name)}" for name in names))
END
fairseq-relpos recipe roberta_small recipe
for _ in {1..20}; do cat text; echo; done >recipe/train.txt
echo VOCAB_SIZE=40 >recipe/small.sh
(
  cd recipe
  export SETTINGS=$PWD/small.sh
  quietly bash examples/roberta_small/prepare.sh data-bin/roberta_small --train train.txt --valid train.txt
  quietly bash examples/roberta_small/run.sh train tupe_r --max-update 20
  quietly bash examples/roberta_small/run.sh fill-mask tupe_r "this is line <mask> of the text"
)

say "6/6 twine check"
pip install -q twine
twine check --strict "$work"/*.tar.gz "$work"/*.whl
