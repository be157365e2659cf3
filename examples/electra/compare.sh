#!/usr/bin/env bash
# Train several encodings on the same data with the same masks, export their discriminators, and write the tables.
#
#   SETTINGS=examples/electra/small.sh bash examples/electra/compare.sh [ENCODING...]     # default: COMPARED in settings.sh
. "$(dirname "$0")/../common/recipe.sh"
compare "$@"; exit
