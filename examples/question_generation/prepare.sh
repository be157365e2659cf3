#!/usr/bin/env bash
# Texts and questions -> a vocabulary, or that of a pretraining -> binarised data that fairseq-train reads.
#
#   bash examples/question_generation/prepare.sh [OUT] [--vocabulary FOLDER] --train TEXT --valid TEXT [--test TEXT]
#     [--train-titles FILE] [--valid-titles FILE] [--test-titles FILE]
#
# TEXT: FILE.json in the form of SQuAD (SQuAD, CMRC 2018), where each question has an answer that the source names; or
# PREFIX of PREFIX.src and PREFIX.tgt, a text and a question a line. Plain, .xz or .gz. --...-titles: only the articles with
# these titles, a line each, for Du et al.'s split of SQuAD. FOLDER: the data of the pretraining, with dict.txt and spm.model,
# encoder.json and vocab.bpe, or tokenizer.json. OUT: $DATA of settings.sh.
# Run it again at any time: finished data are kept, changed files or settings start over.
. "$(dirname "$0")/../common/recipe.sh"
prepare questions "$@"; exit
