# MR in RESULTS.md: read after small.sh.
. "$(dirname "${BASH_SOURCE[0]}")/trec.sh"
MAX_EPOCHS=2
MAX_LENGTH=32
