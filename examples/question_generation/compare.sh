#!/usr/bin/env bash
# Train several encodings with several seeds, generate and score questions, and write the report.
#
#   bash examples/question_generation/compare.sh [ENCODING...]       # default: COMPARED in settings.sh
. "$(dirname "$0")/../common/recipe.sh"
compare "$@"; exit
