#!/usr/bin/env bash
# Text -> vocabulary -> binarised data that fairseq-train reads.
#
#   bash examples/roberta_small/prepare.sh OUT --train FILE... --valid FILE... [--test FILE...]
#
# Text: UTF-8, one paragraph a line, an empty line between documents; plain, .xz or .gz.
# The train files become one split, each other file one of its own: valid, valid1, ..., test, test1, ...
# The learning rate is chosen on the valid files; the test files are for what is reported.
# Run it again at any time: finished steps are skipped, changed text or settings start over.
. "$(dirname "$0")/../common/recipe.sh"
read_settings

usage="usage: prepare.sh OUT --train FILE... --valid FILE... [--test FILE...]"
[ $# -gt 0 ] || die "$usage"
OUT=$1
shift
train=() splits=(train) files=() kind= # of splits but the first: its file
valids=0 tests=0
for argument in "$@"; do
  case $argument in
    --train | --valid | --test) kind=${argument#--} ;;
    -*) die "unknown flag $argument; $usage" ;;
    *)
      case $kind in
        train) train+=("$argument") ;;
        valid) splits+=("valid${valids#0}") files+=("$argument") valids=$((valids + 1)) ;;
        test) splits+=("test${tests#0}") files+=("$argument") tests=$((tests + 1)) ;;
        *) die "$argument stands before --train and --valid; $usage" ;;
      esac
      [ -f "$argument" ] && [ -r "$argument" ] || die "no readable file $argument: give text files"
      ;;
  esac
done
[ ${#train[@]} -gt 0 ] && [ $valids -gt 0 ] || die "no text for training or validation; $usage"

# What OUT was made from, in a form that can be compared: digest, split, name.
describe_sources() {
  local file number
  echo "vocabulary $VOCAB_SIZE $NORMALIZATION"
  for file in "${train[@]}"; do
    echo "$(digest "$file") train $(basename "$file")"
  done
  for number in "${!files[@]}"; do
    echo "$(digest "${files[$number]}") ${splits[number + 1]} $(basename "${files[$number]}")"
  done
}

# unpack_split SPLIT FILE...
unpack_split() {
  [ -e "$OUT/$1.txt" ] || python "$COMMON/pieces.py" unpack "$OUT/$1.txt" "${@:2}"
}

encode_split() {
  [ -e "$OUT/$1.pieces" ] || python "$COMMON/pieces.py" encode "$OUT/spm.model" "$OUT/$1.txt" "$OUT/$1.pieces"
}

mkdir -p "$OUT"
sources=$(describe_sources)
if [ -e "$OUT/sources.txt" ] && [ "$sources" != "$(cat "$OUT/sources.txt")" ]; then
  say "the text or the vocabulary's settings have changed: $OUT is made again"
  rm -f "$OUT/dict.txt" # first: it says that the rest is there
  rm -f "$OUT"/{train,valid,test}*.{txt,pieces,bin,idx} "$OUT/spm.model"
fi
if [ -e "$OUT/dict.txt" ]; then
  say "$OUT is ready"
  exit 0
fi
trap 'rm -rf "$OUT/binarised.tmp" "$OUT/dict.tmp"' EXIT
echo "$sources" >"$OUT/sources.txt" || die "no room to write in $OUT: make room and run this again"

unpack_split train "${train[@]}"
for number in "${!files[@]}"; do
  unpack_split "${splits[number + 1]}" "${files[$number]}"
done

if [ ! -e "$OUT/spm.model" ]; then
  say "vocabulary of $VOCAB_SIZE pieces, learned from the training text (a minute for 50 MB)"
  python "$COMMON/pieces.py" vocabulary "$OUT/train.txt" "$OUT/spm" "$VOCAB_SIZE" "$NORMALIZATION"
fi
for split in "${splits[@]}"; do
  encode_split "$split"
done

# The vocabulary itself is the dictionary: made from the pieces in the text it would also hold
# every rare character that the vocabulary lacks.
say "binarising"
binarised=$OUT/binarised.tmp
rm -rf "$binarised"
python "$COMMON/pieces.py" dictionary "$OUT/spm.model" "$OUT/dict.tmp"
# prefixes KIND: of the splits that begin so, with commas
prefixes() { printf '%s\n' "${splits[@]}" | sed -n "s|^$1.*|$OUT/&.pieces|p" | paste -sd,; }
others=(--validpref "$(prefixes valid)")
[ $tests -eq 0 ] || others+=(--testpref "$(prefixes test)")
preprocess "$OUT/preprocess.log" --only-source --srcdict "$OUT/dict.tmp" --destdir "$binarised" --workers 1 \
  --trainpref "$OUT/train.pieces" "${others[@]}"
mv "$binarised"/*.bin "$binarised"/*.idx "$OUT"
mv "$binarised/dict.txt" "$OUT"      # last: it says that the rest is there
rm -rf "$binarised" "$OUT/dict.tmp" "$OUT"/{train,valid,test}*.{txt,pieces}
say "ready: $OUT (splits ${splits[*]})"
