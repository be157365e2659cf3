#!/usr/bin/env bash
# Trains several encodings with several seeds, generates and scores questions, and writes the report.
#   bash examples/question_generation/compare.sh [ENCODING...]       # default: COMPARED in settings.sh
. "$(dirname "$0")/../common/recipe.sh"
compare "$@"; exit
