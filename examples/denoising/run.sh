#!/usr/bin/env bash
# Pretrains one BART. docs/recipes.md has what all recipes share, such as resuming and `command`.
#
#   bash examples/denoising/run.sh train|command|validate ENCODING [...]
#   bash examples/denoising/run.sh report [FOLDER]      # all runs compared, and their losses, into FOLDER (default: $RUNS)
#
# ../translation_small starts from here with SETTINGS=translation.sh.
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"

# flags of the noise that the model removes -> `noise`
noise_flags() {
  noise=(--task denoising --tokens-per-sample "$TOKENS_PER_SAMPLE" --sample-break-mode "$SAMPLE_BREAK_MODE"
    --mask "$MASK" --mask-length span-poisson --poisson-lambda "$SPAN_LENGTH" --replace-length 1
    --mask-random "$RANDOM_SHARE" --rotate 0 --bpe sentencepiece) # which says where words begin
}

training_command() { # [flags of fairseq-train]
  local noise
  shared_flags
  noise_flags
  training=(fairseq-train "$DATA"
    --user-dir "$ROOT/fairseq_relpos" --arch "bart_$encoding$SIZE" "${noise[@]}" --criterion cross_entropy
    --encoder-layers "$LAYERS" --decoder-layers "$LAYERS"
    --encoder-embed-dim "$EMBED_DIM" --decoder-embed-dim "$EMBED_DIM"
    --encoder-ffn-embed-dim "$FFN_DIM" --decoder-ffn-embed-dim "$FFN_DIM"
    --encoder-attention-heads "$HEADS" --decoder-attention-heads "$HEADS"
    --max-source-positions "$MAX_POSITIONS" --max-target-positions "$MAX_POSITIONS"
    --dropout "$DROPOUT" --attention-dropout "$ATTENTION_DROPOUT" "${MODEL_FLAGS[@]}"
    "${adam[@]}" "${linear[@]}" "${checkpoints[@]}" --keep-interval-updates 1 "${logs[@]}"
    --max-tokens "$TOKENS_PER_UPDATE" --seed "$SEED" --num-workers 0 --valid-subset "$(splits valid)"
    --distributed-world-size 1 # fairseq would take all GPUs, and multiply the batch
    "$@")
}

validate() { # [flags of fairseq-validate]: the loss of what is restored, in bits
  local noise
  need_data
  need_checkpoint
  noise_flags
  logged "$run/validate.log" fairseq-validate "$DATA" --user-dir "$ROOT/fairseq_relpos" "${noise[@]}" \
    --criterion cross_entropy --path "$checkpoint" --max-tokens "$TOKENS_PER_UPDATE" \
    --required-batch-size-multiple 1 --valid-subset "$(splits valid test)" --num-workers 0 "$@"
  grep -o 'valid on .*' "$run/validate.log" || tail -n 1 "$run/validate.log"
}

report() {
  local baseline=() runs=("$RUNS"/*-seed*/)
  [ -d "${runs[0]}" ] || die "no run in $RUNS: run.sh train ENCODING first"
  ! compgen -G "$RUNS/$BASELINE-seed*" >/dev/null || baseline=(--baseline "$BASELINE")
  mkdir -p "$1"
  told=$(python -m fairseq_relpos compare "${runs[@]}" "${baseline[@]}") # a refusal leaves the report of before
  tee "$1/RESULTS.md" <<<"$told"
  python -m fairseq_relpos plot loss "${runs[@]}" --output "$1/losses.png"
}

act "train command validate" "$@"; exit
