#!/usr/bin/env bash
# Trains one ELECTRA and exports its discriminator. docs/recipes.md has what all recipes share, such as resuming and `command`.
#
#   bash examples/electra/run.sh train|command|export-discriminator|evaluate ENCODING [...]
#   bash examples/electra/run.sh report [FOLDER]      # all runs, into FOLDER (default: $RUNS)
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"

training_command() { # [flags of fairseq-train]
  local ranks rows launch precision device order_gap=()
  shared_flags
  divide_batch "${MODEL_FLAGS[@]}" "$@"
  [ "$ORDER_GAP" = no ] || order_gap=(--order-gap)
  training=("${launch[@]}" "$DATA"
    --user-dir "$ROOT/fairseq_relpos" --arch "electra_$encoding$SIZE" --generator-size "$GENERATOR_SIZE"
    "${MODEL_FLAGS[@]}"
    --task masked_lm --mask-prob "$MASK_PROB" --leave-unmasked-prob "$LEAVE_UNMASKED_PROB" --random-token-prob 0
    --criterion electra --generator-weight "$GENERATOR_WEIGHT" --discriminator-weight "$DISCRIMINATOR_WEIGHT"
    "${order_gap[@]}"
    --tokens-per-sample "$TOKENS_PER_SAMPLE" --max-positions "$TOKENS_PER_SAMPLE"
    --sample-break-mode "$SAMPLE_BREAK_MODE"
    --dropout "$DROPOUT" --attention-dropout "$DROPOUT"
    "${adam[@]}" "${linear[@]}" "${checkpoints[@]}"
    --keep-interval-updates 1 --keep-interval-updates-pattern "$KEEP_EVERY" "${logs[@]}"
    --batch-size "$rows" --update-freq "$UPDATE_FREQ" "${precision[@]}"
    --seed "$SEED" --num-workers "$LOADERS" --valid-subset "$(splits valid)"
    --distributed-world-size "$ranks" # fairseq would take all GPUs, and multiply the batch
    "$@" "${device[@]}")
}

conditions() { data_conditions; echo "batch $BATCH"; }

# discriminator.pt of the run: a roberta_ENCODING to fine-tune
export_discriminator() {
  [ -e "$checkpoint" ] || die "no checkpoint $checkpoint: run.sh train $encoding first"
  lock "$run"
  errors_in "$run/export.log" python -m fairseq_relpos export-discriminator "$checkpoint" "$run/discriminator.pt" \
    >"$run/export.txt.part"
  mv "$run/export.txt.part" "$run/export.txt" # which is packed with the report, as the discriminator is not
  say "to be fine-tuned: $run/discriminator.pt"
}

evaluate() {
  train "$@"
  [ "$run/discriminator.pt" -nt "$checkpoint" ] && [ "$run/export.txt" -nt "$checkpoint" ] || export_discriminator
}

report() { write_report "$HERE/report.py" "$1"; }

act "train command export-discriminator evaluate" "$@"; exit # on one line, so that a run of days does not see the file change
