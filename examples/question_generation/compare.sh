#!/usr/bin/env bash
# Train several encodings with several seeds on the same data, generate and score questions, and write the tables.
#
#   bash examples/question_generation/compare.sh [ENCODING...]       # default: COMPARED in settings.sh
#
# Run it again at any time: it goes on where it stopped.
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"
compare "$@"; exit
