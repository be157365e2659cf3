#!/usr/bin/env bash
# Train one encoding (`fairseq-relpos list`) on one task, and test it.
#
#   bash examples/artificial_tasks/run.sh train reber|process50|adding100 ENCODING [flags of fairseq-train]
#   bash examples/artificial_tasks/run.sh report [FOLDER]
#
# SEED=2 bash run.sh train ...: another seed. The first seed is trained with each learning rate;
# the others take the best one, and train the first seed where that has not been done.
# report: the tables and the plot of all runs, into FOLDER (default: $RUNS); in another folder
# also runs.tar.xz, what they were made of.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/common.sh"
on_a_signal stopped

usage="usage: run.sh train reber|process50|adding100 ENCODING [...], or run.sh report [FOLDER]"
FIRST_SEED=1

# fact NAME: of the data of this task and seed
fact() {
  python -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$data/facts.json" "$1"
}

# Other encodings may want the same data at the same time.
generate() (
  lock "$data"
  [ -e "$data/facts.json" ] || python "$HERE/generate.py" "$task" "$data" --seed "$seed"
)

# train_once LEARNING_RATE [flags]: leaves $run/result.json
train_once() {
  local run=$runs/$encoding-seed$seed-lr$1 command
  command=(fairseq-train "$data"
    --user-dir "$ROOT/fairseq_relpos" --arch "sequence_encoder_$encoding"
    --task sequence_labels --criterion sequence_labels
    --encoder-normalize-before --pooling "$(pooling_of "$task")"
    --max-source-positions "$(fact longest)"
    --position-hparams "$(hparams_of "$task" "$encoding" "$(fact longest_train)")"
    --optimizer adam --lr "$1" --lr-scheduler fixed --batch-size "$BATCH_SIZE"
    --max-epoch "$MAX_EPOCHS" --patience "$PATIENCE"
    --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric
    --seed "$seed" --num-workers 0 --required-batch-size-multiple 1
    --no-epoch-checkpoints --no-last-checkpoints --no-save-optimizer-state
    --distributed-world-size 1 # fairseq would take all GPUs, and multiply the batch
    --save-dir "$run" --log-format json --log-file "$run/train.log"
    "${@:2}")
  ! { is_trained "$run" "${command[@]}" && [ -e "$run/result.json" ]; } || return 0
  need_same_settings "$run" "${command[@]}"
  say "$task: $encoding, seed $seed, learning rate $1: $run/train.log"
  rm -rf "$run"      # minutes: a run that was cut short starts over
  mkdir -p "$run"
  train_to_the_end "$run" "${command[@]}"
  logged "$run/test.log" fairseq-validate "$data" --user-dir "$ROOT/fairseq_relpos" --task sequence_labels \
    --path "$run/checkpoint_best.pt" --valid-subset test --batch-size 500 \
    --required-batch-size-multiple 1 --num-workers 0 --log-format json
  python "$HERE/result.py" write "$run"
}

train() {
  local seed=$FIRST_SEED rate
  data=$DATA/$task-seed$seed
  generate
  for rate in $LEARNING_RATES; do
    train_once "$rate" "$@"
  done
  rate=$(python "$HERE/result.py" better "$runs/$encoding-seed$seed" $LEARNING_RATES)
  echo "$rate" >"$runs/$encoding.learning_rate"
  if [ "$SEED" != "$FIRST_SEED" ]; then
    seed=$SEED
    data=$DATA/$task-seed$seed
    generate
    train_once "$rate" "$@"
  fi
}

action=${1:-}
case $action in
  train)
    task=${2:-} encoding=${3:-}
    case $task in
      reber | process50 | adding100) ;;
      *) die "no task ${task:-given}; $usage" ;;
    esac
    [ -n "$encoding" ] || die "which encoding? $usage"
    runs=$RUNS/$task
    lock "$runs/$encoding"
    shift 3
    train "$@"
    ;;
  report)
    [ $# -le 2 ] || die "$usage"
    python "$HERE/report.py" "$RUNS" "$DATA" "${2:-$RUNS}"
    pack_runs "$RUNS" "${2:-$RUNS}"
    ;;
  *) die "$usage" ;;
esac
