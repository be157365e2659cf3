#!/usr/bin/env bash
# AT5's Table 1 with five seeds, and every other encoding on two of its tasks; then the report.
#
#   bash examples/artificial_tasks/compare.sh [ENCODING...]     # default: all of them
#
# Takes many hours on one core; JOBS=2 trains two at a time. Run it again at any time: it goes on with
# the run that was stopped.
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"

# compare TASKS SEEDS ENCODING...: the first seed of everything first
compare() {
  local tasks=$1 seeds=$2 seed task encoding
  shift 2
  side_by_side "$JOBS" < <(
    printf 'recipe\taction\ttask\tencoding\tSEED\n'
    for seed in $seeds; do
      for task in $tasks; do
        for encoding in "$@"; do
          printf '%s\t%s\t%s\t%s\t%s\n' "$HERE" train "$task" "$encoding" "$seed"
        done
      done
    done
  ) || failed=1
}
failed=0

is_in() { [[ " $2 " == *" $1 "* ]]; }

# those that an encoder can have
known=$(python -c 'from fairseq_relpos.encodings import names_for; print(*names_for(causal=False), sep="\n")')
[ $# -gt 0 ] || set -- $PAPER_ENCODINGS $known
paper=() others=()
for encoding in "$@"; do
  is_in "$encoding" "${known//$'\n'/ }" || die "no encoding $encoding: fairseq-relpos list names them"
  if is_in "$encoding" "$PAPER_ENCODINGS"; then
    is_in "$encoding" "${paper[*]}" || paper+=("$encoding")
  else
    others+=("$encoding")
  fi
done
compare "$PAPER_TASKS" "${PAPER_SEEDS%% *}" "${paper[@]}"
compare "$OTHER_TASKS" "${OTHER_SEEDS%% *}" "${others[@]}"
compare "$PAPER_TASKS" "$PAPER_SEEDS" "${paper[@]}"
compare "$OTHER_TASKS" "$OTHER_SEEDS" "${others[@]}"
bash "$HERE/run.sh" report
[ $failed = 0 ] || die "not every run came to its end: see above"
