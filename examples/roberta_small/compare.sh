#!/usr/bin/env bash
# Train several encodings on the same data with the same masks, evaluate each with and without
# the order of the tokens, and write the table and the plot of the losses.
#
#   bash examples/roberta_small/compare.sh [ENCODING...]       # default: COMPARED in settings.sh
#   SEEDS="1 2 3" JOBS=2 bash examples/roberta_small/compare.sh    # default: SEEDS and JOBS in settings.sh
#
# Takes hours on one core; JOBS=2 trains two at a time. Run it again at any time: it goes on where it was stopped.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/common.sh"
on_a_signal stopped

[ $# -gt 0 ] || set -- $COMPARED
failed=0
# every encoding with the first seed before any with the second
side_by_side "$JOBS" bash -c 'SEED=$1 exec bash "$0/run.sh" evaluate "$2"' "$HERE" < <(
  for seed in $SEEDS; do
    for encoding in "$@"; do
      echo "$seed $encoding"
    done
  done
) || failed=1
bash "$HERE/run.sh" report
[ $failed = 0 ] || die "not every run came to its end: see above"
