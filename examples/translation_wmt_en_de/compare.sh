#!/usr/bin/env bash
# Train several encodings with several seeds, translate and score the test sets, write the report: days on 8 GPUs.
#
#   bash examples/translation_wmt_en_de/compare.sh [ENCODING...]       # default: COMPARED in settings.sh
. "$(dirname "$0")/../common/recipe.sh"
compare "$@"; exit
