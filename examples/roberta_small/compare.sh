#!/usr/bin/env bash
# Trains several encodings with the same masks, evaluates each with and without the order of the tokens, and writes the report.
#   bash examples/roberta_small/compare.sh [ENCODING...]       # default: COMPARED in settings.sh
. "$(dirname "$0")/../common/recipe.sh"
compare "$@"; exit
