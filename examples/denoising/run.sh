#!/usr/bin/env bash
# Pretrain one BART: a position encoding (`fairseq-relpos list`) and a seed.
#
#   bash examples/denoising/run.sh command ENCODING [flags of fairseq-train]      # prints what train runs
#   bash examples/denoising/run.sh train ENCODING [flags of fairseq-train]
#   bash examples/denoising/run.sh validate ENCODING [flags of fairseq-validate]
#   bash examples/denoising/run.sh report [FOLDER]
#
# train goes on where it was stopped: SIGTERM, SIGUSR1 and Ctrl-C let it save and end with exit code 75.
# validate: the loss of what fairseq-validate restores, in bits. report: the losses of all runs as a table and a
# picture, into FOLDER (default: $RUNS). ../translation_small goes on from here with SETTINGS=translation.sh.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/../common/recipe.sh"
end_in_order "$@"
read_settings

need_data() {
  [ -e "$DATA/dict.txt" ] ||
    die "no data in $DATA: run prepare.sh $DATA --train FILE... --valid FILE... first, or set DATA"
}

# What the model restores -> `noise`
noise_flags() {
  noise=(--task denoising --tokens-per-sample "$TOKENS_PER_SAMPLE" --sample-break-mode "$SAMPLE_BREAK_MODE"
    --mask "$MASK" --mask-length span-poisson --poisson-lambda "$SPAN_LENGTH" --replace-length 1
    --mask-random "$RANDOM_SHARE" --rotate 0)
}

# training_command [flags]: the whole of it -> `training`
training_command() {
  local noise
  noise_flags
  training=(fairseq-train "$DATA"
    --user-dir "$ROOT/fairseq_relpos" --arch "bart_$encoding$SIZE" "${noise[@]}" --criterion cross_entropy
    --encoder-layers "$LAYERS" --decoder-layers "$LAYERS"
    --encoder-embed-dim "$EMBED_DIM" --decoder-embed-dim "$EMBED_DIM"
    --encoder-ffn-embed-dim "$FFN_DIM" --decoder-ffn-embed-dim "$FFN_DIM"
    --encoder-attention-heads "$HEADS" --decoder-attention-heads "$HEADS"
    --max-source-positions "$MAX_POSITIONS" --max-target-positions "$MAX_POSITIONS"
    --dropout "$DROPOUT" --attention-dropout "$ATTENTION_DROPOUT" ${MODEL_FLAGS[@]+"${MODEL_FLAGS[@]}"}
    --optimizer adam --adam-betas "$ADAM_BETAS" --adam-eps "$ADAM_EPS"
    --weight-decay "$WEIGHT_DECAY" --clip-norm "$CLIP_NORM"
    --lr "$LEARNING_RATE" --lr-scheduler polynomial_decay
    --warmup-updates "$WARMUP_UPDATES" --total-num-update "$UPDATES" --max-update "$UPDATES"
    --max-tokens "$TOKENS_PER_UPDATE" --seed "$SEED" --num-workers 0
    # the default, 8, would silently leave samples out of every validation
    --required-batch-size-multiple 1 --valid-subset "$(splits valid)"
    --validate-interval-updates "$VALIDATE_EVERY" --save-interval-updates "$VALIDATE_EVERY"
    --validate-interval 1000000 --save-interval 1000000
    --keep-interval-updates 1 --no-epoch-checkpoints
    --save-dir "$run" --log-format json --log-interval "$LOG_EVERY" --log-file "$run/train.log"
    --distributed-world-size 1 # fairseq would take all GPUs, and multiply the batch
    "$@")
}

train() {
  need_data
  training_command "$@"
  [ -d "$run" ] || need_encoding
  CONDITIONS=$(data_conditions)
  lock "$run"
  train_to_the_end "$run" "$encoding, seed $SEED" "${training[@]}"
}

validate() {
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
  python -m fairseq_relpos plot loss "${runs[@]}" ${baseline[@]+"${baseline[@]}"} --output "$1/losses.png"
}

act "train command validate" "$@"; exit
