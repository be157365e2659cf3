#!/usr/bin/env bash
# Train several encodings on the same data with the same masks, evaluate each with and without
# the order of the tokens, and write the tables and the picture. The learning rate of each encoding is
# chosen with the first seed, on the validation text.
#
#   bash examples/roberta_small/compare.sh [ENCODING...]       # default: COMPARED in settings.sh
#   SEEDS="1 2 3" JOBS=2 bash examples/roberta_small/compare.sh    # default: SEEDS and JOBS in settings.sh
#
# Takes a day on one core; JOBS=2 trains two at a time. Run it again at any time: it goes on where it was stopped.
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"
compare "$@"; exit
