#!/usr/bin/env bash
# From nothing to two small RoBERTas, side by side: Shaw's positions and TUPE's. About ten
# minutes on two cores, no network but pip. Run it again at any time: it continues where it stopped.
# SIGTERM, SIGUSR1 and Ctrl-C let it save and end with exit code 75.
#
#   bash scripts/quickstart.sh
#   bash scripts/quickstart.sh --text FILE... [--out DIR]    # your own English, plain, .xz or .gz
set -euo pipefail
export SCRIPT=quickstart.sh
if [ -z "${SUPERVISED:-}" ] && command -v python3 >/dev/null; then # setup.sh says what is wrong with none
  SUPERVISED=yes exec python3 "$(dirname "${BASH_SOURCE[0]}")/../examples/common/stopping.py" supervise bash "$0" "$@"
fi
trap 'exit 75' TERM INT HUP USR1
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
[ ${#texts[@]} = 0 ] || source+=" (cksum $(cat "${texts[@]}" | cksum))"
if [ -e "$text/source.txt" ] && [ "$source" != "$(cat "$text/source.txt")" ]; then
  die "$QUICKSTART was made from $(cat "$text/source.txt"), not from $source: add --out DIR for another folder, or remove it"
fi

echo "Seven steps, 7 to 14 minutes on two quiet cores. The fourth takes most of it, and says how much is left."
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
runs=()
for encoding in $COMPARED; do
  runs+=("$RUNS/$encoding-seed${SEED:-1}")
done
mkdir -p "${runs[@]}"
export RUNS
python scripts/sweep.py product recipe=roberta_small action=train "encoding=$COMPARED" |
  python scripts/sweep.py each ${#runs[@]} >"$QUICKSTART/training.log" 2>&1 &
trainers=$! code=0
trap 'wait; exit 75' TERM INT HUP USR1
python -m fairseq_relpos.reports.watch "${runs[@]}" --until-exit $trainers
wait $trainers || code=$?
[ $code != 75 ] || exit 75
for run in "${runs[@]}"; do
  [ $code = 0 ] || [ -e "$run/trained" ] || die "$(basename "$run") failed (all of it in $QUICKSTART/training.log): $(tail -n 1 "$QUICKSTART/training.log")"
done
trap 'exit 75' TERM INT HUP USR1

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
