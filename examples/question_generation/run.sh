#!/usr/bin/env bash
# Trains one model, whose decoder has the position encoding, and scores its questions. docs/recipes.md has what all recipes
# share, such as resuming and `command`.
#
#   bash examples/question_generation/run.sh train|command|generate|score|evaluate ENCODING [...]
#   bash examples/question_generation/run.sh report [FOLDER]      # all runs, into FOLDER (default: $RUNS)
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"

training_command() { # [flags of fairseq-train]
  local rows hparams=()
  shared_flags
  divide_over 1 "UPDATE_FREQ says" "${TRAIN_FLAGS[@]}" "$@"
  [ -z "${HPARAMS[$encoding]:-}" ] || hparams=(--position-hparams "${HPARAMS[$encoding]}")
  training=(fairseq-train "$DATA"
    --user-dir "$ROOT/fairseq_relpos" --arch "transformer_$encoding" --position-stacks decoder "${hparams[@]}"
    --task translation --source-lang src --target-lang tgt
    --encoder-layers "$ENCODER_LAYERS" --decoder-layers "$DECODER_LAYERS"
    --encoder-embed-dim "$EMBED_DIM" --decoder-embed-dim "$EMBED_DIM"
    --encoder-ffn-embed-dim "$FFN_DIM" --decoder-ffn-embed-dim "$FFN_DIM"
    --encoder-attention-heads "$HEADS" --decoder-attention-heads "$HEADS"
    --max-source-positions "$MAX_SOURCE" --max-target-positions "$MAX_TARGET"
    --dropout "$DROPOUT" --attention-dropout "$DROPOUT" "${MODEL_FLAGS[@]}"
    --criterion label_smoothed_cross_entropy --label-smoothing "$LABEL_SMOOTHING"
    "${adam[@]}" "${linear[@]}" "${checkpoints[@]}" --keep-interval-updates 1 "${logs[@]}"
    --batch-size "$rows" --update-freq "$UPDATE_FREQ" --seed "$SEED" --num-workers 0
    --distributed-world-size 1 # fairseq would take all GPUs, and multiply the batch
    "${TRAIN_FLAGS[@]}" "$@")
  [ -n "$START_FROM" ] || return 0
  warm_start=(python -m fairseq_relpos.finetuning.encoder_start "$START_FROM" "$run/start.pt" "${training[@]:1}")
  training+=("--finetune-from-model=$run/start.pt")
}

conditions() {
  data_conditions
  [ -z "$START_FROM" ] || # sources.txt has the digest of the pretraining's dictionary
    refuse_other_dictionary "$START_FROM" "$(cat "$DATA/sources.txt")"
  start_condition
}

# The sources of the data; the runs have a copy.
sources() { if [ -e "$DATA/sources.txt" ]; then echo "$DATA/sources.txt"; else echo "$RUNS/sources.txt"; fi; }

# The questions depend on this besides the weights; written to $run/decoded.
decoding() {
  echo "checkpoint $EVALUATED, split $SCORED"
  echo "beam $BEAM, length penalty $LENGTH_PENALTY, no $NO_REPEAT tokens twice, flags ${*:-none}"
  echo "text $(digest "$(sources)")"
}

generate() { # [flags of fairseq-generate]: SCORED.questions, a question a line
  need_data
  need_checkpoint
  [ -e "$DATA/$SCORED.src-tgt.src.idx" ] || die "SCORED=$SCORED: no such split in $DATA: give one that prepare.sh has made"
  lock "$run"
  rm -f "$run/decoded" "$run/scored" # first: they say that all is done
  say "$encoding, seed $SEED: questions to $SCORED with $checkpoint"
  logged "$run/$SCORED.generate.txt" fairseq-generate "$DATA" --user-dir "$ROOT/fairseq_relpos" \
    --task translation --source-lang src --target-lang tgt --gen-subset "$SCORED" --path "$checkpoint" \
    --beam "$BEAM" --lenpen "$LENGTH_PENALTY" --no-repeat-ngram-size "$NO_REPEAT" --max-len-b $((MAX_TARGET - 1)) \
    --batch-size "$BATCH_SENTENCES" --required-batch-size-multiple 1 --num-workers 0 --no-progress-bar "$@"
  errors_in "$run/collect.errors" python -m fairseq_relpos.finetuning.questions "$run/$SCORED.generate.txt" "$DATA" \
    "$SCORED" "$run/$SCORED.questions"
  decoding "$@" >"$run/decoded"
}

# Scores depend on this besides the questions; written to $run/scored.
scoring() { echo "tokens $TOKENS, lower case $LOWERCASE"; }

score() { # BLEU-4, ROUGE-L, METEOR
  local lower=()
  need_data
  [ -e "$run/decoded" ] || die "no questions in $run: run.sh generate $encoding first"
  # whatever the beam was
  [ "$(grep -v ^beam "$run/decoded")" = "$(decoding | grep -v ^beam)" ] && ! [ "$checkpoint" -nt "$run/decoded" ] ||
    die "the questions in $run are of another checkpoint, split or text: run.sh generate $encoding first"
  case $LOWERCASE in yes) lower=(--lowercase) ;; no) ;; *) die "LOWERCASE=$LOWERCASE: give yes or no" ;; esac
  rm -f "$run/scored"
  errors_in "$run/score.errors" python -m fairseq_relpos score-questions "$run/$SCORED.questions" \
    "$DATA/text/$SCORED.questions" --tokens "$TOKENS" "${lower[@]}" --json "$run/scores.json"
  scoring >"$run/scored"
}

evaluate() {
  train "$@"
  is_current decoded "$(decoding)" "$checkpoint" || generate
  is_current scored "$(scoring)" "$run/decoded" || score
}

report() {
  [ -e "$(sources)" ] || need_data
  write_report "$HERE/report.py" "$1" EVALUATED SCORED BEAM LENGTH_PENALTY NO_REPEAT TOKENS LOWERCASE \
    "DECODING=$(decoding)" "SCORING=$(scoring)"
}

act "train command generate score evaluate" "$@"; exit # on one line, so that a long run does not see the file change
