#!/usr/bin/env bash
# Train and look at one run: a position encoding (`fairseq-relpos list`) and a seed.
#
#   bash examples/translation_small/run.sh command ENCODING [flags of fairseq-train]      # prints what train runs
#   bash examples/translation_small/run.sh train ENCODING [flags of fairseq-train]
#   bash examples/translation_small/run.sh average ENCODING       # AVERAGED checkpoints -> average.pt
#   bash examples/translation_small/run.sh generate ENCODING [flags of fairseq-generate]
#   bash examples/translation_small/run.sh score ENCODING         # BLEU by several conventions, chrF
#   bash examples/translation_small/run.sh translate ENCODING <TEXT      # one sentence a line
#   bash examples/translation_small/run.sh evaluate ENCODING      # of all these what is missing
#   bash examples/translation_small/run.sh report [FOLDER]
#
# train goes on where it was stopped: SIGTERM, SIGUSR1 and Ctrl-C let it save and end with exit code 75. generate
# translates every test set into $RUNS/ENCODING-seedN/. generate and translate use EVALUATED of settings.sh. report: all
# runs, into FOLDER (default: $RUNS); in another folder also runs.tar.xz, what the report was made of.
# ../translation_wmt_en_de/run.sh is the same with the settings there.
. "$(dirname "${BASH_SOURCE[0]}")/../common/recipe.sh"
[ "${1:-}" = translate ] || end_in_order "$@" # which reads the text that a terminal may write
read_settings
TOOLS=$COMMON/../translation_common
corpus() { python "$TOOLS/corpus.py" "$@"; }
translations() { python "$TOOLS/translations.py" "$@"; }

# test, test1, ...: the test sets of $DATA
test_splits() {
  (cd "$DATA" && ls test*."$SOURCE-$TARGET.$SOURCE.idx") | sed 's/\..*//' | sort -V
}

need_data() {
  [ -e "$DATA/dict.$TARGET.txt" ] ||
    die "no data in $DATA: run prepare.sh first, or set DATA to the folder that it has written"
}

# The settings of one encoding, beyond its name.
encoding_flags() {
  [ "$POSITION_LAYERS" = all ] || echo "--position-layers=$POSITION_LAYERS"
  [ -z "${HPARAMS[$encoding]:-}" ] || echo "--position-hparams=${HPARAMS[$encoding]}"
}

# Absolute positions count real tokens. Where sources are padded on the left, fairseq's default,
# those of a batch begin at different places, and a bias made from absolute positions needs a
# matrix for every sentence instead of one for all. The flag switches the default off.
padding_flags() {
  case $encoding in
    tupe_* | bert_ad) echo --left-pad-source ;;
  esac
}

# A dictionary of the same size and other words would give words without sense.
dictionary_digest() { cat "$DATA/dict.$SOURCE.txt" "$DATA/dict.$TARGET.txt" | sha256sum | cut -d' ' -f1; }
need_same_dictionary() {
  [ "$(cat "$run/dictionary" 2>/dev/null)" = "$(dictionary_digest)" ] ||
    die "the dictionaries in $DATA are not those that $run was trained with: set DATA to its data, or RUNS to another folder"
}

need_checkpoint() {
  need_data
  [ -e "$checkpoint" ] || die "no checkpoint $checkpoint: run.sh ${1:-train} $encoding first"
  need_same_dictionary
  ! is_older_average || die "$checkpoint is older than the training: run.sh average $encoding first"
}
is_older_average() { [ "$(maker)" = average ] && [ "$run/checkpoint_last.pt" -nt "$checkpoint" ]; }

# Tokens of an update -> $made, on $GPUS: without a number all of this machine, as fairseq-train takes them.
make_batch() {
  local advice pass
  [ -n "${GPUS:-}" ] || GPUS=$(python -c 'import torch; print(max(1, torch.cuda.device_count()))')
  [[ $GPUS =~ ^[1-9][0-9]*$ ]] || die "GPUS=$GPUS: give a number, 1 or more"
  pass=$((TOKENS_PER_UPDATE * GPUS))
  if [ -n "${BATCH:-}" ] && [ -z "${UPDATE_FREQ:-}" ]; then
    UPDATE_FREQ=$((BATCH > pass ? BATCH / pass : 1))
  fi
  made=$((pass * UPDATE_FREQ))
  [ -n "${BATCH:-}" ] && [ "$made" -ne "$BATCH" ] || return 0
  advice="change them, or BATCH"
  [ $((BATCH % GPUS)) -ne 0 ] || advice="set TOKENS_PER_UPDATE=$((BATCH / GPUS)) UPDATE_FREQ=1, or change GPUS or BATCH"
  die "GPUS=$GPUS x TOKENS_PER_UPDATE=$TOKENS_PER_UPDATE x UPDATE_FREQ=$UPDATE_FREQ make an update of $made tokens, and the settings say BATCH=$BATCH: $advice"
}

