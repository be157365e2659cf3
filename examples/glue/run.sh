#!/usr/bin/env bash
# Fine-tune a pretrained RoBERTa on one task of GLUE, and look at what came out.
#
#   bash examples/glue/run.sh command TASK CHECKPOINT [flags of fairseq-train]     # prints what finetune runs
#   bash examples/glue/run.sh finetune TASK CHECKPOINT [flags of fairseq-train]
#   bash examples/glue/run.sh test TASK CHECKPOINT [flags]      # and scores a test part that has labels; once, at the end
#   bash examples/glue/run.sh predict TASK CHECKPOINT [SPLIT...]                   # of the same run: test, by itself
#   bash examples/glue/run.sh sweep "TASK..." CHECKPOINT...      # finetune with each of LEARNING_RATES and SEEDS, then report
#   bash examples/glue/run.sh report [FOLDER]
#
# CHECKPOINT: a RoBERTa of this package or of stock fairseq. The run lies in $RUNS/PRETRAINING/TASK-seedN, where
# PRETRAINING is the folder of CHECKPOINT. finetune goes on where it was stopped, and leaves results.json and the
# predictions of the validation data. predict also writes the files that the GLUE server takes.
# sweep: in $RUNS/sweep; it goes on where it was stopped. report: all runs below $RUNS, into FOLDER (default: $RUNS).
. "$(dirname "$0")/../common/recipe.sh"
. "$COMMON/finetuning.sh"
begin "$@"

usage="usage: run.sh command|finetune|test|predict TASK CHECKPOINT [...], run.sh sweep \"TASK...\" CHECKPOINT..., or run.sh report [FOLDER]"

test_part() {
  [ -e "$data/label/test.label" ] ||
    die "$data has no labels of a test part: prepare.sh was given no table test.tsv with labels; use finetune"
  finetune "$@"
  grep -q '"test":' "$run/results.json" || predict test
}

# sweep "TASK..." CHECKPOINT...: what the manifest does not name, its runs take from the settings
sweep() {
  [ -n "${1:-}" ] && [ $# -ge 2 ] || die "which tasks and checkpoints? $usage"
  for task in $1; do
    data=$DATA/$task
    for checkpoint in "${@:2}"; do need_data; done
  done
  mkdir -p "$RUNS" || die "$RUNS cannot be made: set RUNS"
  python "$ROOT/scripts/sweep.py" product recipe=glue action=finetune "task=$1" "checkpoint=${*:2}" \
    "LEARNING_RATE=$LEARNING_RATES" "SEED=$SEEDS" "SETTINGS=${SETTINGS:-}" "DATA=$DATA" >"$RUNS/sweep.tsv"
  python "$ROOT/scripts/sweep.py" run "$RUNS/sweep" "$RUNS/sweep.tsv" --jobs "$JOBS"
}

# report FOLDER
report() {
  mkdir -p "$1"
  errors_in "$1/report.log" python -m fairseq_relpos.finetuning.report "$RUNS" "$1" "$CONVENTION" "$BASELINE"
}

main() {
  local action=${1:-}
  case $action in
    report)
      [ $# -le 2 ] || die "$usage"
      report "${2:-$RUNS}"
      return
      ;;
    sweep)
      local code=0
      sweep "${@:2}" || code=$?
      [ $code = 75 ] || report "$RUNS"
      exit $code
      ;;
    command | finetune | test | predict) ;;
    *) die "$usage" ;;
  esac
  task=${2:-} checkpoint=${3:-}
  metric=$(python "$ROOT/fairseq_relpos/finetuning/glue.py" "$task" "$CONVENTION") # refuses an unknown task
  [ -n "$checkpoint" ] || die "which checkpoint? $usage"
  data=$DATA/$task run=$RUNS/$(basename "$(dirname "$checkpoint")")/$task-seed$SEED
  splits=(valid) facts=("convention=$CONVENTION")
  [ "$task" != MNLI ] || splits=(valid valid1)
  case $action in command) action=print_command ;; test) action=test_part ;; esac
  "$action" "${@:4}"
}

# On one line, so that a long run does not see the file change.
main "$@"; exit
