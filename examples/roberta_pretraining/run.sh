#!/usr/bin/env bash
# Train and look at one run: a position encoding (`fairseq-relpos list`) and a seed.
#
#   bash examples/roberta_pretraining/run.sh command ENCODING [flags of fairseq-train]      # prints what train runs
#   bash examples/roberta_pretraining/run.sh train ENCODING [flags of fairseq-train]
#   bash examples/roberta_pretraining/run.sh validate ENCODING [flags of fairseq-relpos order-gap]
#   bash examples/roberta_pretraining/run.sh report [FOLDER]
#
# train goes on where it was stopped: SIGTERM, SIGUSR1 and Ctrl-C let it save and end with exit code 75. LAUNCH is
# what stands before the data and the flags: by itself fairseq-train, or
# scripts/launch_torchrun.sh for several GPUs of one machine; for several machines (docs/multi_node.md), on each:
#   LAUNCH="bash scripts/launch_torchrun.sh --nnodes 2 --node_rank 0 --master_addr HOST --"
# validate: the loss, and that with the tokens of each block permuted. report: all runs, into FOLDER ($RUNS).
. "$(dirname "$0")/../common/recipe.sh"
begin "$@"

need_data() {
  local vocabulary longest
  [ -e "$DATA/manifest.json" ] || die "no data in $DATA: run prepare.sh first, or set DATA to the folder that it has written"
  read -r _ vocabulary longest <"$DATA/sources.txt"
  [ "$vocabulary" = "$VOCABULARY" ] ||
    die "$DATA has the vocabulary $vocabulary, not $VOCABULARY: run prepare.sh with these settings, or set DATA"
  [ "$longest" -le $((TOKENS_PER_SAMPLE - 2)) ] ||
    die "$DATA has lines of $longest pieces, too long for TOKENS_PER_SAMPLE=$TOKENS_PER_SAMPLE: run prepare.sh with these settings"
}

# machines/$MACHINE.sh, if it makes the batch of the settings
read_machine() {
  local file=$HERE/machines/$MACHINE.sh made
  [ -e "$file" ] || die "no machine $MACHINE: there are $(cd "$HERE/machines" && ls | sed 's/\.sh$//' | paste -sd' '); write $file"
  unset NODES GPUS PROCESSES PRECISION SAMPLES_PER_GPU UPDATE_FREQ
  . "$file"
  [ -n "${SAMPLES_PER_GPU:-}" ] ||
    die "$file does not say how it makes a batch of $BATCH: add SAMPLES_PER_GPU and UPDATE_FREQ for it"
  ranks=$((GPUS > 0 ? GPUS : ${PROCESSES:-1}))
  made=$((SAMPLES_PER_GPU * UPDATE_FREQ * ranks))
  [ "$made" -eq "$BATCH" ] ||
    die "$file makes a batch of $made ($ranks GPUs or processes x $SAMPLES_PER_GPU samples x update frequency $UPDATE_FREQ), and the settings say $BATCH: change SAMPLES_PER_GPU or UPDATE_FREQ"
  [ "$NODES" -eq 1 ] || [ -n "$LAUNCH" ] ||
    die "$MACHINE has $NODES nodes: set LAUNCH, as the head of run.sh says, on each of them, or another MACHINE"
}

# Once it has begun, training goes on from its own checkpoints.
has_checkpoints() { compgen -G "$run/checkpoint_last*.pt" >/dev/null || compgen -G "$run/checkpoint_[0-9]*.pt" >/dev/null; }

need_start() {
  local released=${SIZE#_}
  [ "$NEEDS_START" = no ] || [ -n "$START_FROM" ] ||
    die "these settings go on from a trained model: set START_FROM=FOLDER/model.pt, for example that of roberta.${released:-base}"
  [ -z "$START_FROM" ] || [ -e "$START_FROM" ] || die "START_FROM=$START_FROM: no such checkpoint"
}

# warm_start_command [flags]: what makes $run/start.pt of START_FROM with this encoding, where training begins -> `warm_start`
warm_start_command() {
  warm_start=(python -m fairseq_relpos warm-start "$START_FROM" "$run/start.pt" --arch "roberta_$encoding$SIZE" --seed "$SEED")
  while [ $# -gt 0 ]; do
    case $1 in
      --position-*=*) warm_start+=("$1") ;;
      --position-*) warm_start+=("${@:1:2}") ;;
    esac
    shift
  done
}

# training_command [flags]: the whole of it -> `training`; and `warm_start`, if it has to come first
training_command() {
  local ranks launch precision device=() words=() start=()
  machine=", on $MACHINE"
  refuse_batch_flags "machines/$MACHINE.sh says" "$@"
  read_machine
  precision_flags
  [ "$GPUS" -gt 0 ] || device=(--cpu)
  need_start
  if [ -n "$START_FROM" ] && ! has_checkpoints; then # fairseq refuses the flag beside --reset-dataloader
    warm_start_command "${MODEL_FLAGS[@]}" "$@"
    start=("--finetune-from-model=$run/start.pt")
  fi
  [ "$WHOLE_WORDS" = no ] || words=(--mask-whole-words)
  launcher "$ranks"
  training=("${launch[@]}" "$DATA"
    --user-dir "$ROOT/fairseq_relpos" --arch "roberta_$encoding$SIZE" "${MODEL_FLAGS[@]}"
    --task masked_lm --criterion masked_lm --mask-prob "$MASK_PROB" "${words[@]}"
    --tokens-per-sample "$TOKENS_PER_SAMPLE" --max-positions "$TOKENS_PER_SAMPLE"
    # whole lines, across documents; none is too long for a sample, which prepare.sh has seen to
    --sample-break-mode complete
    --dropout "$DROPOUT" --attention-dropout "$DROPOUT"
    "${adam[@]}" "${linear[@]}" "${checkpoints[@]}"
    --keep-interval-updates 1 --keep-interval-updates-pattern "$KEEP_EVERY" "${logs[@]}"
    --batch-size "$SAMPLES_PER_GPU" --update-freq "$UPDATE_FREQ" "${precision[@]}" "${device[@]}"
    --distributed-world-size "$ranks" --seed "$SEED" --num-workers "$LOADERS" # fewer ranks are an error
    "${start[@]}" "$@")
}

conditions() { data_conditions; echo "batch $BATCH"; [ -z "$START_FROM" ] || echo "start $(digest "$START_FROM")"; }

validate() {
  need_data
  need_checkpoint
  say "$encoding, seed $SEED: loss, and loss with the tokens of each block permuted"
  errors_in "$run/order_gap.log" python -m fairseq_relpos order-gap "$checkpoint" "$DATA" --seed "$MASK_SEED" \
    --json "$run/order_gap.json" "$@"
}

report() { write_report "$COMMON/masked_lm_report.py" "$1"; }

# On one line, so that a run of days does not see the file change.
act "train command validate" "$@"; exit
