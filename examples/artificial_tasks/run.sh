#!/usr/bin/env bash
# Trains one encoding on one task, and tests it. docs/recipes.md has what all recipes share.
#
#   bash examples/artificial_tasks/run.sh train|command reber|process50|adding100 ENCODING [flags of fairseq-train]
#   bash examples/artificial_tasks/run.sh report [FOLDER]      # tables and plot of all runs, into FOLDER (default: $RUNS)
#
# The first seed is trained with each learning rate. The other seeds (SEED=2) take the best one, and train the first seed if
# that has not been done.
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"
FIRST_SEED=${PAPER_SEEDS%% *}

# generate SEED [FOLDER]: the data of this task, unless they are there -> $data, and their lengths
generate() {
  data=$DATA/$task-seed$1
  read -r longest longest_train < <(python "$HERE/generate.py" "$task" "${2:-$data}" --seed "$1")
}

# training_command SEED LEARNING_RATE [flags] -> `training`, and its folder -> `run`
training_command() {
  local precision
  precision_flags
  run=$runs/$encoding-seed$1-lr$2
  training=(fairseq-train "$data"
    --user-dir "$ROOT/fairseq_relpos" --arch "sequence_encoder_$encoding"
    --task sequence_labels --criterion sequence_labels
    --encoder-normalize-before --pooling "$(pooling_of "$task")"
    --max-source-positions "$longest"
    --position-hparams "$(hparams_of "$task" "$encoding" "$longest_train")"
    --optimizer adam --lr "$2" --lr-scheduler fixed --batch-size "$BATCH_SIZE"
    --max-epoch "$MAX_EPOCHS" --patience "$PATIENCE"
    --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric
    --seed "$1" --num-workers 0 --required-batch-size-multiple 1
    --no-epoch-checkpoints --no-last-checkpoints --no-save-optimizer-state
    --distributed-world-size 1 # fairseq would take all GPUs, and multiply the batch
    --save-dir "$run" --log-format json --log-file "$run/train.log"
    "${precision[@]}" "${@:3}")
}

# train_once SEED LEARNING_RATE [flags]: leaves $run/result.json; not where the first seed diverges
train_once() {
  local code
  training_command "$@"
  if [ -e "$run/result.json" ]; then
    same_run check "$run" "${training[@]}" # it has no last checkpoint from which another precision could resume
    say "$run is trained"
  elif [ "$1" = "$FIRST_SEED" ] && same_run diverged "$run" "${training[@]}"; then
    say "$run has diverged"
    return 0
  else
    rm -rf "$run" # minutes: a run that was stopped, perhaps before its test, starts over
    same_run run "$task: $encoding, seed $1, learning rate $2" "$run" 0 "${training[@]}" ||
      { code=$?; [ "$1 $code" != "$FIRST_SEED 76" ] || return 0; exit $code; }
  fi
  [ ! "$run/result.json" -nt "$run/checkpoint_best.pt" ] || return 0
  logged "$run/test.log" fairseq-validate "$data" --user-dir "$ROOT/fairseq_relpos" --task sequence_labels \
    --path "$run/checkpoint_best.pt" --valid-subset test --batch-size 500 \
    --required-batch-size-multiple 1 --num-workers 0 --log-format json
  cp "$data/facts.json" "$run/"
  python "$HERE/result.py" write "$run"
}

train() { # [flags of fairseq-train]
  local rate rates=()
  lock "$runs/$encoding"
  generate "$FIRST_SEED"
  for rate in $LEARNING_RATES; do
    train_once "$FIRST_SEED" "$rate" "$@"
    [ ! -e "$run/result.json" ] || rates+=("$rate")
  done
  [ ${#rates[@]} -gt 0 ] || { say "error: $encoding has diverged with every rate: $LEARNING_RATES" >&2; exit 76; }
  rate=$(python "$HERE/result.py" better "$runs/$encoding-seed$FIRST_SEED" "${rates[@]}")
  echo "$rate" >"$runs/$encoding.learning_rate"
  if [ "$SEED" != "$FIRST_SEED" ]; then
    generate "$SEED"
    train_once "$SEED" "$rate" "$@"
  fi
}

# One for each learning rate, where the better one is not known.
print_command() {
  local rate rates=$LEARNING_RATES
  need_encoding
  work=$(mktemp -d) # of the data only their lengths are needed
  trap 'rm -rf "$work"' EXIT
  generate "$SEED" "$work"
  same_run show python "$HERE/generate.py" "$task" "$data" --seed "$SEED"
  [ "$SEED" = "$FIRST_SEED" ] || rates=$(cat "$runs/$encoding.learning_rate" 2>/dev/null) || rates=$LEARNING_RATES
  for rate in $rates; do
    training_command "$SEED" "$rate" "$@"
    same_run show "${training[@]}"
  done
}

ARGUMENTS="task encoding"
choose_run() {
  case $task in
    reber | process50 | adding100) runs=$RUNS/$task ;;
    *) die "no task $task; $usage" ;;
  esac
}
report() { write_report "$HERE/report.py" "$1" PAPER_SEEDS; }

act "train command" "$@"; exit
