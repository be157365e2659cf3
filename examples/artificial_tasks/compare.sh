#!/usr/bin/env bash
# AT5's Table 1 with five seeds, and every other encoding on two of its tasks; then the report.
#
#   bash examples/artificial_tasks/compare.sh [ENCODING...]     # default: all of them
#
# Takes many hours on one core; JOBS=2 trains two at a time. Run it again at any time: it resumes a stopped run.
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"

# compare TASKS SEEDS ENCODINGS
compare() {
  python "$ROOT/scripts/sweep.py" product "recipe=$HERE" action=train "SEED=$2" "task=$1" "encoding=$3" >"$work/manifest.tsv"
  side_by_side "$JOBS" <"$work/manifest.tsv" || failed=1
}
failed=0 work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

# those that an encoder can have
known=$(python -c 'from fairseq_relpos.encodings import names_for; print(*names_for(causal=False))')
[ $# -gt 0 ] || set -- $known
paper='' others=''
for encoding in "$@"; do
  [[ " $known " == *" $encoding "* ]] || die "no encoding $encoding: fairseq-relpos list names them"
  if [[ " $PAPER_ENCODINGS " == *" $encoding "* ]]; then paper+=" $encoding"; else others+=" $encoding"; fi
done
compare "$PAPER_TASKS" "${PAPER_SEEDS%% *}" "$paper" # the first seed of everything first
compare "$OTHER_TASKS" "${OTHER_SEEDS%% *}" "$others"
compare "$PAPER_TASKS" "$PAPER_SEEDS" "$paper"
compare "$OTHER_TASKS" "$OTHER_SEEDS" "$others"
bash "$HERE/run.sh" report
[ $failed = 0 ] || die "not every run came to its end: see above"
