#!/usr/bin/env bash
# Train and look at one run: a position encoding (`fairseq-relpos list`) and a seed.
#
#   bash examples/translation_wmt_en_de/run.sh command ENCODING [flags of fairseq-train]      # prints what train runs
#   bash examples/translation_wmt_en_de/run.sh train ENCODING [flags of fairseq-train]
#   bash examples/translation_wmt_en_de/run.sh average ENCODING       # AVERAGED checkpoints -> average.pt
#   bash examples/translation_wmt_en_de/run.sh generate ENCODING [flags of fairseq-generate]
#   bash examples/translation_wmt_en_de/run.sh score ENCODING         # BLEU by several conventions, chrF
#   bash examples/translation_wmt_en_de/run.sh translate ENCODING <TEXT      # one sentence a line
#   bash examples/translation_wmt_en_de/run.sh evaluate ENCODING      # of all these what is missing
#   bash examples/translation_wmt_en_de/run.sh report [FOLDER]
#
# train goes on where it was stopped: SIGTERM, SIGUSR1 and Ctrl-C let it save and end with exit code 75.
# SETTINGS=examples/translation_wmt_en_de/at5.sh or big.sh before it: another paper's.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/../translation_small/run.sh" # the same, with the settings that lie here
