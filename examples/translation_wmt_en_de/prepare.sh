#!/usr/bin/env bash
# The texts of WMT -> joint vocabulary -> binarised data that fairseq-train reads.
#
#   bash examples/translation_wmt_en_de/prepare.sh [OUT] [--offline FOLDER]
#   SETTINGS=examples/translation_wmt_en_de/at5.sh bash examples/translation_wmt_en_de/prepare.sh
#
# FOLDER: texts or archives under the names in downloads.txt; without it they are downloaded. OUT: $DATA of settings.sh.
. "$(dirname "$0")/../common/recipe.sh"
prepare wmt "$@"; exit
