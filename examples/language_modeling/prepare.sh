#!/usr/bin/env bash
# Text -> vocabulary -> binarised data that fairseq-train reads, and counts of its words and bytes.
#
#   bash examples/language_modeling/prepare.sh [--out OUT] [--offline FOLDER]
#   bash examples/language_modeling/prepare.sh [--out OUT] --train FILE... --valid FILE... --test FILE...
#
# Without files, the texts of TEXTS in settings.sh (downloads/), from the network or from FOLDER, which has them or their
# archive. Files: UTF-8, one paragraph a line; plain, .xz or .gz. OUT: $DATA of settings.sh.
# Learning rates are chosen on the valid text; the test text is for what is reported.
. "$(dirname "$0")/../common/recipe.sh"
prepare language_model "$@"; exit
