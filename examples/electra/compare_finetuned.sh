#!/usr/bin/env bash
# Fine-tune discriminators and masked language models in the same way, and write a table for each task.
#
#   bash examples/electra/compare_finetuned.sh [FOLDER]     # FINETUNED.md and finetuned.json, into FOLDER (default: $RUNS)
#   JOBS=2 bash examples/electra/compare_finetuned.sh       # settings: finetuned.sh
#
# Run it again at any time: it resumes where it was stopped.
. "$(dirname "$0")/../common/recipe.sh"
end_in_order "$@"
read_settings "$HERE/finetuned.sh"

# start KIND CHECKPOINT: the pretraining, with room for longer inputs -> $RUNS/start$MAX_POSITIONS/KIND-ENCODING-seedN/start.pt
start() {
  local folder=$RUNS/start$MAX_POSITIONS/$1-$encoding-seed$seed
  [ -e "$2" ] && [ -e "${2%/*}/trained" ] ||
    die "${2%/*} has no training that has come to its end: README.md has the command"
  [[ $folder != *[[:space:]]* ]] || die "the path $folder has a space, which a sweep cannot have: set RUNS to another one"
  mkdir -p "$folder"
  [ ! -e "$folder/start.pt" ] || [ "$folder/start.pt" -nt "$2" ] ||
    die "$2 is newer than what was fine-tuned in $RUNS: remove $RUNS, or set RUNS"
  [ -e "$folder/start.pt" ] ||
    errors_in "$folder/start.log" python -m fairseq_relpos warm-start "$2" "$folder/start.pt" \
      --arch "roberta_$encoding" --max-positions "$MAX_POSITIONS" --extend copy >/dev/null
  checkpoints+=("$folder/start.pt")
}

main() {
  local checkpoints=() recipe task data encoding seed code=0
  [ $# -le 1 ] || die "usage: compare_finetuned.sh [FOLDER]"
  for encoding in $COMPARED; do
    for seed in $PRETRAINING_SEEDS; do
      start electra "$DISCRIMINATORS/$encoding-seed$seed/discriminator.pt"
      start masked_lm "$MASKED_LMS/$encoding-seed$seed/checkpoint_last.pt"
    done
  done
  while read -r recipe task data; do
    [ -d "$data" ] || die "no data in $data: examples/$recipe/prepare.sh $task first, or set TASKS"
    python "$ROOT/scripts/sweep.py" product "recipe=$recipe" action=test "task=$task" "checkpoint=${checkpoints[*]}" \
      "LEARNING_RATE=$LEARNING_RATES" "SEED=$SEEDS" "SETTINGS=$FINE_TUNING" "DATA=$data" "ALLOCATOR=$ALLOCATOR"
  done <<<"$TASKS" >"$RUNS/sweep.tsv"
  python "$ROOT/scripts/sweep.py" run "$RUNS/sweep" "$RUNS/sweep.tsv" --jobs "$JOBS" || code=$?
  [ $code != 75 ] || exit 75
  mkdir -p "${1:-$RUNS}"
  errors_in "$RUNS/report.log" python "$HERE/finetuned_report.py" "$RUNS/sweep" "${1:-$RUNS}"
  exit $code
}

main "$@"; exit # on one line, so that a long run does not see the file change
