#!/usr/bin/env bash
# Train and look at one run: a position encoding (`fairseq-relpos list`) and a seed.
#
#   bash examples/language_modeling/run.sh command ENCODING [flags of fairseq-train]      # prints what train runs
#   bash examples/language_modeling/run.sh train ENCODING [flags of fairseq-train]
#   bash examples/language_modeling/run.sh score ENCODING              # the text, with each memory of EVALUATIONS
#   bash examples/language_modeling/run.sh extrapolate ENCODING [flags of fairseq-relpos extrapolation]
#   bash examples/language_modeling/run.sh evaluate ENCODING [flags of fairseq-train]   # of all these what is missing
#   bash examples/language_modeling/run.sh report [FOLDER]
#
# train goes on where it was stopped: SIGTERM, SIGUSR1 and Ctrl-C let it save and end with exit code 75. report: all runs,
# into FOLDER (default: $RUNS); in another folder also runs.tar.xz, what the report was made of.
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"

need_data() {
  [ -e "$DATA/dict.txt" ] && [ -e "$DATA/counts.json" ] ||
    die "no data in $DATA: run prepare.sh first, or set DATA to the folder that it has written"
  [[ "$(head -n 1 "$DATA/sources.txt")" = "vocabulary $VOCABULARY"* ]] ||
    die "$DATA has no $VOCABULARY for a vocabulary: run prepare.sh with these settings, or set DATA"
}

# training_command [flags]: the whole of it -> `training`
training_command() {
  local ranks rows launch precision device hparams schedule norm=() task=(--task language_modeling)
  local output=(--criterion cross_entropy --share-decoder-input-output-embed)
  divide_batch "${MODEL_FLAGS[@]}" "$@"
  hparams
  case $SCHEDULE in
    polynomial_decay) schedule=(--total-num-update "$UPDATES") ;;
    cosine) schedule=(--lr-period-updates $((UPDATES - WARMUP_UPDATES))) ;;
    *) die "SCHEDULE=$SCHEDULE: give polynomial_decay or cosine" ;;
  esac
  case $NORM in
    pre) norm=(--decoder-normalize-before) ;;
    post) ;;
    *) die "NORM=$NORM: give pre or post" ;;
  esac
  # legacy_ddp: fairseq's adaptive_loss wants it
  [ -z "$BANDS" ] || output=(--criterion adaptive_loss --ddp-backend legacy_ddp
    --adaptive-input --adaptive-input-cutoff "$BANDS" --adaptive-input-factor 1
    --adaptive-softmax-cutoff "$BANDS" --adaptive-softmax-factor 1 --tie-adaptive-weights --tie-adaptive-proj)
  # without a memory blocks are shuffled, and --batch-size is that of a pass; lm_streams divides its streams itself
  [ "$MEMORY" -eq 0 ] || { task=(--task lm_streams --memory-length "$MEMORY"); rows=$((BATCH / ranks)); }
  training=("${launch[@]}" "$DATA"
    --user-dir "$ROOT/fairseq_relpos" --arch "transformer_lm_$encoding$SIZE"
    "${task[@]}" --tokens-per-sample "$TOKENS_PER_SAMPLE" --sample-break-mode none
    --decoder-layers "$LAYERS" --decoder-attention-heads "$HEADS" --decoder-ffn-embed-dim "$FFN_DIM"
    --decoder-embed-dim "$EMBED_DIM" --decoder-input-dim "$EMBED_DIM" --decoder-output-dim "$EMBED_DIM"
    "${norm[@]}" "${output[@]}"
    --dropout "$DROPOUT" --attention-dropout "$ATTENTION_DROPOUT" --activation-dropout "$ACTIVATION_DROPOUT"
    "${MODEL_FLAGS[@]}" "${hparams[@]}"
    "${adam[@]}" "${checkpoints[@]}" --keep-interval-updates 1 "${logs[@]}"
    --lr-scheduler "$SCHEDULE" --warmup-updates "$WARMUP_UPDATES" "${schedule[@]}"
    --max-update "$UPDATES" --batch-size "$rows" --update-freq "$UPDATE_FREQ" "${precision[@]}"
    --seed "$SEED" --num-workers "$LOADERS"
    --distributed-world-size "$ranks"
    "$@" "${device[@]}")
}

conditions() { data_conditions; echo "batch $BATCH"; }

score() {
  need_data
  need_checkpoint
  say "$encoding, seed $SEED: scoring $DATA with memories $EVALUATIONS"
  errors_in "$run/scores.log" python "$HERE/score.py" "$checkpoint" "$DATA" "$run/scores.json" "$SAME_LENGTH" \
    "$EVALUATED_STREAMS" $EVALUATIONS
}

extrapolate() {
  need_data
  need_checkpoint
  say "$encoding, seed $SEED: blocks of $LENGTHS tokens"
  errors_in "$run/extrapolation.log" python -m fairseq_relpos extrapolation "$checkpoint" "$DATA" --split test \
    --lengths "${LENGTHS// /,}" --json "$run/extrapolation.json" "$@" >"$run/extrapolation.txt"
}

evaluate() {
  train "$@"
  is_made scores.json "$EVALUATIONS same length $SAME_LENGTH, $EVALUATED_STREAMS streams" score
  [ -z "$LENGTHS" ] || is_made extrapolation.json "$LENGTHS" extrapolate
}
# is_made FILE HOW ACTION: unless FILE is newer than the checkpoint and was made in this way
is_made() {
  if [ "$run/$1" -nt "$checkpoint" ] && [ "$(cat "$run/$1.how" 2>/dev/null)" = "$2" ]; then
    return
  fi
  rm -f "$run/$1.how"
  "$3"
  echo "$2" >"$run/$1.how"
}

report() { write_report "$HERE/report.py" "$1" VOCABULARY EVALUATIONS SAME_LENGTH LENGTHS EVALUATED; }

# On one line, so that a run of hours does not see the file change.
act "train command score extrapolate evaluate" "$@"; exit
