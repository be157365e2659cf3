#!/usr/bin/env bash
# Train and look at one run: a position encoding (`fairseq-relpos list`) and a seed.
#
#   bash examples/translation_small/run.sh train ENCODING [flags of fairseq-train]
#   bash examples/translation_small/run.sh average ENCODING       # AVERAGED checkpoints -> average.pt
#   bash examples/translation_small/run.sh generate ENCODING [flags of fairseq-generate]
#   bash examples/translation_small/run.sh score ENCODING         # BLEU by several conventions, chrF
#   bash examples/translation_small/run.sh translate ENCODING <TEXT      # one sentence a line
#   bash examples/translation_small/run.sh evaluate ENCODING      # of train, generate, score what is missing
#   bash examples/translation_small/run.sh report [FOLDER]
#
# train goes on where it was stopped: SIGTERM, SIGUSR1 and Ctrl-C let it save and end with exit code 75. generate translates every test set into $RUNS/ENCODING-seedN/.
# generate and translate use EVALUATED of settings.sh. report: all runs, into FOLDER (default: $RUNS);
# in another folder also runs.tar.xz, what the report was made of.
set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$RECIPE/../translation_common/run.sh"
