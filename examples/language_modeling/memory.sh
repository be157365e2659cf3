# tuned.sh, trained with a memory of one segment: streams of text instead of shuffled blocks.
. "$(dirname "${BASH_SOURCE[0]}")/tuned.sh"
RUNS=runs/language_modeling_memory
MEMORY=128
LENGTHS=                   # blocks are scored without a memory
LEARNING_RATES="2e-3 4e-3 8e-3 16e-3" # with 32e-3 all fail, and gcdf is as good with 4e-3 as with 8e-3
