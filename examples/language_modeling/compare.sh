#!/usr/bin/env bash
# Train several encodings on the same text, score the test text with each memory and with longer blocks, and write the tables and
# the picture.
#
#   bash examples/language_modeling/compare.sh [ENCODING...]       # default: COMPARED in settings.sh
#   SEEDS="1 2 3" JOBS=2 bash examples/language_modeling/compare.sh    # default: SEEDS and JOBS in settings.sh
#
# Run it again at any time: it goes on where it was stopped.
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"
compare "$@"; exit
