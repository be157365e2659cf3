#!/usr/bin/env bash
# Fine-tune one run: a position encoding (`fairseq-relpos list`), a checkpoint of its pretraining, and a seed.
#
#   bash examples/squad/run.sh command ENCODING CHECKPOINT [flags of fairseq-train]      # prints what finetune runs
#   bash examples/squad/run.sh finetune ENCODING CHECKPOINT [flags of fairseq-train]
#   bash examples/squad/run.sh predict ENCODING [SPLIT]           # answers and scores, by default of valid
#   bash examples/squad/run.sh evaluate ENCODING CHECKPOINT       # finetune, and predict valid
#   bash examples/squad/run.sh report [FOLDER]
#
# CHECKPOINT: none trains from scratch. finetune goes on where it was stopped: SIGTERM, SIGUSR1 and Ctrl-C let it save and
# end with exit code 75. predict writes SPLIT.predictions.json, the official form, and the scores into results.json; valid
# comes first, because the threshold for "no answer" is chosen there. report: a table of all runs, into FOLDER (default: $RUNS).
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"
squad() { python -m fairseq_relpos.finetuning.squad "$@"; }

# need_pretraining CHECKPOINT
need_pretraining() {
  local start_from=${1:-}
  [ -n "$start_from" ] || die "which checkpoint? $usage"
  [ "$start_from" != none ] || return 0
  [ "$ARCH" = roberta ] || die "$start_from: ARCH=$ARCH trains from scratch; give none as the checkpoint"
  [ -f "$start_from" ] || die "no checkpoint $start_from: give a .pt file of a pretraining, or none"
  refuse_other_dictionary "$start_from" "$(data_conditions)"
}

# count_updates CHECKPOINT -> $updates, $warmup. Without data there is nothing to count.
count_updates() {
  local start=()
  updates=COUNTED warmup=COUNTED
  [ -e "$DATA/dict.txt" ] || return 0
  [ ! -f "$1" ] || start=(--start "$1")
  read -r updates warmup < <(squad updates "$DATA" --window "$WINDOW" --doc-stride "$DOC_STRIDE" \
    --max-query-length "$MAX_QUERY_LENGTH" --batch "$BATCH" --epochs "$EPOCHS" --warmup "$WARMUP" \
    "${start[@]}" 2>"$errors") || failed "$errors"
}

# training_command CHECKPOINT [flags]: the whole of it -> `training`
training_command() {
  local ranks rows launch precision device start=() positions=--max-positions updates warmup errors start_from=${1:-}
  [ -n "$start_from" ] || die "which checkpoint? $usage"
  divide_batch "${@:2}"
  errors=$(mktemp)
  count_updates "$start_from"
  rm "$errors"
  # also where training goes on from its own checkpoints: the position hyperparameters are those of this one
  [ "$start_from" = none ] || start=("--finetune-from-model=$start_from")
  [ "$ARCH" = roberta ] || positions=--max-source-positions
  training=(fairseq-train "$DATA"
    --user-dir "$ROOT/fairseq_relpos" --arch "${ARCH}_$encoding$SIZE" "${MODEL_FLAGS[@]}"
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

finetune() {
  need_data
  need_pretraining "$@"
  training_command "$@"
  CONDITIONS=$(data_conditions; echo "start $([ "$1" = none ] && echo none || digest "$1")")
  train_run "$encoding, seed $SEED"
}

# the learning rate that the run was trained with, whatever LEARNING_RATE is now
trained_rate() {
  sed -n "s/.* '--lr' '\([^']*\)'.*/\1/p" "$run/trained"
}

predict() {
  local split=${1:-valid}
  need_data
  [ $# -le 1 ] || die "$usage"
  [ -e "$checkpoint" ] || die "no checkpoint $checkpoint: run.sh finetune $encoding CHECKPOINT first"
  [ -e "$run/trained" ] || die "$run has not ended its training: run.sh finetune $encoding CHECKPOINT goes on"
  need_dictionary
  [ -e "$DATA/$split.npz" ] || die "no $DATA/$split.npz: give a split that prepare.sh has made"
  [ "$split" = valid ] || [ -e "$run/results.json" ] || die "no $run/results.json: run.sh predict $encoding first"
  logged "$run/$split.log" squad predict "$checkpoint" "$DATA" --split "$split" --output "$run/$split" \
    --n-best "$N_BEST" --max-answer-length "$MAX_ANSWER_LENGTH" --null-threshold "$NULL_THRESHOLD"
  say "$encoding, seed $SEED, $split"
  errors_in "$run/$split.errors" squad evaluate "$DATA/$split.json" "$run/$split" --metric "$METRIC" \
    --split "$split" --results "$run/results.json" --fact "task=$NAME" --fact "encoding=$encoding" \
    --fact "lr=$(trained_rate)" --fact "seed=$SEED"
}

evaluate() {
  finetune "$@"
  [ "$run/results.json" -nt "$checkpoint" ] || predict valid
}

report() { write_report "$HERE/report.py" "$1" METRIC; }

act "finetune command predict evaluate" "$@"; exit
