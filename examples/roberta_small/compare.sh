#!/usr/bin/env bash
# Train several encodings on the same data with the same masks, evaluate each with and without the order of the tokens, and
# write the tables and the picture: a day on one core.
#
#   bash examples/roberta_small/compare.sh [ENCODING...]       # default: COMPARED in settings.sh
. "$(dirname "$0")/../common/recipe.sh"
compare "$@"; exit
