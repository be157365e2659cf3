#!/usr/bin/env bash
# Text -> vocabulary -> binarised data that fairseq-train reads, and counts of its words and bytes.
#
#   bash examples/language_modeling/prepare.sh [--out OUT] [--offline FOLDER]
#   bash examples/language_modeling/prepare.sh [--out OUT] --train FILE... --valid FILE... --test FILE...
#
# Without files, the texts of TEXTS in settings.sh (downloads/), from the network or from FOLDER, which has them or their
# archive. Files: UTF-8, one paragraph a line; plain, .xz or .gz. OUT: $DATA of settings.sh.
# Learning rates are chosen on the valid text; the test text is for what is reported.
# Run it again at any time: finished steps are skipped, changed text or settings start over.
. "$(dirname "$0")/../common/recipe.sh"
read_settings

usage="usage: prepare.sh [--out OUT] --train FILE... --valid FILE... --test FILE... (or, without files, [--offline FOLDER])"
OUT=$DATA offline= kind=
declare -A files=()
while [ $# -gt 0 ]; do
  case $1 in
    --out) [ $# -gt 1 ] || die "--out: which folder? $usage"; OUT=$2 kind=; shift ;;
    --offline)
      [ -d "${2:-}" ] || die "--offline ${2:-}: no such folder; give one with the files of $HERE/downloads/$TEXTS.txt"
      offline=$2 kind=
      shift ;;
    --train | --valid | --test) kind=${1#--} ;;
    -*) die "unknown flag $1; $usage" ;;
    *)
      [ -n "$kind" ] || die "$1 stands before --train, --valid and --test; $usage"
      [ -f "$1" ] && [ -r "$1" ] || die "no readable file $1: give text files"
      files[$kind]+="$1"$'\n' ;;
  esac
  shift
done
case $VOCABULARY in
  pieces | words) ;;
  *) die "VOCABULARY=$VOCABULARY: give pieces or words" ;;
esac
if [ ${#files[@]} -eq 0 ]; then
  [ -e "$HERE/downloads/$TEXTS.txt" ] ||
    die "TEXTS=$TEXTS: there are $(cd "$HERE/downloads" && ls -- *.txt | sed 's/\.txt$//' | sort | paste -sd' '); or give files: $usage"
  python "$HERE/fetch.py" "$HERE/downloads/$TEXTS.txt" "$OUT/texts" "$offline"
  while read -r _ name; do
    kind=${name#wiki.}
    files[${kind%.*}]=$OUT/texts/$name$'\n'
  done <"$HERE/downloads/$TEXTS.sha1"
else
  [ -z "$offline" ] || die "--offline is for what downloads/$TEXTS.txt lists, and files were given; $usage"
fi
splits=(train valid test)
for kind in "${splits[@]}"; do
  [ -n "${files[$kind]:-}" ] || die "no text for --$kind; $usage"
done

# files_of SPLIT -> `of_split`
files_of() { mapfile -t of_split <<<"${files[$1]%$'\n'}"; }

# What OUT is made from, in a form that can be compared.
describe_sources() {
  local kind file of_split
  echo "vocabulary $VOCABULARY$([ "$VOCABULARY" = words ] || echo " $VOCAB_SIZE $NORMALIZATION")"
  for kind in "${splits[@]}"; do
    files_of "$kind"
    for file in "${of_split[@]}"; do
      echo "$(digest "$file") $kind $(basename "$file")"
    done
  done
}

mkdir -p "$OUT"
lock "$OUT"
sources=$(describe_sources)
if [ -e "$OUT/sources.txt" ] && [ "$sources" != "$(cat "$OUT/sources.txt")" ]; then
  say "the text or the vocabulary's settings have changed: $OUT is made again"
  rm -f "$OUT/dict.txt" # first: it says that the rest is there
  rm -f "$OUT"/{train,valid,test}.{txt,units,counts.json,bin,idx} "$OUT/spm.model" "$OUT/counts.json"
fi
if [ -e "$OUT/dict.txt" ]; then
  say "$OUT is ready"
  exit 0
fi
trap 'rm -rf "$OUT/binarised.tmp" "$OUT/dict.tmp"' EXIT
echo "$sources" >"$OUT/sources.txt" || die "no room to write in $OUT: make room and run this again"

for kind in "${splits[@]}"; do
  files_of "$kind"
  [ -e "$OUT/$kind.txt" ] || python "$COMMON/pieces.py" unpack "$OUT/$kind.txt" "${of_split[@]}"
done
model=- dictionary=()
if [ "$VOCABULARY" = pieces ]; then
  model=$OUT/spm.model
  if [ ! -e "$model" ]; then
    say "vocabulary of $VOCAB_SIZE pieces, learned from the training text (a minute for 25 MB)"
    python "$COMMON/pieces.py" vocabulary "$OUT/train.txt" "$OUT/spm" "$VOCAB_SIZE" "$NORMALIZATION" bytes
  fi
  python "$COMMON/pieces.py" dictionary "$model" "$OUT/dict.tmp"
  dictionary=(--srcdict "$OUT/dict.tmp")
fi
for kind in "${splits[@]}"; do
  [ -e "$OUT/$kind.counts.json" ] || python "$HERE/corpus.py" "$VOCABULARY" "$model" "$OUT" "$kind"
done

say "binarising"
binarised=$OUT/binarised.tmp
rm -rf "$binarised"
preprocess "$OUT/preprocess.log" --only-source "${dictionary[@]}" --destdir "$binarised" \
  --workers "$WORKERS" --trainpref "$OUT/train.units" --validpref "$OUT/valid.units" --testpref "$OUT/test.units"
[ "$VOCABULARY" = pieces ] || python "$HERE/corpus.py" closed "$binarised/dict.txt" "$OUT" valid test
python "$HERE/corpus.py" counts - "$OUT" "${splits[@]}"
mv "$binarised"/*.bin "$binarised"/*.idx "$OUT"
mv "$binarised/dict.txt" "$OUT" # last: it says that the rest is there
rm -f "$OUT"/{train,valid,test}.{txt,units,counts.json}
say "ready: $OUT"
