#!/usr/bin/env bash
# Draw the pictures in docs/images.
#
#   bash scripts/make_figures.sh [CHECKPOINT]
#
# CHECKPOINT: the tupe_r of examples/roberta_small/tokens64_amp.sh; without one its two pictures stay as they are.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
CHECKPOINT=${1:-runs/roberta_small_tokens64_amp/lr4e-3/tupe_r-seed1/checkpoint_last.pt}

draw() {  # NAME KIND [flags]: docs/images/NAME
  python -m fairseq_relpos plot "${@:2}" --output "docs/images/$1"
}

draw curve_t5.png curve t5 --heads 4 --reach 160
draw prior_at5.png curve at5 --reach 160 --position-hparams length=160
draw buckets.png buckets
draw prior_matrix.png prior-matrix
draw distance.png distance
if [ ! -e "$CHECKPOINT" ]; then
  echo "no checkpoint $CHECKPOINT: the learned bias and the attention are not drawn again" >&2
  exit 0
fi
draw tupe_r_bias.png bias "$CHECKPOINT"
draw tupe_r_attention.png attention "$CHECKPOINT" --text "The capital of <mask> is Paris , and the king lives there ."
