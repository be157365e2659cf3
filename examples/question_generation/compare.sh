#!/usr/bin/env bash
# Train several encodings with several seeds on the same data, generate and score questions, and write the tables.
#
#   bash examples/question_generation/compare.sh [ENCODING...]       # default: COMPARED in settings.sh
#
# Run it again at any time: it goes on where it stopped.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/../common/recipe.sh"
end_in_order "$@"
read_settings
compare "$@"; exit
