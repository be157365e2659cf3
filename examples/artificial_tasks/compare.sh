#!/usr/bin/env bash
# AT5's Table 1 with five seeds, and every other encoding on two of its tasks; then the report. Takes many hours on one core;
# run it again at any time: it resumes.
#
#   bash examples/artificial_tasks/compare.sh [ENCODING...]     # default: all; JOBS=2 trains two at a time
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"

# those that an encoder can have
known=$(python -c 'from fairseq_relpos.encodings import names_for; print(*names_for(causal=False))')
[ $# -gt 0 ] || set -- $known
paper='' others=''
for encoding in "$@"; do
  [[ " $known " == *" $encoding "* ]] || die "no encoding $encoding: fairseq-relpos list names them"
  if [[ " $PAPER_ENCODINGS " == *" $encoding "* ]]; then paper+=" $encoding"; else others+=" $encoding"; fi
done

lines() { # SEEDS TASKS ENCODINGS
  python "$ROOT/scripts/sweep.py" product recipe=artificial_tasks action=train "SEED=$1" "task=$2" "encoding=$3"
}
code=0
{
  # the first seed of everything first
  lines "${PAPER_SEEDS%% *}" "$PAPER_TASKS" "$paper" &&
    lines "${OTHER_SEEDS%% *}" "$OTHER_TASKS" "$others" &&
    lines "$PAPER_SEEDS" "$PAPER_TASKS" "$paper" &&
    lines "$OTHER_SEEDS" "$OTHER_TASKS" "$others"
} | python "$ROOT/scripts/sweep.py" each "$JOBS" || code=$?
[ $code != 75 ] || exit 75
bash "$HERE/run.sh" report
[ $code = 0 ] || die "not every run came to its end: see above"; exit
