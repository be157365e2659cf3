#!/usr/bin/env bash
# Trains one RoBERTa. docs/recipes.md has what all recipes share, such as resuming and `command`.
#
#   bash examples/roberta_pretraining/run.sh train|command|validate ENCODING [...]
#   bash examples/roberta_pretraining/run.sh report [FOLDER]      # all runs, into FOLDER (default: $RUNS)
#
# For several machines (docs/multi_node.md) LAUNCH is what stands before the data and the flags, on each:
#   LAUNCH="bash scripts/launch_torchrun.sh --nnodes 2 --node_rank 0 --master_addr HOST --"
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

# The command that makes $run/start.pt from START_FROM, and the flags that start from it -> `warm_start`, `start`. Later,
# training resumes from its own checkpoints, and fairseq refuses the flag beside --reset-dataloader.
start_from_model() { # [flags]
  local released=${SIZE#_}
  [ "$NEEDS_START" = no ] || [ -n "$START_FROM" ] ||
    die "these settings start from a trained model: set START_FROM=FOLDER/model.pt, for example that of roberta.${released:-base}"
  [ -z "$START_FROM" ] || [ -e "$START_FROM" ] || die "START_FROM=$START_FROM: no such checkpoint"
  [ -n "$START_FROM" ] || return 0
  ! compgen -G "$run/checkpoint_last*.pt" >/dev/null || return 0
  ! compgen -G "$run/checkpoint_[0-9]*.pt" >/dev/null || return 0
  start=("--finetune-from-model=$run/start.pt")
  warm_start=(python -m fairseq_relpos warm-start "$START_FROM" "$run/start.pt" --arch "roberta_$encoding$SIZE" --seed "$SEED")
  while [ $# -gt 0 ]; do
    case $1 in
      --position-*=*) warm_start+=("$1") ;;
      --position-*) warm_start+=("${@:1:2}") ;;
    esac
    shift
  done
}

training_command() { # [flags of fairseq-train]
  local ranks launch precision device=() words=() start=()
  machine=", on $MACHINE"
  refuse_batch_flags "machines/$MACHINE.sh says" "$@"
  read_machine
  shared_flags
  precision_flags
  launcher "$ranks"
  start_from_model "${MODEL_FLAGS[@]}" "$@"
  [ "$GPUS" -gt 0 ] || device=(--cpu)
  [ "$WHOLE_WORDS" = no ] || words=(--mask-whole-words)
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

conditions() { data_conditions; echo "batch $BATCH"; start_condition; }
validate() { order_gap "$@"; }
report() { write_report "$COMMON/masked_lm_report.py" "$1"; }

act "train command validate" "$@"; exit # on one line, so that a run of days does not see the file change
