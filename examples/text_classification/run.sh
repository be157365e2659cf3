#!/usr/bin/env bash
# Train one encoding (`fairseq-relpos list`) on one task from scratch, or fine-tune a pretrained RoBERTa, and score it.
#
#   bash examples/text_classification/run.sh command TASK ENCODING [flags of fairseq-train]   # prints what train runs
#   bash examples/text_classification/run.sh train TASK ENCODING [flags of fairseq-train]
#   bash examples/text_classification/run.sh evaluate TASK ENCODING [flags]  # and scores the validation part: results.json
#   bash examples/text_classification/run.sh test TASK ENCODING [flags]      # and scores the test part; once, at the end
#   bash examples/text_classification/run.sh finetune TASK CHECKPOINT [flags]     # and scores the validation part
#   bash examples/text_classification/run.sh predict TASK CHECKPOINT [SPLIT...]   # of the same run: test, by itself
#   bash examples/text_classification/run.sh report [FOLDER]                 # the tables of all runs, into FOLDER
#
# CHECKPOINT: a .pt file with a RoBERTa of this package or of stock fairseq; command and test also take one.
# FOLD=0 for one fold of MR, SUBJ, CR and MPQA. train goes on where it was stopped. Many runs: scripts/sweep.py.
. "$(dirname "$0")/../common/recipe.sh"
end_in_order "$@"
kind=scratch
case "${1:-} ${3:-}" in finetune\ * | predict\ * | command\ *.pt | test\ *.pt) kind=finetune ;; esac
case $kind in scratch) read_settings ;; finetune) read_settings "$HERE/finetune.sh" ;; esac

usage="usage: run.sh command|train|evaluate|test TASK ENCODING [...], run.sh command|finetune|predict|test TASK CHECKPOINT [...], or run.sh report [FOLDER]"

need_data() {
  local made="MAX_LENGTH=$MAX_LENGTH MIN_COUNT=$MIN_COUNT"
  [ -e "$data/facts.json" ] || die "no data in $data: run prepare.sh $task first, or set DATA"
  grep -qF "\"$made\"" "$data/facts.json" || # training would leave longer samples out
    die "$data was not prepared with $made: run prepare.sh $task again with the same SETTINGS"
}

# training_command [flags]: the whole of it -> `training`
training_command() {
  local hparams schedule end=() flags=()
  shared_flags
  hparams=$(hparams_of "$encoding")
  schedule=$(schedule_of "$task")
  if [ -n "$schedule" ]; then
    end=(--lr-scheduler polynomial_decay --warmup-updates "${schedule% *}"
      --total-num-update "${schedule#* }" --max-update "${schedule#* }")
  else
    end=(--lr-scheduler fixed --max-epoch "$MAX_EPOCHS")
  fi
  [ "$PATIENCE" = 0 ] || end+=(--patience "$PATIENCE")
  [ -z "$hparams" ] || flags+=(--position-hparams "$hparams")
  [ ! -e "$data/embeddings.npy" ] || flags+=(--embedding-file "$data/embeddings.npy")
  training=(fairseq-train "$data"
    --user-dir "$ROOT/fairseq_relpos" --arch "sequence_encoder_$encoding"
    --task sequence_labels --criterion sequence_labels
    --encoder-layers "$LAYERS" --encoder-embed-dim "$EMBED_DIM"
    --encoder-ffn-embed-dim "$FFN_DIM" --encoder-attention-heads "$HEADS"
    --max-source-positions "$MAX_LENGTH" --pooling "$(pooling_of "$task")"
    --position-layers "$POSITION_LAYERS" "${flags[@]}"
    --dropout "$DROPOUT" --input-dropout "$INPUT_DROPOUT" --attention-dropout "$ATTENTION_DROPOUT"
    "${adam[@]}" "${logs[@]}" "${end[@]}" --batch-size "$BATCH_SIZE"
    --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric --no-epoch-checkpoints
    --seed "$SEED" --num-workers 0
    --distributed-world-size 1 # fairseq would take all GPUs, and multiply the batch
    "$@")
}

train() {
  need_data
  need_encoding
  training_command "$@"
  CONDITIONS="data $(digest "$data/train.npz" "$data/valid.npz")"
  train_run "$task${FOLD:+, fold $FOLD}: $encoding, seed $SEED"
}

# score PART
score() {
  errors_in "$run/$1.log" python -m fairseq_relpos.finetuning.classify "$run" "$run/$EVALUATED" "$data" "$1" \
    "encoding=$encoding" "seed=$SEED" "lr=$LEARNING_RATE"
}

evaluate() {
  train "$@"
  [ "$run/results.json" -nt "$run/$EVALUATED" ] || score valid
}

test_part() {
  evaluate "$@"
  [ "$run/test.predictions.tsv" -nt "$run/$EVALUATED" ] || score test
}

# After a checkpoint the same words mean what they mean in examples/glue.
use_finetuning() {
  . "$COMMON/finetuning.sh"
  checkpoint=$1 prepare="prepare.sh --vocabulary FOLDER"
  data=$DATA/finetuning/$part metric=accuracy splits=(valid) facts=(${FOLD:+"fold=$FOLD"})
  run=$RUNS/finetuned/$(basename "$(dirname "$checkpoint")")/$part-seed$SEED
  test_part() { finetune "$@"; predict test; }
}

action=${1:-}
case $action in
  command | train | evaluate | test | finetune | predict)
    task=${2:-} encoding=${3:-}
    [ -n "$task" ] && [ -n "$encoding" ] ||
      die "which task and $([ $kind = scratch ] && echo encoding || echo checkpoint)? $usage"
    case $task in
      MR | SUBJ | CR | MPQA) [ -n "$FOLD" ] || die "$task is in folds: set FOLD, 0 is the first" ;;
      SST-2 | SST-5 | TREC | IMDB | SNLI | QNLI | QQP | MNLI) [ -z "$FOLD" ] || die "$task has no folds: leave FOLD=$FOLD out" ;;
      *) die "no task $task: give MR SUBJ CR MPQA SST-2 SST-5 TREC IMDB SNLI QNLI QQP or MNLI" ;;
    esac
    case $kind/$encoding in scratch/*.pt) die "$encoding is a checkpoint, and $action trains from scratch: run.sh finetune $task $encoding" ;; esac
    part=$task${FOLD:+-fold$FOLD}
    data=$DATA/$part run=$RUNS/$part/$encoding-seed$SEED
    [ $kind = scratch ] || use_finetuning "$encoding"
    case $action in command) action=print_command ;; test) action=test_part ;; esac
    "$action" "${@:4}" ;;
  report)
    [ $# -le 2 ] || die "$usage"
    mkdir -p "$RUNS" "${2:-$RUNS}"
    errors_in "$RUNS/report.log" python "$HERE/report.py" "$RUNS" "${2:-$RUNS}" "$BASELINE" ;;
  *) die "$usage" ;;
esac; exit # on one line, so that a long run does not see the file change
