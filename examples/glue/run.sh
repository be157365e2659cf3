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
. "$HERE/../common/finetuning.sh"
end_in_order "$@"
read_settings

usage="usage: run.sh command|finetune|predict TASK CHECKPOINT [...], or run.sh report [FOLDER]"

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
  data=$DATA/$task run=$RUNS/$(basename "$(dirname "$checkpoint")")/$task-seed$SEED
  metric=$(python "$ROOT/fairseq_relpos/finetuning/glue.py" "$task" "$CONVENTION")
  splits=(valid) facts=("convention=$CONVENTION")
  [ "$task" != MNLI ] || splits=(valid valid1)
  [ "$action" != command ] || action=print_command
  "$action" "${@:4}"
}

# On one line, so that a long run does not see the file change.
main "$@"; exit
