#!/usr/bin/env bash
# Texts with labels -> data that run.sh trains on, in $DATA. A vocabulary is the words of the training part, or that of a
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
read_settings

usage="usage: prepare.sh [--offline FOLDER] [--glove FILE | --vocabulary FOLDER] TASK..."
offline='' vocabulary='' flags=(--longest "$MAX_LENGTH" --least "$MIN_COUNT") tasks=()
while [ $# -gt 0 ]; do
  case $1 in
    --offline)
      [ -d "${2:-}" ] || die "--offline ${2:-}: no such folder; $usage"
      offline=$2
      shift ;;
    --glove)
      [ -f "${2:-}" ] || die "--glove ${2:-}: no such file: give GloVe's text file, unpacked"
      flags+=(--glove "$2" --dimension "$EMBED_DIM")
      shift ;;
    --vocabulary)
      [ -e "${2:-}/dict.txt" ] || die "no dict.txt in ${2:-}: give the folder of the pretraining's data; $usage"
      vocabulary=$2
      shift ;;
    -*) die "unknown flag $1; $usage" ;;
    *) tasks+=("$1") ;;
  esac
  shift
done
[ ${#tasks[@]} -gt 0 ] || die "no task; $usage"
out=$DATA
if [ -n "$vocabulary" ]; then
  [ ${#flags[@]} -eq 4 ] || die "--glove and --vocabulary: a pretraining has its own vectors; $usage"
  flags=(--vocabulary "$vocabulary") out=$DATA/finetuning
fi

# texts_of TASK: its files in downloads.txt -> $files
texts_of() {
  case $1 in
    MR) files=(rt-polarity.all) ;;
    SUBJ) files=(subj.all) ;;
    CR) files=(custrev.all) ;;
    MPQA) files=(mpqa.all) ;;
    SST-2) files=(stsa.binary.{train,dev,test}) ;;
    SST-5) files=(stsa.fine.{train,dev,test}) ;;
    TREC) files=(TREC.{train,test}.all) ;;
    IMDB | SNLI | QNLI | QQP | MNLI) files=() ;;
    *) die "no task $1: give MR SUBJ CR MPQA SST-2 SST-5 TREC IMDB SNLI QNLI QQP or MNLI" ;;
  esac
}
for task in "${tasks[@]}"; do
  texts_of "$task"
  [ -n "$offline" ] || [ ${#files[@]} -gt 0 ] ||
    die "$task is not downloaded: give the folder with its files, --offline FOLDER (README.md)"
done
for task in "${tasks[@]}"; do
  texts_of "$task"
  [ -n "$offline" ] || python "$HERE/fetch.py" "$HERE/downloads.txt" "$DATA/texts" "" "${files[@]}"
  mkdir -p "$out"
  errors_in "$out/$task.log" python -m fairseq_relpos.finetuning.classification_data "$task" "${offline:-$DATA/texts}" \
    "$out/$task" "${flags[@]}"
done
