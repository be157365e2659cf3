#!/usr/bin/env bash
# ../translation_small/run.sh, whose head lists the actions, with the settings that lie here.
#   bash examples/translation_wmt_en_de/run.sh command ENCODING [flags of fairseq-train]
# SETTINGS=examples/translation_wmt_en_de/at5.sh or big.sh before it: another paper's.
. "$(dirname "$0")/../translation_small/run.sh"
