#!/usr/bin/env bash
# Fine-tunes one model on questions and texts. docs/recipes.md has what all recipes share, such as resuming and `command`.
#
#   bash examples/squad/run.sh command|finetune|evaluate ENCODING CHECKPOINT [flags of fairseq-train]
#   bash examples/squad/run.sh predict ENCODING [SPLIT]      # answers and scores, by default of valid, which comes first
#   bash examples/squad/run.sh report [FOLDER]               # a table of all runs, into FOLDER (default: $RUNS)
#
# CHECKPOINT: that of a pretraining; none trains from scratch. evaluate: finetune, and predict valid.
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"
squad() { python -m fairseq_relpos.finetuning.squad "$@"; }

# count_updates CHECKPOINT -> $updates, $warmup. Without data there is nothing to count.
count_updates() {
  local start=() errors
  updates=COUNTED warmup=COUNTED
  [ -e "$DATA/dict.txt" ] || return 0
  errors=$(mktemp)
  [ ! -f "$1" ] || start=(--start "$1")
  read -r updates warmup < <(squad updates "$DATA" --window "$WINDOW" --doc-stride "$DOC_STRIDE" \
    --max-query-length "$MAX_QUERY_LENGTH" --batch "$BATCH" --epochs "$EPOCHS" --warmup "$WARMUP" \
    "${start[@]}" 2>"$errors") || failed "$errors"
  rm "$errors"
}

training_command() { # CHECKPOINT [flags of fairseq-train]
  local rows start=() positions=--max-positions updates warmup hparams=()
  [ -n "${1:-}" ] || die "which checkpoint? $usage"
  shared_flags
  divide_over 1 "UPDATE_FREQ says" "${@:2}"
  count_updates "$1"
  # also where training resumes from its own checkpoints: the position hyperparameters are those of this one
  [ "$1" = none ] || start=("--finetune-from-model=$1")
  [ "$ARCH" = roberta ] || positions=--max-source-positions
  [ -z "${HPARAMS[$encoding]:-}" ] || hparams=(--position-hparams "${HPARAMS[$encoding]}")
  training=(fairseq-train "$DATA"
    --user-dir "$ROOT/fairseq_relpos" --arch "${ARCH}_$encoding$SIZE" "${MODEL_FLAGS[@]}" "${hparams[@]}"
    --task span_prediction --criterion span_prediction
    --window "$WINDOW" --doc-stride "$DOC_STRIDE" --max-query-length "$MAX_QUERY_LENGTH"
    "$positions" "$MAX_POSITIONS"
    --dropout "$DROPOUT" --attention-dropout "$DROPOUT"
    "${adam[@]}" --no-epoch-checkpoints "${logs[@]}" --lr-scheduler polynomial_decay
    --warmup-updates "$warmup" --total-num-update "$updates" --max-update "$updates"
    --batch-size "$rows" --update-freq "$UPDATE_FREQ" --seed "$SEED" --num-workers 0
    --distributed-world-size 1 # fairseq would take all GPUs, and multiply the batch
    "${start[@]}" "${@:2}")
}

finetune() { # CHECKPOINT [flags of fairseq-train]
  need_data
  start_from=${1:-none}
  if [ "$start_from" != none ]; then
    [ "$ARCH" = roberta ] || die "$start_from: ARCH=$ARCH trains from scratch; give none as the checkpoint"
    [ -f "$start_from" ] || die "no checkpoint $start_from: give a .pt file of a pretraining, or none"
    refuse_other_dictionary "$start_from" "$(data_conditions)"
  fi
  train "$@"
}
conditions() {
  data_conditions
  if [ "$start_from" = none ]; then echo "start none"; else echo "start $(digest "$start_from")"; fi
}

predict() { # [SPLIT]: SPLIT.predictions.json in the official form; valid also gives the threshold for "no answer"
  local split=${1:-valid}
  need_data
  [ $# -le 1 ] || die "$usage"
  [ -e "$checkpoint" ] || die "no checkpoint $checkpoint: run.sh finetune $encoding CHECKPOINT first"
  [ -e "$run/trained" ] || die "the training of $run is not finished: run.sh finetune $encoding CHECKPOINT resumes it"
  need_dictionary
  [ -e "$DATA/$split.npz" ] || die "no $DATA/$split.npz: give a split that prepare.sh has made"
  [ "$split" = valid ] || [ -e "$run/results.json" ] || die "no $run/results.json: run.sh predict $encoding first"
  logged "$run/$split.log" squad predict "$checkpoint" "$DATA" --split "$split" --output "$run/$split" \
    --n-best "$N_BEST" --max-answer-length "$MAX_ANSWER_LENGTH" --null-threshold "$NULL_THRESHOLD"
  say "$encoding, seed $SEED, $split"
  errors_in "$run/$split.errors" squad evaluate "$DATA/$split.json" "$run/$split" --metric "$METRIC" \
    --split "$split" --results "$run/results.json" --fact "task=$NAME" --fact "encoding=$encoding" \
    --fact "lr=$(trained_with lr)" --fact "seed=$(trained_with seed)"
  [ "$split" != valid ] || scoring >"$run/scored"
}

# The scores of valid depend on this besides the weights; written to $run/scored.
scoring() { echo "$METRIC, $N_BEST answers of at most $MAX_ANSWER_LENGTH tokens, threshold $NULL_THRESHOLD"; }

evaluate() {
  finetune "$@"
  if [ ! -e "$run/scored" ] && [ "$run/results.json" -nt "$checkpoint" ]; then return 0; fi # older runs have no `scored`
  is_current scored "$(scoring)" "$checkpoint" || predict valid
}

report() { write_report "$HERE/report.py" "$1" METRIC; }

act "finetune command predict evaluate" "$@"; exit
