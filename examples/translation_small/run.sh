#!/usr/bin/env bash
# Trains one translation model, translates and scores the test sets. docs/recipes.md has what all recipes share, such as resuming
# and `command`.
#
#   bash examples/translation_small/run.sh train|command|average|generate|score|evaluate ENCODING [...]
#   bash examples/translation_small/run.sh translate ENCODING <TEXT      # one sentence a line
#   bash examples/translation_small/run.sh report [FOLDER]               # all runs, into FOLDER (default: $RUNS)
#
# generate and translate use EVALUATED of settings.sh, which may be average.pt. ../translation_wmt_en_de/run.sh is the same with
# the settings there.
. "$(dirname "${BASH_SOURCE[0]}")/../common/recipe.sh"
[ "${1:-}" = translate ] || end_in_order "$@" # which reads the text that a terminal may write
read_settings
TOOLS=$ROOT/examples/translation_small # also for translation_wmt_en_de
translations() { SOURCE=$SOURCE TARGET=$TARGET TEXT=$TEXT DATA=$DATA CHECKPOINT=$checkpoint python "$TOOLS/translations.py" "$@"; }

need_data() {
  [ -e "$DATA/dict.$TARGET.txt" ] ||
    die "no data in $DATA: run prepare.sh first, or set DATA, or SETTINGS, to those that it had"
}

# Absolute positions count real tokens. If sources are padded on the left, fairseq's default, those of a batch begin at
# different places, and a bias made from absolute positions needs a matrix for each sentence instead of one for all. The flag
# switches the default off.
encoding_flags() {
  hparams
  layers=() padding=()
  [ "$POSITION_LAYERS" = all ] || layers=("--position-layers=$POSITION_LAYERS")
  case $encoding in tupe_* | bert_ad) padding=(--left-pad-source) ;; esac
}

# A dictionary of the same size and other words would give words without sense.
dictionary_digest() { digest "$DATA/dict.$SOURCE.txt" "$DATA/dict.$TARGET.txt"; }
need_same_dictionary() {
  [ "$(cat "$run/dictionary" 2>/dev/null)" = "$(dictionary_digest)" ] ||
    die "the dictionaries in $DATA are not those that $run was trained with: set DATA to its data, or RUNS to another folder"
}

need_checkpoint() {
  need_data
  [ -e "$checkpoint" ] ||
    die "no checkpoint $checkpoint: run.sh $([ "$EVALUATED" = average.pt ] && echo average || echo train) $encoding first"
  need_same_dictionary
  ! is_old_average || die "$checkpoint is older than the training, or another average: run.sh average $encoding first"
}
is_old_average() { # an older run does not say of which checkpoints it is
  local made="last $AVERAGED"
  [ "$EVALUATED" = average.pt ] &&
    { [ "$run/checkpoint_last.pt" -nt "$checkpoint" ] || [ "$(cat "$run/averaged" 2>/dev/null || echo "$made")" != "$made" ]; }
}

# Tokens of an update -> $made, on $GPUS: without a number all of this machine, as fairseq-train takes them.
make_batch() { # [flags]
  local advice pass
  [ -z "${BATCH:-}" ] || refuse_batch_flags "GPUS, TOKENS_PER_UPDATE and UPDATE_FREQ say" "$@"
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

training_command() { # [flags of fairseq-train]
  local schedule start=() layers padding launch precision
  make_batch "${TRAIN_FLAGS[@]}" "$@"
  shared_flags
  encoding_flags
  precision_flags
  began=
  if [ "${START_FROM:-none}" != none ]; then
    began=$START_FROM
    [[ $began = *.pt ]] || began+=/$(basename "$run")/checkpoint_last.pt
    start=(--finetune-from-model "$run/start.pt")
    warm_start=(python -m fairseq_relpos warm-start "$began" "$run/start.pt" --arch "transformer_$encoding$SIZE"
      --seed "$SEED" "${layers[@]}" "${hparams[@]}")
  fi
  case $SCHEDULE in
    inverse_sqrt) schedule=(--warmup-init-lr "$WARMUP_INIT_LR") ;;
    polynomial_decay) schedule=(--total-num-update "$UPDATES") ;; # down to 0
    *) die "SCHEDULE=$SCHEDULE: give inverse_sqrt or polynomial_decay" ;;
  esac
  launcher "$GPUS"
  training=("${launch[@]}" "$DATA"
    --user-dir "$ROOT/fairseq_relpos" --arch "transformer_$encoding$SIZE" "${layers[@]}" "${hparams[@]}" "${padding[@]}"
    --task translation --source-lang "$SOURCE" --target-lang "$TARGET"
    --encoder-layers "$LAYERS" --decoder-layers "$LAYERS"
    --encoder-embed-dim "$EMBED_DIM" --decoder-embed-dim "$EMBED_DIM"
    --encoder-ffn-embed-dim "$FFN_DIM" --decoder-ffn-embed-dim "$FFN_DIM"
    --encoder-attention-heads "$HEADS" --decoder-attention-heads "$HEADS"
    --max-source-positions "$MAX_POSITIONS" --max-target-positions "$MAX_POSITIONS"
    --dropout "$DROPOUT" --attention-dropout "$ATTENTION_DROPOUT" "${MODEL_FLAGS[@]}"
    --criterion label_smoothed_cross_entropy --label-smoothing "$LABEL_SMOOTHING"
    "${adam[@]}" "${checkpoints[@]}" --keep-interval-updates "$AVERAGED" "${logs[@]}" --lr-scheduler "$SCHEDULE"
    --warmup-updates "$WARMUP_UPDATES" "${schedule[@]}" --max-update "$UPDATES"
    --max-tokens "$TOKENS_PER_UPDATE" --update-freq "$UPDATE_FREQ" --seed "$SEED" --num-workers 0
    --distributed-world-size "$GPUS" "${start[@]}" "${precision[@]}" "${TRAIN_FLAGS[@]}" "$@")
}

