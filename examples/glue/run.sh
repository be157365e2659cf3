#!/usr/bin/env bash
# Fine-tune a pretrained RoBERTa on one task of GLUE, and look at what came out.
#
#   bash examples/glue/run.sh command TASK CHECKPOINT [flags of fairseq-train]     # prints what finetune runs
#   bash examples/glue/run.sh finetune TASK CHECKPOINT [flags of fairseq-train]
#   bash examples/glue/run.sh predict TASK CHECKPOINT [SPLIT...]                   # of the same run: test, by itself
#   bash examples/glue/run.sh report [FOLDER]
#
# CHECKPOINT: a RoBERTa of this package or of stock fairseq. The run lies in $RUNS/PRETRAINING/TASK-seedN, where
# PRETRAINING is the folder of CHECKPOINT. finetune goes on where it was stopped, and leaves results.json and the
# predictions of the validation data. predict also writes the files that the GLUE server takes.
# report: all runs, into FOLDER (default: $RUNS).
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/../common/recipe.sh"
end_in_order "$@"
read_settings

usage="usage: run.sh command|finetune|predict TASK CHECKPOINT [...], or run.sh report [FOLDER]"

# start_command: what prints the flags of the model and of the schedule -> `start`
start_command() {
  local epochs=$EPOCHS
  case " $LARGE_TASKS " in *" $task "*) epochs=$EPOCHS_OF_LARGE ;; esac
  start=(python -m fairseq_relpos.finetuning.start "$checkpoint" "$DATA/$task" --seed "$SEED"
    --batch "$BATCH" ${MAX_TOKENS:+--max-tokens "$MAX_TOKENS"} ${MAX_POSITIONS:+--max-positions "$MAX_POSITIONS"}
    --epochs "$epochs" --warmup "$WARMUP" --validations "$VALIDATIONS")
}

# training_command FLAGS [flags]: the whole of it -> `training`. FLAGS: what `start` prints
training_command() {
  local metric valid=valid
  metric=$(python "$ROOT/fairseq_relpos/finetuning/glue.py" "$task" "$CONVENTION")
  [ "$task" != MNLI ] || valid=valid,valid1
  training=(fairseq-train "$DATA/$task"
    --user-dir "$ROOT/fairseq_relpos" --finetune-from-model "$checkpoint" $1
    --task sentence_pairs --criterion sentence_scores --metrics "$metric"
    --best-checkpoint-metric "$metric" --maximize-best-checkpoint-metric
    --dropout "$DROPOUT" --attention-dropout "$DROPOUT" --pooler-dropout "$DROPOUT"
    --optimizer adam --adam-betas "$ADAM_BETAS" --adam-eps "$ADAM_EPS"
    --weight-decay "$WEIGHT_DECAY" --clip-norm "$CLIP_NORM"
    --lr "$LEARNING_RATE" --lr-scheduler polynomial_decay
    --batch-size "$BATCH" ${MAX_TOKENS:+--max-tokens "$MAX_TOKENS"} --seed "$SEED" --num-workers 0
    --required-batch-size-multiple 1 --valid-subset "$valid"
    --keep-interval-updates 1 --no-epoch-checkpoints
    --save-dir "$run" --log-format json --log-interval "$LOG_EVERY" --log-file "$run/train.log"
    --distributed-world-size 1 # fairseq would take all GPUs, and multiply the batch
    "${@:2}")
}

print_command() {
  start_command
  training_command '$flags' "$@"
  echo "flags=\$($(printf '%q ' "${start[@]}"))"
  same_run show "${training[@]}" | sed "s/'\$flags'/\$flags/"
}

need_data() {
  [ -e "$DATA/$task/task.json" ] || die "no data in $DATA/$task: run prepare.sh $task first, or set DATA"
  [ -e "$checkpoint" ] || die "no checkpoint $checkpoint: pretrain first, or give another one"
}

finetune() {
  local flags
  need_data
  start_command
  lock "$run"
  flags=$(errors_in "$run/start.log" "${start[@]}")
  training_command "${flags//$'\n'/ }" "$@"
  CONDITIONS=$(echo "data $(digest "$DATA/$task/sources.txt")"; echo "start $(digest "$checkpoint")")
  train_to_the_end "$run" "$task, seed $SEED" "${training[@]}"
  [ "$run/results.json" -nt "$run/checkpoint_best.pt" ] || write_results
}

# The best checkpoint on the validation data -> results.json
write_results() {
  local splits=(valid)
  [ "$task" != MNLI ] || splits=(valid valid1)
  errors_in "$run/predict.log" python -m fairseq_relpos.finetuning.predict "$run/checkpoint_best.pt" "$DATA/$task" \
    "$run" "${splits[@]}" --results "$run/results.json" "recipe=$(basename "$HERE")" "task=$task" \
    "checkpoint=$checkpoint" "convention=$CONVENTION"
}

predict() {
  local splits=("$@")
  [ -e "$run/checkpoint_best.pt" ] || die "no checkpoint $run/checkpoint_best.pt: run.sh finetune $task $checkpoint first"
  if [ $# -eq 0 ]; then
    [ -e "$DATA/$task/input0/test.idx" ] ||
      die "$DATA/$task has no test split: prepare.sh was given no table for it; name another split, such as valid"
    splits=($(cd "$DATA/$task/input0" && printf '%s\n' test*.idx | sed 's/\.idx$//'))
  fi
  errors_in "$run/predict.log" python -m fairseq_relpos.finetuning.predict "$run/checkpoint_best.pt" "$DATA/$task" \
    "$run" "${splits[@]}"
  say "predictions of ${splits[*]}: $run"
}

main() {
  local action=${1:-}
  case $action in
    report)
      [ $# -le 2 ] || die "$usage"
      mkdir -p "${2:-$RUNS}"
      errors_in "${2:-$RUNS}/report.log" python -m fairseq_relpos.finetuning.report "$RUNS" "${2:-$RUNS}"
      return
      ;;
    command | finetune | predict) ;;
    *) die "$usage" ;;
  esac
  task=${2:-} checkpoint=${3:-}
  case $task in
    CoLA | SST-2 | MRPC | STS-B | QQP | MNLI | QNLI | RTE | WNLI) ;;
    *) die "no task ${task:-given}: give CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE or WNLI; $usage" ;;
  esac
  [ -n "$checkpoint" ] || die "which checkpoint? $usage"
  run=$RUNS/$(basename "$(dirname "$checkpoint")")/$task-seed$SEED
  [ "$action" != command ] || action=print_command
  "$action" "${@:4}"
}

# On one line, so that a long run does not see the file change.
main "$@"; exit
