#!/usr/bin/env bash
# Trains several encodings with the same masks, exports their discriminators, and writes the report.
#   bash examples/electra/compare.sh [ENCODING...]       # default: COMPARED in settings.sh
. "$(dirname "$0")/../common/recipe.sh"
compare "$@"; exit
