#!/usr/bin/env bash
# Text -> vocabulary -> binarised data that fairseq-train reads.
#
#   bash examples/roberta_small/prepare.sh OUT --train FILE... --valid FILE... [--test FILE...]
#
# Text: UTF-8, one paragraph a line, an empty line between documents; plain, .xz or .gz.
# The train files become one split, each other file one of its own: valid, valid1, ..., test, test1, ...
# The learning rate is chosen on the valid files; the test files are for what is reported.
. "$(dirname "$0")/../common/recipe.sh"
prepare text "$@"; exit
