#!/usr/bin/env bash
# Fine-tunes a pretrained RoBERTa on one task of GLUE. Its fairseq-train command is in examples/common/finetuning.sh;
# docs/recipes.md has what all recipes share, such as resuming.
#
#   bash examples/glue/run.sh command|finetune TASK CHECKPOINT [flags of fairseq-train]
#   bash examples/glue/run.sh test TASK CHECKPOINT [flags]        # and scores a test part that has labels; once, at the end
#   bash examples/glue/run.sh predict TASK CHECKPOINT [SPLIT...]  # also the files that the GLUE server takes; default: test
#   bash examples/glue/run.sh sweep "TASK..." CHECKPOINT...       # finetune with each of LEARNING_RATES and SEEDS, then report
#   bash examples/glue/run.sh report [FOLDER]                     # all runs below $RUNS, into FOLDER (default: $RUNS)
#
# CHECKPOINT: a RoBERTa of this package or of stock fairseq. The run is in $RUNS/PRETRAINING/TASK-seedN, where PRETRAINING is
# the folder of CHECKPOINT; a sweep is in $RUNS/sweep.
. "$(dirname "$0")/../common/recipe.sh"
. "$COMMON/finetuning.sh"
begin "$@"

test_part() {
  [ -e "$data/label/test.label" ] ||
    die "$data has no labels of a test part: prepare.sh was given no table test.tsv with labels; use finetune"
  finetune "$@"
  grep -q '"test":' "$run/results.json" || predict test
}

sweep() { # CHECKPOINT...: what the manifest does not name, its runs take from the settings
  local code=0 tasks=$task checkpoints=("$checkpoint" "$@")
  for task in $tasks; do
    data=$DATA/$task
    for checkpoint in "${checkpoints[@]}"; do
      [[ $checkpoint != *[[:space:]]* ]] || die "the path of $checkpoint has a space, which a sweep cannot have: give a link to it"
      need_data
    done
  done
  mkdir -p "$RUNS" || die "$RUNS cannot be made: set RUNS"
  python "$ROOT/scripts/sweep.py" product recipe=glue action=finetune "task=$tasks" "checkpoint=${checkpoints[*]}" \
    "LEARNING_RATE=$LEARNING_RATES" "SEED=$SEEDS" "SETTINGS=${SETTINGS:-}" "DATA=$DATA" >"$RUNS/sweep.tsv"
  python "$ROOT/scripts/sweep.py" run "$RUNS/sweep" "$RUNS/sweep.tsv" --jobs "$JOBS" || code=$?
  [ $code = 75 ] || report "$RUNS"
  exit $code
}

report() {
  mkdir -p "$1"
  errors_in "$1/report.log" python -m fairseq_relpos.finetuning.report "$RUNS" "$1" "$CONVENTION" "$BASELINE"
}

ARGUMENTS="task checkpoint"
choose_run() {
  local name
  for name in $task; do # several for a sweep
    metric=$(python "$ROOT/fairseq_relpos/finetuning/glue.py" "$name" "$CONVENTION") # refuses an unknown task
  done
  data=$DATA/$task run=$RUNS/$(basename "$(dirname "$checkpoint")")/$task-seed$SEED
  splits=(valid) facts=("convention=$CONVENTION")
  [ "$task" != MNLI ] || splits=(valid valid1)
}

act "command finetune test predict sweep" "$@"; exit # on one line, so that a long run does not see the file change
