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
read_settings
questions() { errors_in "$OUT/prepare.log" python -m fairseq_relpos.finetuning.questions "$@"; }
corpus() { errors_in "$OUT/prepare.log" python "$COMMON/../translation_common/corpus.py" "$@"; }

usage="usage: prepare.sh [OUT] [--vocabulary FOLDER] --train TEXT --valid TEXT [--test TEXT] [--train-titles FILE ...]"
OUT=$DATA
if [ $# -gt 0 ] && [[ $1 != -* ]]; then
  OUT=$1
  shift
fi
vocabulary= splits=()
declare -A texts=() titles=()

# need_text TEXT: JSON that is there, or both files of a prefix
need_text() {
  case $1 in
    *.json | *.json.xz | *.json.gz)
      [ -f "$1" ] && [ -r "$1" ] ||
        die "no readable file $1: get SQuAD or CMRC 2018 first (README.md says where), and give its JSON" ;;
    *)
      files_of "$1" >/dev/null ||
        die "no $1.src and $1.tgt (or .xz, .gz): give SQuAD's JSON, whose name ends in .json, or PREFIX of these two" ;;
  esac
}
# files_of TEXT
files_of() {
  case $1 in *.json | *.json.xz | *.json.gz) echo "$1"; return ;; esac
  local side ending found
  for side in src tgt; do
    found=
    for ending in "" .xz .gz; do
      [ ! -f "$1.$side$ending" ] || { echo "$1.$side$ending"; found=yes; }
    done
    [ -n "$found" ] || return 1
  done
}

while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || die "$1 has no value; $usage"
  case $1 in
    --vocabulary) vocabulary=$2 ;;
    --train | --valid | --test)
      need_text "$2"
      [ -z "${texts[${1#--}]:-}" ] || die "$1 stands twice; $usage"
      texts[${1#--}]=$2 ;;
    --train-titles | --valid-titles | --test-titles)
      [ -f "$2" ] && [ -r "$2" ] || die "no readable file $2: give the titles of articles, a line each"
      split=${1#--} titles[${split%-titles}]=$2 ;;
    *) die "unknown flag $1; $usage" ;;
  esac
  shift 2
done
for split in train valid test; do
  [ -z "${texts[$split]:-}" ] || splits+=("$split")
  [ -n "${texts[$split]:-}" ] || [ -z "${titles[$split]:-}" ] || die "--$split-titles without --$split; $usage"
done
[ -n "${texts[train]:-}" ] && [ -n "${texts[valid]:-}" ] || die "no text for training or validation; $usage"
[ -z "$vocabulary" ] || [ -e "$vocabulary/dict.txt" ] ||
  die "no $vocabulary/dict.txt: give the folder of the pretraining's data"

VOCABULARY_FILES="spm.model encoder.json vocab.bpe tokenizer.json manifest.json"
describe_sources() {
  local name files
  if [ -n "$vocabulary" ]; then
    for name in dict.txt $VOCABULARY_FILES; do
      [ ! -e "$vocabulary/$name" ] || echo "$(digest "$vocabulary/$name") $name"
    done
  else
    echo "vocabulary $VOCAB_SIZE $NORMALIZATION coverage $CHARACTER_COVERAGE"
  fi
  echo "source $MAX_SOURCE question $MAX_TARGET tokens"
  for name in "${splits[@]}"; do
    mapfile -t files < <(files_of "${texts[$name]}")
    echo "$(digest "${files[@]}" ${titles[$name]:+"${titles[$name]}"}) $name $(basename "${texts[$name]}")"
  done
}

mkdir -p "$OUT"
sources=$(describe_sources)
if [ -e "$OUT/dict.txt" ] && [ "$sources" = "$(cat "$OUT/sources.txt" 2>/dev/null)" ]; then
  say "$OUT is ready"
  exit 0
fi
work=$OUT/work # what is there stays until all is made
rm -rf "$work"
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/vocabulary" "$work/text"
for split in "${splits[@]}"; do
  questions read "${texts[$split]}" "$work/$split" ${titles[$split]:+--titles "${titles[$split]}"}
done
if [ -n "$vocabulary" ]; then
  for name in $VOCABULARY_FILES; do
    [ ! -e "$vocabulary/$name" ] || cp "$vocabulary/$name" "$work/vocabulary"
  done
  questions dictionary "$vocabulary" "$work/vocabulary/dict.txt"
else
  say "vocabulary of $VOCAB_SIZE pieces, learned from the texts and questions of the training"
  corpus vocabulary "$work" "$VOCAB_SIZE" "$NORMALIZATION" "$CHARACTER_COVERAGE" 0 src,tgt
  corpus dictionary "$work" 1 src,tgt
  mv "$work/spm.model" "$work/vocabulary"
  mv "$work/dict.src.txt" "$work/vocabulary/dict.txt"
fi
prefixes=()
for split in "${splits[@]}"; do
  learned=()
  [ "$split" != train ] || learned=(--training)
  questions encode "$work/$split" "$work/vocabulary" --longest-source "$MAX_SOURCE" --longest-question "$MAX_TARGET" \
    "${learned[@]}"
  mv "$work/$split.questions" "$work/text"
  prefixes+=("--${split}pref" "$work/$split.pieces")
done
say "binarising"
preprocess "$OUT/preprocess.log" --source-lang src --target-lang tgt --srcdict "$work/vocabulary/dict.txt" --joined-dictionary \
  "${prefixes[@]}" --destdir "$work/bin" --workers "$WORKERS"
echo "$sources" >"$work/sources.txt" || die "no room to write in $OUT: make room and run this again"
rm -rf "$OUT/dict.txt" "$OUT/text" "$OUT"/{train,valid,test}.src-tgt.*
for name in $VOCABULARY_FILES; do rm -f "${OUT:?}/$name"; done
mv "$work/bin"/*.{bin,idx} "$work/bin"/dict.*.txt "$work/text" "$work/sources.txt" "$OUT"
mv "$work/vocabulary/dict.txt" "$work"
[ -z "$(ls "$work/vocabulary")" ] || mv "$work/vocabulary"/* "$OUT"
mv "$work/dict.txt" "$OUT" # the last: it says that the rest is there
say "ready: $OUT (splits ${splits[*]})"
