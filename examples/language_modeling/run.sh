#!/usr/bin/env bash
# Trains and scores one language model. docs/recipes.md has what all recipes share, such as resuming and `command`.
#
#   bash examples/language_modeling/run.sh train|command|score|extrapolate|evaluate ENCODING [...]
#   bash examples/language_modeling/run.sh report [FOLDER]      # all runs, into FOLDER (default: $RUNS)
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"

need_data() {
  [ -e "$DATA/dict.txt" ] && [ -e "$DATA/counts.json" ] ||
    die "no data in $DATA: run prepare.sh first, or set DATA to the folder that it has written"
  [[ "$(head -n 1 "$DATA/sources.txt")" = "vocabulary $VOCABULARY"* ]] ||
    die "$DATA has no $VOCABULARY for a vocabulary: run prepare.sh with these settings, or set DATA"
}

training_command() { # [flags of fairseq-train]
  local ranks rows launch precision device hparams schedule norm=() task=(--task language_modeling)
  local output=(--criterion cross_entropy --share-decoder-input-output-embed)
  shared_flags
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

score() { # the text, with each memory of EVALUATIONS
  need_data
  need_checkpoint
  lock "$run"
  say "$encoding, seed $SEED: scoring $DATA with memories $EVALUATIONS"
  errors_in "$run/scores.log" python "$HERE/score.py" "$checkpoint" "$DATA" "$run/scores.json" "$SAME_LENGTH" \
    "$EVALUATED_STREAMS" $EVALUATIONS
  echo "$EVALUATIONS $HOW_SCORED" >"$run/scores.json.how"
}
other=${EVALUATED#checkpoint_last.pt} # the notes name another checkpoint than that of settings.sh
HOW_SCORED="same length $SAME_LENGTH, $EVALUATED_STREAMS streams${other:+, $other}"

extrapolate() { # [flags of fairseq-relpos extrapolation]
  need_data
  need_checkpoint
  lock "$run"
  say "$encoding, seed $SEED: blocks of $LENGTHS tokens"
  rm -f "$run/extrapolation.json.how" # the file may become one with some of the lengths
  errors_in "$run/extrapolation.log" python -m fairseq_relpos extrapolation "$checkpoint" "$DATA" --split test \
    --lengths "${LENGTHS// /,}" --json "$run/extrapolation.json" "$@" >"$run/extrapolation.txt"
  echo "$LENGTHS${other:+, $other}${*:+, $*}" >"$run/extrapolation.json.how"
}

evaluate() {
  train "$@"
  is_current scores.json.how "$EVALUATIONS $HOW_SCORED" "$checkpoint" || score
  [ -z "$LENGTHS" ] || is_current extrapolation.json.how "$LENGTHS${other:+, $other}" "$checkpoint" || extrapolate
}

report() { write_report "$HERE/report.py" "$1" VOCABULARY EVALUATIONS LENGTHS EVALUATED HOW_SCORED; }

act "train command score extrapolate evaluate" "$@"; exit # on one line, so that a run of hours does not see the file change
