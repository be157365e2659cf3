#!/usr/bin/env bash
# Train several encodings on the same text, score the test text with each memory and in longer blocks, and write the report.
#
#   bash examples/language_modeling/compare.sh [ENCODING...]       # default: COMPARED in settings.sh
. "$(dirname "$0")/../common/recipe.sh"
compare "$@"; exit