# Where training begins, if START_FROM says so: -> `start`, its flag, and `warm_start`, which makes $run/start.pt
start_command() {
  start=() warm_start=()
  case ${START_FROM:-} in
    "" | none) return ;;
  esac
  began=$START_FROM
  [[ $began = *.pt ]] || began+=/$(basename "$run")/checkpoint_last.pt
  start=(--finetune-from-model "$run/start.pt")
  warm_start=(python -m fairseq_relpos warm-start "$began" "$run/start.pt" --arch "transformer_$encoding$SIZE" --seed "$SEED"
    "$@")
}

# training_command [flags]: the whole of it -> `training`; and `warm_start`, if it has to come first
training_command() {
  local flags keep schedule start launch
  [ -z "${BATCH:-}" ] || refuse_batch_flags "GPUS, TOKENS_PER_UPDATE and UPDATE_FREQ say" \
    "${TRAIN_FLAGS[@]}" "$@"
  make_batch
  mapfile -t flags < <(encoding_flags)
  start_command "${flags[@]}"
  mapfile -t flags < <(encoding_flags; padding_flags)
  case $SCHEDULE in
    inverse_sqrt) schedule=(--warmup-init-lr "$WARMUP_INIT_LR") ;;
    polynomial_decay) schedule=(--total-num-update "$UPDATES") ;; # down to 0
    *) die "SCHEDULE=$SCHEDULE: give inverse_sqrt or polynomial_decay" ;;
  esac
  case $AVERAGE_OF in
    last) keep=(--keep-interval-updates "$AVERAGED") ;;
    best) keep=(--keep-interval-updates 1 --keep-best-checkpoints "$AVERAGED") ;;
    *) die "AVERAGE_OF=$AVERAGE_OF: give last or best" ;;
  esac
  launcher "$GPUS"
  training=("${launch[@]}" "$DATA"
    --user-dir "$ROOT/fairseq_relpos" --arch "transformer_$encoding$SIZE" "${flags[@]}"
    --task translation --source-lang "$SOURCE" --target-lang "$TARGET"
    --encoder-layers "$LAYERS" --decoder-layers "$LAYERS"
    --encoder-embed-dim "$EMBED_DIM" --decoder-embed-dim "$EMBED_DIM"
    --encoder-ffn-embed-dim "$FFN_DIM" --decoder-ffn-embed-dim "$FFN_DIM"
    --encoder-attention-heads "$HEADS" --decoder-attention-heads "$HEADS"
    --max-source-positions "$MAX_POSITIONS" --max-target-positions "$MAX_POSITIONS"
    --dropout "$DROPOUT" --attention-dropout "$ATTENTION_DROPOUT" "${MODEL_FLAGS[@]}"
    --criterion label_smoothed_cross_entropy --label-smoothing "$LABEL_SMOOTHING"
    "${adam[@]}" "${checkpoints[@]}" "${keep[@]}" "${logs[@]}" --lr-scheduler "$SCHEDULE"
    --warmup-updates "$WARMUP_UPDATES" "${schedule[@]}" --max-update "$UPDATES"
    --max-tokens "$TOKENS_PER_UPDATE" --update-freq "$UPDATE_FREQ" --seed "$SEED" --num-workers 0
    --distributed-world-size "$GPUS" "${start[@]}" "${TRAIN_FLAGS[@]}" "$@")
}

