#!/usr/bin/env bash
# Train and look at one run: a position encoding (`fairseq-relpos list`) and a seed.
#
#   bash examples/translation_wmt_en_de/run.sh command ENCODING [flags of fairseq-train]      # prints what train runs
#   bash examples/translation_wmt_en_de/run.sh evaluate ENCODING      # train, average, generate, score
#   bash examples/translation_wmt_en_de/run.sh report [FOLDER]
#
# The actions are those of ../translation_small/run.sh, whose head lists them all.
# SETTINGS=examples/translation_wmt_en_de/at5.sh or big.sh before it: another paper's.
. "$(dirname "$0")/../translation_small/run.sh" # with the settings that lie here
