# tuned.sh, trained with a memory of one segment: streams of text instead of shuffled blocks.
. "$(dirname "${BASH_SOURCE[0]}")/tuned.sh"
RUNS=runs/language_modeling_memory
MEMORY=128
LENGTHS=                   # blocks are scored without a memory
