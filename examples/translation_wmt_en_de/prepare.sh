#!/usr/bin/env bash
# The texts of WMT -> joint vocabulary -> binarised data that fairseq-train reads.
#
#   bash examples/translation_wmt_en_de/prepare.sh [OUT] [--offline FOLDER]
#   SETTINGS=examples/translation_wmt_en_de/at5.sh bash examples/translation_wmt_en_de/prepare.sh
#
# FOLDER holds texts or archives under the names in downloads.txt; without it they are downloaded.
# OUT: $DATA of settings.sh. Run it again at any time: what is done is skipped.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

offline= arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --offline)
      [ -d "${2:-}" ] || { echo "prepare.sh: error: --offline ${2:-}: no such folder; give one with the texts or archives of downloads.txt" >&2; exit 1; }
      offline=$2
      shift 2
      ;;
    *)
      arguments+=("$1")
      shift
      ;;
  esac
done
set -- "${arguments[@]}"

own_texts() {
  local folder=$1 text files=()
  [ "$TEXT" != tokenised ] || files=("truecase-model.$SOURCE" "truecase-model.$TARGET")
  # the small ones first: what is missing is then known soon
  for text in $VALID_TEXT $TEST_TEXTS $TRAIN_TEXTS; do
    files+=("$text.$SOURCE" "$text.$TARGET")
  done
  python "$HERE/fetch.py" "$HERE/downloads.txt" "$folder" "$offline" "${files[@]}"
  local tests_folder=$folder
  if [ "$TEXT" = tokenised ]; then
    # shellcheck disable=SC2086  # lists of names
    python "$HERE/fetch.py" tokenise "$folder" "$SOURCE,$TARGET" $VALID_TEXT $TEST_TEXTS
    tests_folder=$folder/tokenised
  fi
  texts=(--train)
  for text in $TRAIN_TEXTS; do
    texts+=("$folder/$text")
  done
  texts+=(--valid "$tests_folder/$VALID_TEXT" --test)
  for text in $TEST_TEXTS; do
    texts+=("$tests_folder/$text")
  done
}

. "$HERE/../translation_common/prepare.sh"
