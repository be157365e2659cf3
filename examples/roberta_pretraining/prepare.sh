#!/usr/bin/env bash
# Raw text -> vocabulary -> binarised data that fairseq-train reads.
#
#   bash examples/roberta_pretraining/prepare.sh [--out OUT] [--workers N] FILE|FOLDER...
#   bash examples/roberta_pretraining/prepare.sh [--out OUT] [--workers N] [--offline FOLDER]
#
# Text: plain, an empty line between documents, or JSON lines with "text"; also .xz, .gz, .bz2, .zst.
# Without files, those of TEXTS in settings.sh, from the network or from FOLDER (downloads.txt).
# OUT: $DATA of settings.sh. Run it again at any time, also after kill -9: finished steps are skipped, changed text or
# settings start over. The result does not depend on the number of workers (processes).
. "$(dirname "$0")/../common/recipe.sh"
prepare pretraining "$@"; exit
