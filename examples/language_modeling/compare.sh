#!/usr/bin/env bash
# Trains several encodings on the same text, scores the test text with each memory and in longer blocks, and writes the report.
#   bash examples/language_modeling/compare.sh [ENCODING...]       # default: COMPARED in settings.sh
. "$(dirname "$0")/../common/recipe.sh"
compare "$@"; exit
