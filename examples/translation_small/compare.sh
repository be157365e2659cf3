#!/usr/bin/env bash
# Train several encodings with several seeds on the same data, translate and score the test sets,
# and write the tables and the plots. The learning rate of each encoding is chosen with the first seed, and the
# length penalty of each run, on the validation text.
#
#   bash examples/translation_small/compare.sh [ENCODING...]       # default: COMPARED in settings.sh
#   SEEDS="1 2 3" JOBS=2 bash examples/translation_small/compare.sh sinusoidal t5
#
# Takes about 15 minutes of one core a run. Run it again at any time: it goes on where it stopped.
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"
compare "$@"; exit
