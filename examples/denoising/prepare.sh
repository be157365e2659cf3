#!/usr/bin/env bash
# Text of one or several languages -> vocabulary -> binarised data, as in ../roberta_small, with the settings here.
#
#   bash examples/denoising/prepare.sh OUT --train FILE... --valid FILE... [--test FILE...]
. "$(dirname "$0")/../common/recipe.sh"
prepare text "$@"; exit
