# Shared by the recipes that fine-tune on sentences or pairs with labels (docs/fine-tuning.md). Sourced after recipe.sh.
# choose_run of a recipe sets, beside $run:
#   $data     the folder made by fairseq_relpos.finetuning.prepare
#   $metric   the metric of the best checkpoint
#   $splits   the splits that a validation scores
#   $facts    further facts about the run for results.json
#   $prepare  the command that makes the data, if it is not prepare.sh TASK

# training_command [flags] -> `training`, and `start`, which prints the flags of the model and of the schedule
training_command() {
  local epochs=$EPOCHS
  shared_flags
  case " $LARGE_TASKS " in *" $task "*) epochs=$EPOCHS_OF_LARGE ;; esac
  start=(python -m fairseq_relpos.finetuning.start "$checkpoint" "$data" --seed "$SEED"
    --batch "$BATCH" ${MAX_TOKENS:+--max-tokens "$MAX_TOKENS"} ${MAX_POSITIONS:+--max-positions "$MAX_POSITIONS"}
    --epochs "$epochs" --warmup "$WARMUP" --validations "$VALIDATIONS")
  training=(fairseq-train "$data"
    --user-dir "$ROOT/fairseq_relpos" --finetune-from-model "$checkpoint" '$flags'
    --task sentence_pairs --criterion sentence_scores --metrics "$metric"
    --best-checkpoint-metric "$metric" --maximize-best-checkpoint-metric
    --dropout "$DROPOUT" --attention-dropout "$DROPOUT" --pooler-dropout "$DROPOUT"
    "${adam[@]}" --lr-scheduler polynomial_decay --keep-interval-updates 1 --no-epoch-checkpoints "${logs[@]}"
    --batch-size "$BATCH" ${MAX_TOKENS:+--max-tokens "$MAX_TOKENS"} --seed "$SEED" --num-workers 0
    --valid-subset "$(IFS=,; echo "${splits[*]}")"
    --distributed-world-size 1 # by default fairseq would use all GPUs, with a larger batch
    "$@")
}

print_command() {
  training_command "$@"
  echo "flags=\$($(printf '%q ' "${start[@]}"))"
  same_run show "${training[@]}" | sed "s/'\$flags'/\$flags/"
}

need_data() {
  [ -e "$data/task.json" ] || die "no data in $data: run ${prepare:-prepare.sh} $task first, or set DATA"
  [ -e "$checkpoint" ] || die "no checkpoint $checkpoint: pretrain first, or give another one"
}

finetune() { # [flags of fairseq-train]
  need_data
  training_command "$@"
  CONDITIONS=$(echo "data $(digest "$data/sources.txt")"; echo "start $(digest "$checkpoint")")
  same_run finetune "$task, seed $SEED" "$run" "${start[@]}" -- "${training[@]}" -- \
    python -m fairseq_relpos.finetuning.predict "$run/checkpoint_best.pt" "$data" "$run" "${splits[@]}" \
    --results "$run/results.json" "recipe=$(basename "$HERE")" "task=$task" "checkpoint=$checkpoint" "${facts[@]}"
}

predict() { # [SPLIT...], by default of the tests
  local splits=("$@") results=()
  [ -e "$run/checkpoint_best.pt" ] || die "no checkpoint $run/checkpoint_best.pt: run.sh finetune $task $checkpoint first"
  if [ $# -eq 0 ]; then
    [ -e "$data/input0/test.idx" ] ||
      die "$data has no test split: prepare.sh was given no test data; name another split, such as valid"
    splits=($(cd "$data/input0" && printf '%s\n' test*.idx | sed 's/\.idx$//'))
  fi
  [ "${splits[*]}" != test ] || results=(--results "$run/results.json") # if the tests have labels
  errors_in "$run/predict.log" python -m fairseq_relpos.finetuning.predict "$run/checkpoint_best.pt" "$data" \
    "$run" "${splits[@]}" "${results[@]}"
  say "predictions of ${splits[*]}: $run"
}
