#!/usr/bin/env bash
# Fine-tune discriminators and masked language models in the same way, and write a table for each task.
#
#   bash examples/electra/compare_finetuned.sh [FOLDER]     # FINETUNED.md and finetuned.json, into FOLDER (default: $RUNS)
#   JOBS=2 bash examples/electra/compare_finetuned.sh       # settings: finetuned.sh
#
# Run it again at any time: it goes on where it was stopped.
. "$(dirname "$0")/../common/recipe.sh"
end_in_order "$@"
read_settings "$HERE/finetuned.sh"

# Each pretraining -> $RUNS/start$MAX_POSITIONS/KIND-ENCODING-seedN/start.pt, with room for longer inputs
starts() {
  local kind checkpoint encoding seed folder
  for encoding in $COMPARED; do
    for seed in $PRETRAINING_SEEDS; do
      for kind in electra masked_lm; do
        case $kind in
          electra) checkpoint=$DISCRIMINATORS/$encoding-seed$seed/discriminator.pt ;;
          masked_lm) checkpoint=$MASKED_LMS/$encoding-seed$seed/checkpoint_last.pt ;;
        esac
        [ -e "$checkpoint" ] && [ -e "${checkpoint%/*}/trained" ] ||
          die "${checkpoint%/*} has no training that has come to its end: README.md has the command"
        folder=$RUNS/start$MAX_POSITIONS/$kind-$encoding-seed$seed
        mkdir -p "$folder"
        [ ! -e "$folder/start.pt" ] || [ "$folder/start.pt" -nt "$checkpoint" ] ||
          die "$checkpoint is newer than what was fine-tuned in $RUNS: remove $RUNS, or set RUNS"
        [ -e "$folder/start.pt" ] ||
          errors_in "$folder/start.log" python -m fairseq_relpos warm-start "$checkpoint" "$folder/start.pt" \
            --arch "roberta_$encoding" --max-positions "$MAX_POSITIONS" --extend copy >/dev/null
        checkpoints+=("$folder/start.pt")
      done
    done
  done
}

manifest() {
  local recipe task data checkpoint rate seed
  printf 'recipe\taction\ttask\tcheckpoint\tLEARNING_RATE\tSEED\tSETTINGS\tDATA\tALLOCATOR\n'
  while read -r recipe task data; do
    [ -d "$data" ] || die "no data in $data: examples/$recipe/prepare.sh $task first, or set TASKS"
    for rate in $LEARNING_RATES; do
      for seed in $SEEDS; do
        for checkpoint in "${checkpoints[@]}"; do
          printf '%s\t' "$recipe" test "$task" "$checkpoint" "$rate" "$seed" "$FINE_TUNING" "$data"
          echo "$ALLOCATOR"
        done
      done
    done
  done <<<"$TASKS"
}

main() {
  local checkpoints=() code=0
  [ $# -le 1 ] || die "usage: compare_finetuned.sh [FOLDER]"
  starts
  manifest >"$RUNS/sweep.tsv.part"
  mv "$RUNS/sweep.tsv.part" "$RUNS/sweep.tsv"
  python "$ROOT/scripts/sweep.py" run "$RUNS/sweep" "$RUNS/sweep.tsv" --jobs "$JOBS" || code=$?
  [ $code = 0 ] || exit $code
  mkdir -p "${1:-$RUNS}"
  errors_in "$RUNS/report.log" python "$HERE/finetuned_report.py" "$RUNS/sweep" "${1:-$RUNS}"
}

main "$@"; exit # on one line, so that a long run does not see the file change
