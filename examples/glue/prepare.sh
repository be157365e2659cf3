#!/usr/bin/env bash
# The tables of GLUE -> data that fairseq-train reads, in the vocabulary of a pretraining.
#
#   bash examples/glue/prepare.sh [--vocabulary FOLDER] [--offline FOLDER] [TASK...]
#
# TASK: CoLA SST-2 MRPC STS-B QQP MNLI QNLI RTE WNLI, all by default. --vocabulary: the folder of the pretraining's data
# (VOCABULARY of settings.sh). --offline: a folder with TASK/train.tsv and so on, or with the archives of downloads.txt.
# Run it again at any time: what is done is skipped, changed tables or another vocabulary start over.
. "$(dirname "$0")/../common/recipe.sh"
read_settings

usage="usage: prepare.sh [--vocabulary FOLDER] [--offline FOLDER] [TASK...]"
offline= tasks=()
while [ $# -gt 0 ]; do
  case $1 in
    --vocabulary) [ $# -gt 1 ] || die "--vocabulary: which folder? $usage"; VOCABULARY=$2; shift 2 ;;
    --offline)
      [ -d "${2:-}" ] || die "--offline ${2:-}: no such folder; give one with TASK/train.tsv, or with the archives of $HERE/downloads.txt"
      offline=$2
      shift 2
      ;;
    CoLA | SST-2 | MRPC | STS-B | QQP | MNLI | QNLI | RTE | WNLI) tasks+=("$1"); shift ;;
    *) die "no task or flag $1; tasks: CoLA SST-2 MRPC STS-B QQP MNLI QNLI RTE WNLI; $usage" ;;
  esac
done
[ ${#tasks[@]} -gt 0 ] || tasks=(CoLA SST-2 MRPC STS-B QQP MNLI QNLI RTE WNLI)
[ -e "$VOCABULARY/dict.txt" ] ||
  die "no dict.txt in $VOCABULARY: give the folder of the pretraining's data with --vocabulary FOLDER"

lock "$DATA"
python "$HERE/fetch.py" "$HERE/downloads.txt" "$DATA/tsv" "$offline" "${tasks[@]}"

# sources TASK: what its data are made of
sources() {
  local file
  for file in "$VOCABULARY"/{dict.txt,spm.model,encoder.json,vocab.bpe,tokenizer.json,manifest.json} "$DATA/tsv/$1"/*.tsv; do
    [ ! -e "$file" ] || echo "$(digest "$file") $(basename "$file")"
  done
}

for task in "${tasks[@]}"; do
  made_of=$(sources "$task")
  if [ "$made_of" = "$(cat "$DATA/$task/sources.txt" 2>/dev/null)" ]; then
    say "$DATA/$task is ready"
    continue
  fi
  errors_in "$DATA/$task.log" python -m fairseq_relpos.finetuning.prepare "$task" "$DATA/tsv/$task" "$VOCABULARY" "$DATA/$task"
  echo "$made_of" >"$DATA/$task/sources.txt" || die "no room to write in $DATA: make room and run this again"
done
