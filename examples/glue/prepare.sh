#!/usr/bin/env bash
# The tables of GLUE -> data that fairseq-train reads, in the vocabulary of a pretraining.
#
#   bash examples/glue/prepare.sh [--vocabulary FOLDER] [--offline FOLDER] [TASK...]
#
# TASK: CoLA SST-2 MRPC STS-B QQP MNLI QNLI RTE WNLI, all by default. --vocabulary: the folder of the pretraining's data
# (VOCABULARY of settings.sh). --offline: a folder with TASK/train.tsv and so on, or with the archives of downloads.txt.
. "$(dirname "$0")/../common/recipe.sh"
prepare glue "$@"; exit
