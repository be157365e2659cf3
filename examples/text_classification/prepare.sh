#!/usr/bin/env bash
# Texts with labels -> data that run.sh trains on, in $DATA. The vocabulary is the words of the training part, or that of a
# pretraining: then the data are for run.sh finetune.
#
#   bash examples/text_classification/prepare.sh [--offline FOLDER] [--glove FILE] TASK...
#   bash examples/text_classification/prepare.sh [--offline FOLDER] --vocabulary FOLDER TASK...
#
# TASK: MR SUBJ CR MPQA SST-2 SST-5 TREC, which are downloaded (downloads.txt) or taken from FOLDER; and IMDB SNLI QNLI QQP
# MNLI from FOLDER alone. FOLDER: the files of downloads.txt, or TASK/train.tsv, dev.tsv and test.tsv, for those in folds
# TASK/all.tsv (README.md); plain, .xz or .gz. --glove: GloVe's text file with vectors of EMBED_DIM numbers.
# --vocabulary: the folder of the pretraining's data, with dict.txt, and spm.model or GPT-2's encoder.json and vocab.bpe.
. "$(dirname "$0")/../common/recipe.sh"
prepare classification "$@"; exit
