# Several encodings and seeds. Sourced by compare.sh of a recipe, with its arguments: encodings.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
on_a_signal stopped

main() {
  local seed encoding failed=0
  [ $# -gt 0 ] || set -- $COMPARED
  # every encoding with the first seed before any with the second
  side_by_side "$JOBS" bash -c 'SEED=$1 exec bash "$0/run.sh" evaluate "$2"' "$RECIPE" < <(
    for seed in $SEEDS; do
      for encoding in "$@"; do
        echo "$seed $encoding"
      done
    done
  ) || failed=1
  bash "$RECIPE/run.sh" report
  [ $failed = 0 ] || die "not every run came to its end: see above"
}

# On one line, so that a run of hours does not see the file change.
main "$@"; exit
