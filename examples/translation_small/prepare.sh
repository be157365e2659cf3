#!/usr/bin/env bash
# Parallel text -> joint vocabulary -> binarised data that fairseq-train reads.
#
#   bash examples/translation_small/prepare.sh [OUT] --train PREFIX... --valid PREFIX --test PREFIX...
#   bash examples/translation_small/prepare.sh [OUT]      # a toy grammar instead of text, with the settings in toy.sh
#
# PREFIX: PREFIX.en and PREFIX.de, UTF-8, one sentence a line; plain, .xz or .gz. The train texts
# become one split, each test text one of its own: test, test1, ... OUT: $DATA of settings.sh.
[[ " $* " == *" --"* ]] || export SETTINGS="${SETTINGS:-$(dirname "$0")/toy.sh}"
. "$(dirname "$0")/../common/recipe.sh"
prepare toy "$@"; exit
