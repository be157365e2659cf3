#!/usr/bin/env bash
# Train several encodings with several seeds, translate and score the test sets, and write the tables and the plots: about 15
# minutes of one core a run.
#
#   SEEDS="1 2 3" JOBS=2 bash examples/translation_small/compare.sh [ENCODING...]       # default: values of settings.sh
. "$(dirname "$0")/../common/recipe.sh"
compare "$@"; exit
