#!/usr/bin/env bash
# Trains one encoder on one task from scratch, or fine-tunes a pretrained RoBERTa, and scores it. docs/recipes.md has what all
# recipes share, such as resuming.
#
#   bash examples/text_classification/run.sh command|train|evaluate TASK ENCODING [flags of fairseq-train]
#   bash examples/text_classification/run.sh command|finetune TASK CHECKPOINT [flags of fairseq-train]
#   bash examples/text_classification/run.sh test TASK ENCODING|CHECKPOINT [flags]   # and scores the test part; once, at the end
#   bash examples/text_classification/run.sh predict TASK CHECKPOINT [SPLIT...]      # of the same run; default: test
#   bash examples/text_classification/run.sh report [FOLDER]                         # the tables of all runs, into FOLDER
#
# evaluate and finetune score the validation part. CHECKPOINT: a .pt file with a RoBERTa of this package or of stock fairseq.
# FOLD=0 for one fold of MR, SUBJ, CR and MPQA. Many runs: scripts/sweep.py.
. "$(dirname "$0")/../common/recipe.sh"
end_in_order "$@"
ARGUMENTS="task encoding"
case "${1:-} ${3:-}" in finetune\ * | predict\ * | command\ *.pt | test\ *.pt) ARGUMENTS="task checkpoint" ;; esac
if [ "$ARGUMENTS" = "task encoding" ]; then read_settings; else read_settings "$HERE/finetune.sh"; fi

need_data() {
  local made="MAX_LENGTH=$MAX_LENGTH MIN_COUNT=$MIN_COUNT"
  [ -e "$data/facts.json" ] || die "no data in $data: run prepare.sh $task first, or set DATA"
  grep -qF "\"$made\"" "$data/facts.json" || # training would leave longer samples out
    die "$data was not prepared with $made: run prepare.sh $task again with the same SETTINGS"
}

training_command() { # [flags of fairseq-train]
  local hparams schedule end=(--lr-scheduler fixed --max-epoch "$MAX_EPOCHS") flags=()
  shared_flags
  hparams=$(hparams_of "$encoding")
  schedule=$(schedule_of "$task")
  [ -z "$schedule" ] || end=(--lr-scheduler polynomial_decay --warmup-updates "${schedule% *}"
    --total-num-update "${schedule#* }" --max-update "${schedule#* }")
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

conditions() { echo "data $(digest "$data/train.npz" "$data/valid.npz")"; }

# score PART
score() {
  errors_in "$run/$1.log" python -m fairseq_relpos.finetuning.classify "$run" "$run/$EVALUATED" "$data" "$1" \
    "encoding=$encoding" "seed=$(trained_with seed)" "lr=$(trained_with lr)" "evaluated=$EVALUATED"
}
# evaluated: the checkpoint that was scored; older results do not say it
evaluated() { sed -n 's/.*"evaluated": "\(.*\)".*/\1/p' "$run/results.json" | grep . || echo checkpoint_best.pt; }

evaluate() {
  train "$@"
  [ "$run/results.json" -nt "$run/$EVALUATED" ] && [ "$(evaluated)" = "$EVALUATED" ] || score valid
}

test_part() {
  evaluate "$@"
  # a new score of the validation part removes that of the test part
  grep -q '"test":' "$run/results.json" && [ "$run/results.json" -nt "$data/test.npz" ] || score test
}

choose_run() {
  case $task in
    MR | SUBJ | CR | MPQA) [ -n "$FOLD" ] || die "$task is in folds: set FOLD, 0 is the first" ;;
    SST-2 | SST-5 | TREC | IMDB | SNLI | QNLI | QQP | MNLI) [ -z "$FOLD" ] || die "$task has no folds: leave FOLD=$FOLD out" ;;
    *) die "no task $task: give MR SUBJ CR MPQA SST-2 SST-5 TREC IMDB SNLI QNLI QQP or MNLI" ;;
  esac
  local part=$task${FOLD:+-fold$FOLD}
  if [ "$ARGUMENTS" = "task checkpoint" ]; then
    . "$COMMON/finetuning.sh"
    prepare="prepare.sh --vocabulary FOLDER"
    data=$DATA/finetuning/$part metric=accuracy splits=(valid) facts=(${FOLD:+"fold=$FOLD"})
    run=$RUNS/finetuned/$(basename "$(dirname "$checkpoint")")/$part-seed$SEED
    test_part() { finetune "$@"; predict test; }
  else
    case $encoding in *.pt) die "$encoding is a checkpoint, and $action trains from scratch: run.sh finetune $task $encoding" ;; esac
    data=$DATA/$part run=$RUNS/$part/$encoding-seed$SEED
  fi
}

report() {
  mkdir -p "$RUNS" "$1"
  errors_in "$RUNS/report.log" python "$HERE/report.py" "$RUNS" "$1" "$BASELINE"
}

act "command train evaluate test finetune predict" "$@"; exit # on one line, so that a long run does not see the file change
