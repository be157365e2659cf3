#!/usr/bin/env bash
# Trains and evaluates one masked language model. docs/recipes.md has what all recipes share, such as resuming and `command`.
#
#   bash examples/roberta_small/run.sh train|command|validate|evaluate|fill-mask ENCODING [...]
#   bash examples/roberta_small/run.sh report [FOLDER]      # all runs, into FOLDER (default: $RUNS)
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"

training_command() { # [flags of fairseq-train]
  local precision start=() model=()
  # vectors of these outweigh the tokens otherwise; a model that starts from another one has its embeddings
  case ${START_FROM:-/$encoding-seed} in */sinusoidal-seed* | */shape-seed*) model=(--scale-embedding) ;; esac
  shared_flags
  precision_flags
  if [ -n "$START_FROM" ]; then
    warm_start=(python -m fairseq_relpos warm-start "$START_FROM" "$run/start.pt" --arch "roberta_$encoding" --seed "$SEED")
    start=(--finetune-from-model "$run/start.pt")
  fi
  training=(fairseq-train "$DATA"
    --user-dir "$ROOT/fairseq_relpos" --arch "roberta_$encoding" "${model[@]}"
    --task masked_lm --criterion "$CRITERION"
    --tokens-per-sample "$TOKENS_PER_SAMPLE" --max-positions "$TOKENS_PER_SAMPLE"
    --sample-break-mode "$SAMPLE_BREAK_MODE"
    --encoder-layers "$LAYERS" --encoder-embed-dim "$EMBED_DIM"
    --encoder-ffn-embed-dim "$FFN_DIM" --encoder-attention-heads "$HEADS"
    --dropout "$DROPOUT" --attention-dropout "$DROPOUT"
    "${adam[@]}" "${linear[@]}" "${checkpoints[@]}" --keep-interval-updates 1 "${logs[@]}"
    --max-tokens "$TOKENS_PER_UPDATE" --seed "$SEED" --num-workers 0 --valid-subset "$(splits valid)"
    --distributed-world-size 1 # fairseq would take all GPUs, and multiply the batch
    "${precision[@]}" "${start[@]}" "$@")
}

conditions() { data_conditions; start_condition; }

# The loss of fairseq-validate (there in bits), and that with the tokens of each block permuted; of the texts for tests, too
validate() { order_gap --split "$(splits valid test)" "$@"; }

evaluate() {
  train "$@"
  [ "$run/order_gap.json" -nt "$checkpoint" ] || validate
}

fill_mask() { # [TEXT with <mask>]...
  need_data
  need_checkpoint
  [ $# -gt 0 ] || set -- "${MASKED_SENTENCES[@]}"
  errors_in "$run/fill_mask.log" python "$HERE/fill_mask.py" "$checkpoint" "$DATA" "$@"
}

report() { write_report "$COMMON/masked_lm_report.py" "$1"; }

act "train command validate evaluate fill-mask" "$@"; exit
