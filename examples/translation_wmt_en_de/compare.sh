#!/usr/bin/env bash
# Trains several encodings with several seeds, translates and scores the test sets, and writes the report.
#   bash examples/translation_wmt_en_de/compare.sh [ENCODING...]       # default: COMPARED in settings.sh
. "$(dirname "$0")/../common/recipe.sh"
compare "$@"; exit
