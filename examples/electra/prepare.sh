#!/usr/bin/env bash
# Text -> binarised data: prepare.sh of the recipe that PREPARED_BY names, into the same folder. Its arguments, without
# the folder:
#
#   bash examples/electra/prepare.sh [--workers N] [FILE|FOLDER...]                                # roberta_pretraining
#   SETTINGS=examples/electra/small.sh bash examples/electra/prepare.sh --train FILE... --valid FILE...   # roberta_small
#
# Data that are there already, of the same text and vocabulary, stay as they are. PREPARE_SETTINGS
# in settings.sh: files of settings of that recipe, such as another vocabulary.
. "$(dirname "$0")/../common/recipe.sh"
read_settings

case $PREPARED_BY in
  roberta_small) place=("$DATA") ;;
  roberta_pretraining) place=(--out "$DATA") ;;
  *) die "PREPARED_BY=$PREPARED_BY: give roberta_small or roberta_pretraining" ;;
esac
exec env SETTINGS="$PREPARE_SETTINGS" bash "$HERE/../$PREPARED_BY/prepare.sh" "${place[@]}" "$@"
