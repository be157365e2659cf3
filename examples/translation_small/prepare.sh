#!/usr/bin/env bash
# Parallel text -> joint vocabulary -> binarised data that fairseq-train reads.
#
#   bash examples/translation_small/prepare.sh [OUT] --train PREFIX... --valid PREFIX --test PREFIX...
#   bash examples/translation_small/prepare.sh [OUT]      # a toy grammar instead of text
#
# PREFIX: PREFIX.en and PREFIX.de, UTF-8, one sentence a line; plain, .xz or .gz. The train texts
# become one split, each test text one of its own: test, test1, ... OUT: $DATA of settings.sh.
# Run it again at any time: what is done is skipped, changed text or settings start over.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

case " $* " in
  *" --"*) ;;
  *) SETTINGS=${SETTINGS:-$HERE/toy.sh} ;;
esac

own_texts() {
  say "no texts given: sentences of a toy grammar, with the settings in $SETTINGS"
  python "$HERE/toy_grammar.py" "$1" "$TOY_SEED" "$TOY_LONGEST" \
    train="$TOY_TRAIN" valid="$TOY_VALID" test="$TOY_TEST" long="$TOY_TEST"
  texts=(--train "$1/train" --valid "$1/valid" --test "$1/test" "$1/long")
}

. "$HERE/../translation_common/prepare.sh"
