#!/usr/bin/env bash
# How many updates an encoding needs before it uses positions, for several lengths, batches and learning rates: how the
# settings of this recipe were chosen. `learned` needs the most.
#
#   bash examples/roberta_small/probe.sh [ENCODING]      # default: learned; about an hour of one core
#   bash examples/roberta_small/probe.sh report FOLDER   # PROBES.md of what there is
#
# PROBES of settings.sh names them. Run it again at any time: it goes on where it was stopped.
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"
PLACE=$RUNS-probes

# probe ENCODING LENGTH TOKENS RATE UPDATES
probe() {
  local place=$PLACE/T$2-$3-$4
  mkdir -p "$place"
  echo "TOKENS_PER_SAMPLE=$2 TOKENS_PER_UPDATE=$3 LEARNING_RATE=$4 UPDATES=6000" >"$place/settings.sh"
  SETTINGS="${SETTINGS:-} $place/settings.sh" RUNS=$place bash "$HERE/run.sh" train "$1" --max-update "$5"
}

if [ "${1:-}" != report ]; then
  while read -r numbers; do
    probe "${1:-learned}" $numbers </dev/null
  done <<<"$PROBES"
fi
[ "${1:-}" = report ] && folder=${2:-$PLACE} || folder=$PLACE
python "$HERE/probe.py" "$PLACE" "$folder"; exit