conditions() {
  echo "batch $made tokens"
  text_digest
  [ ${#warm_start[@]} -eq 0 ] || echo "start $(digest "$began")"
}

train() {
  local made began place
  need_data
  training_command "$@"
  [ -d "$run" ] || need_encoding
  [ ${#warm_start[@]} -eq 0 ] || [ -e "$began" ] ||
    die "START_FROM=$START_FROM: no checkpoint $began: train it first, or set START_FROM=none"
  CONDITIONS=$(conditions)
  place_of_node
  lock "$place"
  if [ -e "$run/trained" ] || [ -e "$run/checkpoint_last.pt" ]; then
    need_same_dictionary
  else
    dictionary_digest >"$run/dictionary"
  fi
  train_to_the_end "$place" "$encoding, seed $SEED" "${training[@]}"
  keep_with_the_run
}

average() {
  need_data
  [ -e "$run/checkpoint_last.pt" ] || die "no checkpoint $run/checkpoint_last.pt: run.sh train $encoding first"
  need_same_dictionary
  lock "$run"
  python "$ROOT/scripts/average_checkpoints.py" "$run/average.pt" "--$AVERAGE_OF" "$AVERAGED" "$run" "$@"
}

# What translations depend on, beside the weights; kept with them in $run/decoded.
decoding() {
  local flags=("${GENERATE_FLAGS[@]}" "$@")
  echo "checkpoint $EVALUATED"
  echo "beam $BEAM, length penalty ${LENGTH_PENALTIES:+one of }${LENGTH_PENALTIES:-$LENGTH_PENALTY}, flags ${flags[*]:-none}"
  text_digest
}
text_digest() { echo "text $(sha256sum <"$DATA/sources.txt" | cut -d' ' -f1)"; }
is_decoded() {
  [ "$(cat "$run/decoded" 2>/dev/null)" = "$(decoding)" ] && ! [ "$checkpoint" -nt "$run/decoded" ]
}

# Where there is a choice, that of choose_penalty, if it was made for this checkpoint from these.
length_penalty() {
  [ -n "$LENGTH_PENALTIES" ] || { echo "$LENGTH_PENALTY"; return; }
  local chosen=() file=$run/length_penalty
  [ ! -e "$file" ] || read -ra chosen <"$file"
  [ "${chosen[*]:1}" = "of $LENGTH_PENALTIES" ] && ! [ "$checkpoint" -nt "$file" ] ||
    die "no length penalty is chosen for $checkpoint: run.sh generate $encoding first"
  echo "${chosen[0]}"
}

# decode OUT PENALTY COMMAND...: what generate and translate have in common
decode() {
  local flags out=$1
  mapfile -t flags < <(padding_flags)
  "$3" "$DATA" --user-dir "$ROOT/fairseq_relpos" "${flags[@]}" \
    --task translation --source-lang "$SOURCE" --target-lang "$TARGET" --path "$checkpoint" \
    --beam "$BEAM" --lenpen "$2" --batch-size "$BATCH_SENTENCES" \
    --required-batch-size-multiple 1 --post-process sentencepiece --num-workers 0 \
    "${GENERATE_FLAGS[@]}" "${@:4}" >"$out" 2>"$out.errors" </dev/null || {
    cat "$out" "$out.errors" >"$run/errors.txt"
    failed "$run/errors.txt"
  }
}

# Of LENGTH_PENALTIES the one with the best BLEU on the validation text -> $run/length_penalty
choose_penalty() {
  local penalty tried=()
  for penalty in $LENGTH_PENALTIES; do
    say "$encoding, seed $SEED: translating the validation text with length penalty $penalty"
    tried+=("$run/valid.penalty$penalty.txt")
    decode "$run/valid.penalty$penalty.txt" "$penalty" fairseq-generate --gen-subset valid --no-progress-bar "$@"
  done
  translations better "$run/length_penalty" "$TARGET" "of $LENGTH_PENALTIES" "${tried[@]}"
  rm -f "$run"/valid.penalty*
}

generate() {
  local split penalty length
  need_checkpoint "$(maker)"
  lock "$run"
  rm -f "$run/decoded" "$run/scores.json" # first: they say that all is done
  [ -z "$LENGTH_PENALTIES" ] || choose_penalty "$@"
  penalty=$(length_penalty)
  for split in $(test_splits); do
    say "$encoding, seed $SEED: translating $DATA/text/$split.$SOURCE with $checkpoint"
    length=() # fairseq writes 200 tokens at most
    ! grep -q "^joined $split " "$DATA/sources.txt" || length=(--max-len-a 2)
    decode "$run/$split.generate.txt" "$penalty" fairseq-generate --gen-subset "$split" --no-progress-bar \
      "${length[@]}" "$@"
    translations collect "$run/$split.generate.txt" "$DATA/text/$split.$SOURCE" "$run/$split.$TARGET" "$TEXT" "$TARGET"
  done
  decoding "$@" >"$run/decoded"
}

# Which action makes $checkpoint.
maker() { [ "$EVALUATED" = average.pt ] && echo average || echo train; }

translate() {
  local penalty
  need_checkpoint "$(maker)"
  penalty=$(length_penalty)
  work=$(mktemp -d)      # not local: the trap outlives this function
  trap 'rm -rf "$work"' EXIT
  cat >"$work/input.$SOURCE"
  corpus pieces "$DATA" "$SOURCE" "$work/input.$SOURCE" "$work/pieces"
  decode "$work/generated" "$penalty" fairseq-interactive --input "$work/pieces" --buffer-size "$BATCH_SENTENCES" "$@"
  translations collect "$work/generated" "$work/pieces" "$work/output" "$TEXT" "$TARGET"
  cat "$work/output"
}

score() {
  local split
  need_data
  for split in $(test_splits); do
    [ -e "$run/$split.$TARGET" ] || die "no translation $run/$split.$TARGET: run.sh generate $encoding first"
  done
  [ "$(grep '^text ' "$run/decoded" 2>/dev/null)" = "$(text_digest)" ] && ! [ "$checkpoint" -nt "$run/decoded" ] ||
    die "the translations in $run are of another text or of an older checkpoint: run.sh generate $encoding first"
  translations score "$run" "$DATA" "$TEXT" "$TARGET"
}


# What has not been done yet of all that the comparison needs.
evaluate() {
  train "$@"
  ! is_older_average || average
  is_decoded || generate
  if [ ! -e "$run/scores.json" ] || [ "$run/decoded" -nt "$run/scores.json" ]; then
    score
  fi
}

report() {
  need_data
  write_report "$TOOLS/report.py" "$1" SOURCE TARGET TEXT LENGTH_EDGES EVALUATED BEAM LENGTH_PENALTY LENGTH_PENALTIES \
    "DECODING=$(decoding)" "CONDITIONS=$(text_digest)"
  pack_runs "$RUNS" "$1"
}

# On one line, so that a run of hours does not see the file change.
act "train command average generate translate score evaluate" "$@"; exit
