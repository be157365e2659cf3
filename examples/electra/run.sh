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
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/../common/recipe.sh"
end_in_order "$@"
read_settings

need_data() { [ -e "$DATA/dict.txt" ] || die "no data in $DATA: run prepare.sh first, or set DATA"; }

# All validation texts; one where the data are still to come.
valid_splits() {
  [ -e "$DATA/dict.txt" ] || { echo valid; return; }
  (cd "$DATA" && printf '%s\n' valid*.bin) | sed 's/\.bin$//' | sort -V | paste -sd,
}

# training_command [flags]: the whole of it -> `training`
training_command() {
  local ranks launch precision order_gap=()
  refuse_batch_flags "GPUS and UPDATE_FREQ say" ${MODEL_FLAGS[@]+"${MODEL_FLAGS[@]}"} "$@"
  [[ $GPUS =~ ^[0-9]+$ ]] || die "GPUS=$GPUS: give a number"
  ranks=$((GPUS > 1 ? GPUS : 1))
  [ $((BATCH % (ranks * UPDATE_FREQ))) -eq 0 ] ||
    die "BATCH=$BATCH is no multiple of $ranks processes x UPDATE_FREQ=$UPDATE_FREQ: give one that is"
  precision=$(precision_flags)
  [ "$ORDER_GAP" = no ] || order_gap=(--order-gap)
  launcher "$ranks"
  training=("${launch[@]}" "$DATA"
    --user-dir "$ROOT/fairseq_relpos" --arch "electra_$encoding$SIZE" --generator-size "$GENERATOR_SIZE"
    ${MODEL_FLAGS[@]+"${MODEL_FLAGS[@]}"}
    --task masked_lm --mask-prob "$MASK_PROB" --leave-unmasked-prob "$LEAVE_UNMASKED_PROB" --random-token-prob 0
    --criterion electra --generator-weight "$GENERATOR_WEIGHT" --discriminator-weight "$DISCRIMINATOR_WEIGHT"
    ${order_gap[@]+"${order_gap[@]}"}
    --tokens-per-sample "$TOKENS_PER_SAMPLE" --max-positions "$TOKENS_PER_SAMPLE"
    --sample-break-mode "$SAMPLE_BREAK_MODE"
    --dropout "$DROPOUT" --attention-dropout "$DROPOUT"
    --optimizer adam --adam-betas "$ADAM_BETAS" --adam-eps "$ADAM_EPS"
    --weight-decay "$WEIGHT_DECAY" --clip-norm "$CLIP_NORM"
    --lr "$LEARNING_RATE" --lr-scheduler polynomial_decay
    --warmup-updates "$WARMUP_UPDATES" --total-num-update "$UPDATES" --max-update "$UPDATES"
    --batch-size $((BATCH / ranks / UPDATE_FREQ)) --update-freq "$UPDATE_FREQ" $precision
    --seed "$SEED" --num-workers "$LOADERS"
    # the default, 8, would silently leave samples out of every validation
    --required-batch-size-multiple 1 --valid-subset "$(valid_splits)"
    --validate-interval-updates "$VALIDATE_EVERY" --save-interval-updates "$VALIDATE_EVERY"
    --validate-interval 1000000 --save-interval 1000000 --no-epoch-checkpoints
    --keep-interval-updates 1 --keep-interval-updates-pattern "$KEEP_EVERY"
    --save-dir "$run" --log-format json --log-interval "$LOG_EVERY" --log-file "$run/train.log"
    --distributed-world-size "$ranks" # fairseq would take all GPUs, and multiply the batch
    "$@")
  [ "$GPUS" -gt 0 ] || training+=(--cpu)
}

train() {
  local place
  need_data
  training_command "$@"
  [ -d "$run" ] || need_encoding
  CONDITIONS=$(data_conditions; echo "batch $BATCH")
  place_of_node
  lock "$place"
  train_to_the_end "$place" "$encoding, seed $SEED" "${training[@]}"
  keep_with_the_run
}

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

report() {
  report_settings
  python "$HERE/report.py" "$1" "${values[@]}" "CONDITIONS=$([ ! -e "$DATA/dict.txt" ] || data_conditions)"
  pack_runs "$RUNS" "$1"
}

# On one line, so that a run of days does not see the file change.
act "train command export-discriminator evaluate" "$@"; exit
