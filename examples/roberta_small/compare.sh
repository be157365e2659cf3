#!/usr/bin/env bash
# Train several encodings on the same data with the same masks, evaluate each with and without
# the order of the tokens, and write the table and the plot of the losses.
#
#   bash examples/roberta_small/compare.sh [ENCODING...]       # default: COMPARED in settings.sh
#   SEEDS="1 2 3" bash examples/roberta_small/compare.sh       # default: SEEDS in settings.sh
#
# Takes hours on one core. Run it again at any time: it goes on where it was stopped.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/common.sh"

[ $# -gt 0 ] || set -- $COMPARED
for SEED in $SEEDS; do
  export SEED
  for encoding in "$@"; do
    bash "$HERE/run.sh" train "$encoding"
    run=$RUNS/$encoding-seed$SEED
    [ "$run/order_gap.json" -nt "$run/checkpoint_last.pt" ] || bash "$HERE/run.sh" validate "$encoding"
  done
done
bash "$HERE/run.sh" report
