#!/usr/bin/env bash
# Questions in SQuAD's JSON -> tokens of a pretraining's vocabulary.
#
#   bash examples/squad/prepare.sh OUT --vocabulary FOLDER --train FILE --valid FILE [--test FILE]
#
# FOLDER: the data of the pretraining, with dict.txt and spm.model (SentencePiece), or dict.txt, encoder.json and
# vocab.bpe (GPT-2). FILE: SQuAD 1.1, SQuAD 2.0 or CMRC 2018 in the same form; plain, .xz or .gz.
. "$(dirname "$0")/../common/recipe.sh"
prepare squad "$@"; exit
