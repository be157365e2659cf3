#!/usr/bin/env bash
# Train several encodings on the same data with the same masks, export their discriminators, and write the tables.
#
#   SETTINGS=examples/electra/small.sh bash examples/electra/compare.sh [ENCODING...]     # default: COMPARED in settings.sh
#   SEEDS="1 2 3" JOBS=2 ... bash examples/electra/compare.sh
#
# Run it again at any time: it goes on where it was stopped.
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"
compare "$@"; exit
