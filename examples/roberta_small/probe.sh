#!/usr/bin/env bash
# Measures how many updates an encoding needs before it uses positions, for each line of PROBES: so the settings of this recipe
# were chosen. `learned` needs the most. Run it again at any time: it resumes.
#
#   bash examples/roberta_small/probe.sh [ENCODING]      # default: learned; about an hour of one core
#   bash examples/roberta_small/probe.sh report FOLDER   # PROBES.md of what there is
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"
PLACE=$RUNS-probes folder=$RUNS-probes

if [ "${1:-}" = report ]; then
  folder=${2:-$PLACE}
else
  while read -r length tokens rate updates; do
    place=$PLACE/T$length-$tokens-$rate
    mkdir -p "$place"
    echo "TOKENS_PER_SAMPLE=$length TOKENS_PER_UPDATE=$tokens LEARNING_RATE=$rate UPDATES=6000" >"$place/settings.sh"
    SETTINGS="${SETTINGS:-} $place/settings.sh" RUNS=$place bash "$HERE/run.sh" train "${1:-learned}" \
      --max-update "$updates" </dev/null
  done <<<"$PROBES"
fi
python "$HERE/probe.py" "$PLACE" "$folder"; exit
