#!/usr/bin/env bash
# Raw text -> vocabulary -> binarised data that fairseq-train reads.
#
#   bash examples/roberta_pretraining/prepare.sh [--out OUT] [--workers N] [--tupe-compat] FILE|FOLDER...
#   bash examples/roberta_pretraining/prepare.sh [--out OUT] [--workers N] [--tupe-compat] [--offline FOLDER]
#
# Text: plain, an empty line between documents, or JSON lines with "text"; also .xz, .gz, .bz2, .zst.
# Without files, those of TEXTS in settings.sh, from the network or from FOLDER (downloads.txt).
# OUT: $DATA of settings.sh. Run it again at any time, also after kill -9: what is done is skipped; changed text or settings
# start over. What comes out does not depend on the number of workers (processes).
. "$(dirname "$0")/../common/recipe.sh"
read_settings
export PYTHONPATH=$HERE:$COMMON:$PYTHONPATH

usage="usage: prepare.sh [--out OUT] [--workers N] [--tupe-compat] FILE... (or, without files, [--offline FOLDER])"

# fetch FOLDER NAME...: what downloads.txt lists under these names
fetch() { python "$HERE/fetch.py" "$HERE/downloads.txt" "$1" "$offline" "${@:2}"; }

# The text of settings.sh -> `files`. Wikipedia's dump is XML with markup, which a program of its own turns into text.
own_texts() {
  local name extracted
  for name in $TEXTS; do
    case $name in
      *.xml.bz2) command -v wikiextractor >/dev/null || [ -d "$OUT/own/$name.text" ] ||
        die "$name wants the program wikiextractor (pip install wikiextractor, in another environment and on the PATH); or give text: $usage" ;;
    esac
  done
  fetch "$OUT/own" $TEXTS
  for name in $TEXTS; do
    case $name in
      *.xml.bz2)
        extracted=$OUT/own/$name.text
        if [ ! -d "$extracted" ]; then
          say "wikiextractor: the text of $name (hours)"
          rm -rf "$extracted.part"
          wikiextractor --json --no-templates --quiet --processes "$workers" -o "$extracted.part" "$OUT/own/$name" ||
            die "wikiextractor failed on $OUT/own/$name"
          mv "$extracted.part" "$extracted"
        fi
        files+=("$extracted")
        ;;
      *) files+=("$OUT/own/$name") ;;
    esac
  done
}

main() {
  local workers=$WORKERS offline= files=() name values=()
  OUT=$DATA
  while [ $# -gt 0 ]; do
    case $1 in
      --out) [ $# -gt 1 ] || die "--out: which folder? $usage"; OUT=$2; shift 2 ;;
      --workers) [ $# -gt 1 ] || die "--workers: how many? $usage"; workers=$2; shift 2 ;;
      --offline)
        [ -d "${2:-}" ] || die "--offline ${2:-}: no such folder; give one with the files of $HERE/downloads.txt"
        offline=$2
        shift 2
        ;;
      --tupe-compat) TUPE_COMPAT=yes; shift ;;
      -*) die "unknown flag $1; $usage" ;;
      *) files+=("$1"); shift ;;
    esac
  done
  [ "$TUPE_COMPAT" = no ] || LOWERCASE=yes MOSES_TOKENS=yes MERGES=$TUPE_MERGES
  [ -z "$offline" ] || [ ${#files[@]} -eq 0 ] || [ "$VOCABULARY" = gpt2 ] ||
    die "--offline is for what downloads.txt lists, and files were given: ${files[*]}"
  [ ${#files[@]} -gt 0 ] || own_texts
  # before hours of text
  [ "$VOCABULARY" != gpt2 ] || fetch "$OUT/gpt2" encoder.json vocab.bpe dict.txt
  LONGEST_LINE=$((TOKENS_PER_SAMPLE - 2))
  for name in VOCABULARY VOCAB_SIZE MERGES VOCAB_MEGABYTES CHARACTER_COVERAGE LOWERCASE MOSES_TOKENS TUPE_COMPAT VALID_EVERY LONGEST_LINE; do
    values+=("$name=${!name}")
  done
  python -m preparation "$OUT" "$workers" "${files[@]}" -- "${values[@]}"
}

# On one line, so that a run of hours does not see the file change.
main "$@"; exit