conditions() {
  [ -z "$began" ] || [ -e "$began" ] ||
    die "START_FROM=$START_FROM: no checkpoint $began: train it first, or set START_FROM=none"
  [ -z "$began" ] || refuse_other_start
  echo "batch $made tokens"
  text_digest
  [ -z "$began" ] || echo "start $(digest "$began")"
}

# With other words in dictionaries of the same sizes, every id would be another word.
refuse_other_start() {
  local kept
  refuse_other_dictionary "$began" "$(digest "$DATA/dict.$SOURCE.txt")" # of a BART
  kept=$(cat "$(dirname "$began")/dictionary" 2>/dev/null || true) # of a translator
  [ -z "$kept" ] || [ "$kept" = "$(dictionary_digest)" ] ||
    die "the dictionaries in $DATA are not those that $began was trained with: prepare $DATA with the vocabulary of its data"
}

before_training() {
  if [ -e "$run/trained" ] || [ -e "$run/checkpoint_last.pt" ]; then
    need_same_dictionary
  else
    mkdir -p "$run"
    dictionary_digest >"$run/dictionary"
  fi
}

average() { # AVERAGED checkpoints -> average.pt
  need_data
  [ -e "$run/checkpoint_last.pt" ] || die "no checkpoint $run/checkpoint_last.pt: run.sh train $encoding first"
  need_same_dictionary
  lock "$run"
  python "$ROOT/scripts/average_checkpoints.py" "$run/average.pt" --last "$AVERAGED" "$run" "$@"
  echo "last $AVERAGED" >"$run/averaged"
}

# Translations depend on this besides the weights; written to $run/decoded.
decoding() {
  local flags=("${GENERATE_FLAGS[@]}" "$@")
  echo "checkpoint $EVALUATED"
  echo "beam $BEAM, length penalty ${LENGTH_PENALTIES:+one of }${LENGTH_PENALTIES:-$LENGTH_PENALTY}, flags ${flags[*]:-none}"
  text_digest
}
text_digest() { echo "text $(digest "$(sources)")"; }
# The sources of the data; the runs have a copy.
sources() { if [ -e "$DATA/sources.txt" ]; then echo "$DATA/sources.txt"; else echo "$RUNS/sources.txt"; fi; }

# decode ACTION PROGRAM [flags]: fairseq-generate or fairseq-interactive; translations.py adds text and length penalty
decode() {
  local padding layers
  encoding_flags
  translations "$1" "$run" "${LENGTH_PENALTIES:-$LENGTH_PENALTY}" "$2" "$DATA" --user-dir "$ROOT/fairseq_relpos" "${padding[@]}" \
    --task translation --source-lang "$SOURCE" --target-lang "$TARGET" --path "$checkpoint" \
    --beam "$BEAM" --batch-size "$BATCH_SENTENCES" --required-batch-size-multiple 1 --post-process sentencepiece \
    --num-workers 0 "${GENERATE_FLAGS[@]}" "${@:3}"
}

generate() { # [flags of fairseq-generate]: every test set
  need_checkpoint
  lock "$run"
  rm -f "$run/decoded" "$run/scores.json" # first: they say that all is done
  decode generate fairseq-generate --no-progress-bar "$@"
  decoding "$@" >"$run/decoded"
}

translate() { # [flags of fairseq-interactive]
  need_checkpoint
  decode translate fairseq-interactive --buffer-size "$BATCH_SENTENCES" "$@"
}

score() { # BLEU by several conventions, chrF
  local name
  need_data
  for name in "$DATA"/text/test*."$TARGET"; do
    [ -e "$run/$(basename "$name")" ] || die "no translation $run/$(basename "$name"): run.sh generate $encoding first"
  done
  [ "$(grep '^text ' "$run/decoded" 2>/dev/null)" = "$(text_digest)" ] && ! [ "$checkpoint" -nt "$run/decoded" ] ||
    die "the translations in $run are of another text or of an older checkpoint: run.sh generate $encoding first"
  translations score "$run" "$LENGTH_EDGES"
}

evaluate() {
  train "$@"
  ! is_old_average || average
  is_current decoded "$(decoding)" "$checkpoint" || generate
  is_scored || score
}

is_scored() { # as report.py wants it: each file was made after the one before
  [ -e "$run/scores.json" ] && ! [ "$run/decoded" -nt "$run/lengths.json" ] &&
    ! [ "$run/lengths.json" -nt "$run/scores.json" ] && grep -qF "\"edges\": \"$LENGTH_EDGES\"" "$run/lengths.json"
}

report() {
  [ -e "$(sources)" ] || need_data
  write_report "$TOOLS/report.py" "$1" SOURCE TARGET TEXT LENGTH_EDGES EVALUATED BEAM LENGTH_PENALTY LENGTH_PENALTIES START_FROM \
    "DECODING=$(decoding)" "CONDITIONS=$(text_digest)"
}

# On one line, so that a run of hours does not see the file change.
act "train command average generate translate score evaluate" "$@"; exit
