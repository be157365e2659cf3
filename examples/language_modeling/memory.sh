# tuned.sh, trained with a memory of one segment: streams of text instead of shuffled blocks.
. "$(dirname "${BASH_SOURCE[0]}")/tuned.sh"
RUNS=runs/language_modeling_memory
MEMORY=128
LENGTHS=                   # blocks are scored without a memory
LEARNING_RATES="4e-3 8e-3 16e-3" # without a memory 8e-3 is best for all
