# Parallel text -> joint vocabulary -> binarised data. Sourced by prepare.sh of a recipe, with its
# arguments: [OUT] --train PREFIX... --valid PREFIX --test PREFIX...
# Without texts, own_texts FOLDER of the recipe makes some and says in `texts` what they are.
. "$HERE/../common/recipe.sh"
read_settings

usage="usage: prepare.sh [OUT] --train PREFIX... --valid PREFIX --test PREFIX..., where PREFIX.$SOURCE and PREFIX.$TARGET are text (also .xz, .gz)"

corpus() { python "$COMMON/../translation_common/corpus.py" "$@"; }

# file_of PREFIX LANGUAGE: what corpus.py will read
file_of() {
  local found=() ending
  for ending in "" .xz .gz; do
    [ ! -f "$1.$2$ending" ] || found+=("$1.$2$ending")
  done
  [ ${#found[@]} -gt 0 ] || die "no file $1.$2, $1.$2.xz or $1.$2.gz: a PREFIX stands for both sides of a parallel text"
  [ ${#found[@]} -eq 1 ] || die "${found[*]}: which one? keep one of them"
  [ -r "${found[0]}" ] || die "${found[0]} cannot be read"
  echo "${found[0]}"
}

# What OUT was made from, in a form that can be compared: digest, split, name.
describe_sources() {
  local split prefix language file
  [ -z "${VOCABULARY:-}" ] || echo "vocabulary $(digest "$VOCABULARY/spm.model" "$VOCABULARY/dict.txt")"
  [ -n "${VOCABULARY:-}" ] || echo "vocabulary $VOCAB_SIZE $NORMALIZATION coverage $CHARACTER_COVERAGE sentences $VOCAB_SENTENCES threshold $VOCAB_THRESHOLD joined $JOINED_DICTIONARY"
  echo "filter $MAX_PIECES pieces $MAX_RATIO : 1"
  for split in "${splits[@]}"; do
    while IFS= read -r prefix; do
      for language in "$SOURCE" "$TARGET"; do
        file=$(file_of "$prefix" "$language")
        echo "$(sha256sum <"$file" | cut -d' ' -f1) $split $(basename "$file")"
      done
    done <<<"${prefixes[$split]}"
  done
  for split in "${joined[@]}"; do
    echo "joined $split $(basename "${prefixes[test]}")-joined${times[$split]}.$SOURCE"
  done
}

binarise() {
  local work=$OUT/work split language arguments=() groups=("$SOURCE" "$TARGET") both=$SOURCE,$TARGET
  rm -rf "$work"
  trap 'rm -rf "$OUT/work"' EXIT
  mkdir -p "$work"
  for split in "${splits[@]}"; do
    mapfile -t arguments <<<"${prefixes[$split]}"
    corpus unpack "$work/$split" "$both" "${arguments[@]}"
  done
  if [ -n "${VOCABULARY:-}" ]; then
    say "vocabulary of $VOCABULARY for $SOURCE and $TARGET"
    cp "$VOCABULARY/spm.model" "$work"
    for language in "$SOURCE" "$TARGET"; do cp "$VOCABULARY/dict.txt" "$work/dict.$language.txt"; done
  else
    say "vocabulary of $VOCAB_SIZE pieces for $SOURCE and $TARGET together, learned from the training text"
    corpus vocabulary "$work" "$VOCAB_SIZE" "$NORMALIZATION" "$CHARACTER_COVERAGE" "$VOCAB_SENTENCES" "$both"
    [ "$JOINED_DICTIONARY" != yes ] || groups=("$both")
    corpus dictionary "$work" "$VOCAB_THRESHOLD" "${groups[@]}"
  fi
  corpus encode "$work" train "$both" "$MAX_PIECES" "$MAX_RATIO"
  for split in "${joined[@]}"; do
    corpus join "$work" test "$split" "$both" "${times[$split]}" "$MAX_POSITIONS"
  done
  splits+=("${joined[@]}")
  for split in "${splits[@]:1}"; do
    corpus encode "$work" "$split" "$both"
  done

  say "binarising"
  arguments=(--srcdict "$work/dict.$SOURCE.txt" --joined-dictionary)
  [ "$JOINED_DICTIONARY" = yes ] || arguments=(--srcdict "$work/dict.$SOURCE.txt" --tgtdict "$work/dict.$TARGET.txt")
  local tests=("${splits[@]:2}")
  tests=("${tests[@]/#/$work/}")
  preprocess "$OUT/preprocess.log" --source-lang "$SOURCE" --target-lang "$TARGET" "${arguments[@]}" \
    --trainpref "$work/train.pieces" --validpref "$work/valid.pieces" \
    --testpref "$(IFS=,; echo "${tests[*]/%/.pieces}")" \
    --destdir "$work/bin" --workers "$WORKERS"
  mkdir -p "$OUT/text"      # what translations are compared with
  for split in "${splits[@]:2}"; do
    mv "$work/$split.$SOURCE" "$work/$split.$TARGET" "$OUT/text"
  done
  mv "$work/spm.model" "$work/bin/"*.bin "$work/bin/"*.idx "$work/bin/dict.$SOURCE.txt" "$OUT"
  mv "$work/bin/dict.$TARGET.txt" "$OUT"      # last: it says that the rest is there
}

main() {
  local kind= argument
  OUT=$DATA
  if [ $# -gt 0 ] && [[ $1 != -* ]]; then
    OUT=$1
    shift
  fi
  if [ $# -eq 0 ]; then
    mkdir -p "$OUT"
    own_texts "$OUT/own"
    set -- "${texts[@]}"
  fi
  declare -gA prefixes=()
  splits=(train valid)
  local tests=0
  for argument in "$@"; do
    case $argument in
      --train | --valid | --test) kind=${argument#--} ;;
      -*) die "unknown flag $argument; $usage" ;;
      *)
        case $kind in
          train) prefixes[train]+=${prefixes[train]:+$'\n'}$argument ;;
          valid)
            [ -z "${prefixes[valid]:-}" ] || die "two texts for validation, ${prefixes[valid]} and $argument: give one"
            prefixes[valid]=$argument
            ;;
          test)
            kind=test$tests
            [ "$tests" -gt 0 ] || kind=test
            prefixes[$kind]=$argument
            splits+=("$kind")
            tests=$((tests + 1))
            kind=test
            ;;
          *) die "$argument stands before --train, --valid and --test; $usage" ;;
        esac
        ;;
    esac
  done
  [ -n "${prefixes[train]:-}" ] && [ -n "${prefixes[valid]:-}" ] && [ $tests -gt 0 ] ||
    die "no text for training, validation or test; $usage"

  # test sets of joined sentences, and how many times the longest source of the training theirs exceed
  declare -gA times=()
  joined=()
  for argument in $JOINED; do
    [[ $argument =~ ^[1-9][0-9]*$ ]] || die "JOINED=$JOINED: give whole numbers of 1 or more, such as \"1 2\""
    joined+=("test$tests")
    times[test$tests]=$argument
    tests=$((tests + 1))
  done
  local sources
  [ -z "${VOCABULARY:-}" ] || { [ -e "$VOCABULARY/spm.model" ] && [ -e "$VOCABULARY/dict.txt" ]; } ||
    die "no spm.model and dict.txt in VOCABULARY=$VOCABULARY: give a folder that prepare.sh of a recipe has written"
  sources=$(describe_sources)
  mkdir -p "$OUT"
  if [ -e "$OUT/dict.$TARGET.txt" ]; then
    if [ "$sources" = "$(cat "$OUT/sources.txt" 2>/dev/null)" ]; then
      say "$OUT is ready"
      return
    fi
    say "the text or the vocabulary's settings have changed: $OUT is made again"
    rm -rf "$OUT"/{train,valid,test}*.{bin,idx} "$OUT"/dict.*.txt "$OUT/spm.model" "$OUT/text"
  fi
  binarise
  echo "$sources" >"$OUT/sources.txt"
  say "ready: $OUT (splits ${splits[*]})"
}

main "$@"; exit
