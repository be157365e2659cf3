#!/usr/bin/env bash
# Train and export one run: a position encoding (`fairseq-relpos list`) and a seed.
#
#   bash examples/electra/run.sh command ENCODING [flags of fairseq-train]      # prints what train runs
#   bash examples/electra/run.sh train ENCODING [flags of fairseq-train]
#   bash examples/electra/run.sh export-discriminator ENCODING     # it: discriminator.pt, a roberta_ENCODING to fine-tune
#   bash examples/electra/run.sh evaluate ENCODING [flags of fairseq-train]   # both, each where it is not done
#   bash examples/electra/run.sh report [FOLDER]
#
# train goes on where it was stopped: SIGTERM, SIGUSR1 and Ctrl-C let it save and end with exit code 75.
# report: tables of all runs, into FOLDER (default: $RUNS).
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"

# training_command [flags]: the whole of it -> `training`
training_command() {
  local ranks rows launch precision device order_gap=()
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

export_discriminator() {
  [ -e "$checkpoint" ] || die "no checkpoint $checkpoint: run.sh train $encoding first"
  errors_in "$run/export.log" python -m fairseq_relpos export-discriminator "$checkpoint" "$run/discriminator.pt" \
    >"$run/export.txt.part"
  mv "$run/export.txt.part" "$run/export.txt" # which is packed with the report, as the discriminator is not
  say "to be fine-tuned: $run/discriminator.pt"
}

evaluate() {
  train "$@"
  [ "$run/discriminator.pt" -nt "$checkpoint" ] || export_discriminator
}

report() { write_report "$HERE/report.py" "$1"; }

# On one line, so that a run of days does not see the file change.
act "train command export-discriminator evaluate" "$@"; exit
