#!/usr/bin/env bash
# Train several encodings with several seeds, translate and score the test sets, write the report.
#
#   bash examples/translation_wmt_en_de/compare.sh [ENCODING...]       # default: COMPARED in settings.sh
#
# Days on 8 GPUs. Run it again at any time: it goes on where it stopped.
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"
compare "$@"; exit
