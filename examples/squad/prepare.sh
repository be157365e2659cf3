#!/usr/bin/env bash
# Questions in SQuAD's JSON -> tokens of a pretraining's vocabulary.
#
#   bash examples/squad/prepare.sh OUT --vocabulary FOLDER --train FILE --valid FILE [--test FILE]
#
# FOLDER: the data of the pretraining, with dict.txt and spm.model (SentencePiece), or dict.txt, encoder.json and
# vocab.bpe (GPT-2). FILE: SQuAD 1.1, SQuAD 2.0 or CMRC 2018 in the same form; plain, .xz or .gz.
# Run it again at any time: finished data are kept, changed files start over.
. "$(dirname "$0")/../common/recipe.sh"
read_settings

usage="usage: prepare.sh OUT --vocabulary FOLDER --train FILE --valid FILE [--test FILE]"
[ $# -gt 0 ] || die "$usage"
OUT=$1
shift
vocabulary= splits=()
declare -A files=()
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || die "$1 has no value; $usage"
  case $1 in
    --vocabulary) vocabulary=$2 ;;
    --train | --valid | --test)
      [ -f "$2" ] && [ -r "$2" ] || die "no readable file $2: give a JSON file in the form of SQuAD"
      [ -z "${files[${1#--}]:-}" ] || die "$1 stands twice; $usage"
      splits+=("${1#--}") files[${1#--}]=$2 ;;
    *) die "unknown flag $1; $usage" ;;
  esac
  shift 2
done
[ -n "$vocabulary" ] && [ -n "${files[train]:-}" ] && [ -n "${files[valid]:-}" ] || die "something is missing; $usage"
[ -e "$vocabulary/dict.txt" ] || die "no $vocabulary/dict.txt: give the folder of the pretraining's data"

describe_sources() {
  local name
  for name in spm.model encoder.json vocab.bpe tokenizer.json manifest.json; do
    [ ! -e "$vocabulary/$name" ] || echo "$(digest "$vocabulary/$name") $name"
  done
  echo "$(digest "$vocabulary/dict.txt") dict.txt"
  for name in "${splits[@]}"; do
    echo "$(digest "${files[$name]}") $name"
  done
}

mkdir -p "$OUT"
sources=$(describe_sources)
if [ -e "$OUT/dict.txt" ] && [ "$sources" = "$(cat "$OUT/sources.txt")" ]; then
  say "$OUT is ready"
  exit 0
fi
[ "$(realpath "$OUT")" != "$(realpath "$vocabulary")" ] || die "OUT is the folder of the vocabulary: give another one"
part=$OUT/part # what is there stays until all is made
rm -rf "$part"
mkdir "$part"
for split in "${splits[@]}"; do
  errors_in "$OUT/prepare.log" python -m fairseq_relpos.finetuning.squad encode \
    "${files[$split]}" "$vocabulary" "$part/$split" --metric "$METRIC"
done
{ echo "$sources" >"$part/sources.txt" && cp "$vocabulary/dict.txt" "$part"; } ||
  die "no room to write in $OUT: make room and run this again"
rm -f "$OUT/dict.txt" "$OUT"/{train,valid,test}.{npz,json}
mv "$part"/{*.npz,*.json,sources.txt} "$OUT"
mv "$part/dict.txt" "$OUT" # the last: it says that the rest is there
rmdir "$part"
say "ready: $OUT (splits ${splits[*]})"
