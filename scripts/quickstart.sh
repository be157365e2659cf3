#!/usr/bin/env bash
# From nothing to two small RoBERTas, side by side: TUPE's positions and learned ones. Under ten
# minutes on two cores, no network but pip. Run it again at any time: it goes on where it stopped.
# SIGTERM, SIGUSR1 and Ctrl-C let it save and end with exit code 75.
#
#   bash scripts/quickstart.sh
#   bash scripts/quickstart.sh --text FILE... [--out DIR]    # your own English, plain, .xz or .gz
set -euo pipefail
HERE=$(pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage="usage: quickstart.sh [--text FILE...] [--out DIR]"
die() { echo "quickstart: error: $*" >&2; exit 1; }
step() { printf '\n== %s (%d:%02d)\n' "$*" $((SECONDS / 60)) $((SECONDS % 60)); }
from_here() { case $1 in /*) echo "$1" ;; *) echo "$HERE/$1" ;; esac; }

export QUICKSTART=runs/quickstart
texts=()
while [ $# -gt 0 ]; do
  case $1 in
    --text)
      shift
      while [ $# -gt 0 ] && [[ $1 != --* ]]; do
        [ -f "$(from_here "$1")" ] || die "--text $1: no such file"
        texts+=("$(from_here "$1")")
        shift
      done
      [ ${#texts[@]} -gt 0 ] || die "--text without a file; $usage"
      ;;
    --out)
      [ -n "${2:-}" ] || die "--out without a folder; $usage"
      QUICKSTART=$(from_here "$2")
      shift 2
      ;;
    *) die "$1 is not understood; $usage" ;;
  esac
done

export SETTINGS=$PWD/examples/quickstart/settings.sh
recipe=examples/roberta_small
. examples/quickstart/settings.sh       # DATA, RUNS, COMPARED
text=$QUICKSTART/text

source=${texts[*]:-documentation of Python and its packages}
if [ -e "$text/source.txt" ] && [ "$source" != "$(cat "$text/source.txt")" ]; then
  die "$QUICKSTART was made from $(cat "$text/source.txt"): add --out DIR for another folder, or remove it"
fi

. examples/common/stopping.sh
on_a_signal stopped

echo "Seven steps, under ten minutes on two quiet cores. The fourth takes most of it, and says how much is left."
step "1/7 setup"
bash scripts/setup.sh
PATH=$PWD/.venv/bin:$PATH
export OMP_NUM_THREADS=1

step "2/7 text"
mkdir -p "$QUICKSTART"
if [ ! -e "$text/source.txt" ]; then
  python examples/quickstart/collect_text.py "$text/train.txt" "$text/valid.txt" ${texts[@]+"${texts[@]}"}
  echo "$source" >"$text/source.txt"
fi
wc -w "$text/train.txt" "$text/valid.txt" | awk '$2 != "total" { print $2 ": " $1 " words" }'

step "3/7 vocabulary and binarised data"
bash $recipe/prepare.sh "$DATA" --train "$text/train.txt" --valid "$text/valid.txt"

step "4/7 training $COMPARED side by side, one core each"
pids=() runs=() codes=()
stop_trainers() { ask_to_end ${pids[@]+"${pids[@]}"}; }
on_a_signal stop_trainers
trap stop_trainers EXIT
for encoding in $COMPARED; do
  run=$RUNS/$encoding-seed${SEED:-1}
  mkdir -p "$run"
  bash $recipe/run.sh train "$encoding" >"$run/quickstart.log" 2>&1 &
  pids+=($!)
  runs+=("$run")
done
python -m fairseq_relpos.reports.watch "${runs[@]}" --until-exit "${pids[@]}" &
watcher=$!
[ $signals = 0 ] || stop_trainers # it came between & and the list
for pid in "${pids[@]}"; do
  await "$pid"
  codes+=("$code")
done
await $watcher
pids=()
[ $signals = 0 ] || stopped
on_a_signal stopped
for i in "${!runs[@]}"; do
  case ${codes[$i]} in
    0) ;;
    "$STOPPED") stopped ;;
    *) die "training failed: $(tail -n 1 "${runs[$i]}/quickstart.log")" ;;
  esac
done

step "5/7 validation: the loss, and the loss of the same text with its words permuted"
for encoding in $COMPARED; do
  bash $recipe/run.sh validate "$encoding"
done

step "6/7 masked words, filled in"
for encoding in $COMPARED; do
  echo "-- $encoding"
  bash $recipe/run.sh fill-mask "$encoding"
done

step "7/7 tables and pictures"
bash $recipe/run.sh report "$QUICKSTART"
python -m fairseq_relpos plot bias "$RUNS/tupe_r-seed${SEED:-1}/checkpoint_last.pt" \
  --output "$QUICKSTART/bias.png" 2>"$QUICKSTART/bias.log" || die "$(tail -n 1 "$QUICKSTART/bias.log")"

step "done"
cat <<END
tables          $QUICKSTART/RESULTS.md
loss curves     $QUICKSTART/losses.png
position bias   $QUICKSTART/bias.png
checkpoints     $RUNS/*/checkpoint_last.pt
fairseq-train's whole command stands in $RUNS/tupe_r-seed${SEED:-1}/trained

Next:
  source .venv/bin/activate
  fairseq-relpos list                                   # every encoding; show NAME explains one
  less examples/roberta_small/README.md                 # your own text, other encodings, longer
  fairseq-train DATA --user-dir fairseq_relpos --arch roberta_tupe_r ...    # your own command
END
