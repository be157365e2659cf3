# Shared by the recipes (docs/recipes.md). Sourced by their scripts; needs bash 4.4.
#
# A run.sh calls `begin`, defines training_command, report and a function for each of its other actions, and ends with `act`, which
# calls the function of the action. These functions share the settings and:
#
#   encoding, task      words of the call, as ARGUMENTS lists them; `usage`, for an error       set by act
#   run, checkpoint     the folder of the run, and the checkpoint that is evaluated             choose_run
#   variant             flags of the variant of the encoding                                    choose_run
#   training            the command of the training; warm_start: one that has to run before it  training_command of run.sh
#   machine             words on the machine, for a message                                     training_command of run.sh
#
# A run.sh may define choose_run, need_data, need_checkpoint, conditions and before_training anew.
set -euo pipefail
shopt -s inherit_errexit # an error within $(...) ends the script
[ ! -f "$0" ] || HERE=$(cd "$(dirname "$0")" && pwd) # the folder of the recipe
COMMON=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$COMMON/../.." && pwd)
[ ! -d "$ROOT/.venv/bin" ] || PATH=$ROOT/.venv/bin:$PATH
SCRIPT=$(basename "$0")
# PYTHONPATH: works without an installed plugin. OMP_NUM_THREADS: small tensors are not faster with more threads, and two
# runs can share two cores.
export SCRIPT PYTHONPATH=$ROOT${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

say() { echo "$SCRIPT: $*"; }
die() { echo "$SCRIPT: error: $*" >&2; exit 1; }

# These variables override the settings files; other variables are ignored.
FROM_ENVIRONMENT="DATA RUNS SEED SEEDS LEARNING_RATE LEARNING_RATES COMPARED FOLD JOBS WORKERS GPUS TOKENS_PER_UPDATE
  UPDATE_FREQ MACHINE START_FROM LAUNCH ALLOCATOR PRECISION"

# name_what_has_no_effect: prints ignored variables that are settings of a recipe, once for all child scripts
name_what_has_no_effect() {
  local name exported accepted=($FROM_ENVIRONMENT NAME) # some systems set NAME
  [ -z "${HAS_NAMED:-}" ] || return 0
  export HAS_NAMED=yes
  exported=" $(compgen -e | tr '\n' ' ')"
  for name in $(sed -n 's/^\([A-Z_]*\)=.*/\1/p' "$ROOT"/examples/*/settings.sh | sort -u); do
    [[ $exported == *" $name "* && " ${accepted[*]} " != *" $name "* ]] || continue
    echo "$SCRIPT: $name=${!name} in the environment changes nothing: set it in a file, and SETTINGS=FILE" >&2
  done
}

# read_settings [FILE]: reads settings.sh or FILE, then the files in SETTINGS. A name that the first file does not have is an
# error, because it would silently change nothing. ENVIRONMENT gets the variables that were set, for the command in a report.
read_settings() {
  local _name _before _unknown _given=() _files=() _named=${HAS_NAMED:-} _first=${1:-$HERE/settings.sh}
  name_what_has_no_effect
  for _name in SETTINGS $FROM_ENVIRONMENT; do
    [ -z "${!_name:-}" ] || _given+=("$_name=${!_name}")
  done
  # not every recipe has them; electra's prepare.sh passes WORKERS on
  unset ${FROM_ENVIRONMENT/WORKERS/} VARIANTS DATA_NAME EVALUATED OPTIMIZER ADAM_EPS WARMUP_UPDATES UPDATES LOG_EVERY \
    VALIDATE_EVERY SAVE_EVERY
  . "$_first"
  _files=(${SETTINGS:-})
  [ ! -f "${SETTINGS:-}" ] || _files=("$SETTINGS") # its name may have a space
  for _name in "${_files[@]}"; do
    [ -f "$_name" ] && [ -r "$_name" ] || die "SETTINGS=$_name is no readable file: give one like $_first"
    _before=$(compgen -v)
    . "$_name"
    _unknown=$(comm -13 <(sort <<<"$_before") <(compgen -v | sort) | grep -vxE '_.*|BASH_.*|PIPESTATUS' || true)
    [ -z "$_unknown" ] || die "unknown setting ${_unknown//$'\n'/, } in $_name: $_first has all that there are"
  done
  ENVIRONMENT=
  for _name in "${_given[@]}"; do
    [[ -v ${_name%%=*} ]] || { [ -n "$_named" ] || echo "$SCRIPT: $_name changes nothing in this recipe" >&2; continue; }
    export "$_name"
    case $_name in SEED=* | JOBS=* | COMPARED=* | ALLOCATOR=*) continue ;; esac
    _name=${_name//"$ROOT/"/}
    ENVIRONMENT+="${_name%%=*}='${_name#*=}' "
  done
  DATA=${DATA:-data-bin/${DATA_NAME:-$NAME}}
  RUNS=${RUNS:-runs/$NAME}
  export ALLOCATOR=${ALLOCATOR:-default} # for same_run.py
  case $ALLOCATOR in tuned | default) ;; *) die "ALLOCATOR=$ALLOCATOR: give tuned or default" ;; esac
  [ "${LEARNING_RATES:-}" != none ] || LEARNING_RATES= # an empty variable in the environment has no effect
}

# prepare KIND ARGUMENTS...: `prepare.sh`, with the settings in the environment (prepare.py)
prepare() {
  set -a
  read_settings
  export HERE SETTINGS="${SETTINGS:-}"
  python "$COMMON/prepare.py" "$@"
}

# begin ARGUMENTS...: the first step of run.sh and compare.sh
begin() {
  end_in_order "$@"
  read_settings
}

# end_in_order ARGUMENTS...: restarts this script with its arguments under a program that forwards signals to all children.
end_in_order() {
  [ -n "${SUPERVISED:-}" ] || SUPERVISED=yes exec python "$COMMON/stopping.py" recipe bash "$0" "$@"
  trap 'exit 75' TERM INT HUP USR1
}

# compare [ENCODING...]: `compare.sh`: all runs of a comparison, then their report (scripts/sweep.py)
compare() {
  begin "$@"
  [ $# -gt 0 ] || set -- $COMPARED
  python "$ROOT/scripts/sweep.py" compare "$HERE" "$DATA" "$RUNS" "$JOBS" "$SEEDS" "$LEARNING_RATES" "$@"
}

# act ACTIONS ACTION ARGUMENT... [...]: the last step of run.sh. Sets the variables that $ARGUMENTS names, calls choose_run, and
# then the function with the name of the action.
ARGUMENTS=encoding
act() {
  local action=${2:-} name usage
  usage="usage: run.sh ${1// /|} ${ARGUMENTS^^} [...], or run.sh report [FOLDER]"
  case " $1 report " in *" ${action:-none} "*) ;; *) die "$usage" ;; esac
  if [ "$action" = report ]; then
    [ $# -le 3 ] || die "$usage"
    report "${3:-$RUNS}"
    return
  fi
  shift 2
  for name in $ARGUMENTS; do
    [ -n "${1:-}" ] || die "which $name? $usage"
    printf -v "$name" %s "$1"
    shift
  done
  choose_run
  case $action in
    command) print_command "$@" ;;
    test) test_part "$@" ;;
    *) "${action//-/_}" "$@" ;;
  esac
}
choose_run() {
  run=$RUNS/$encoding-seed$SEED
  if declare -p VARIANTS &>/dev/null; then # a recipe that has variants calls `hparams`
    variant=(${VARIANTS[$encoding]:-$encoding}) # an encoding and flags
    encoding=${variant[0]} variant=("${variant[@]:1}")
  fi
  checkpoint=$run/${EVALUATED:-checkpoint_last.pt}
}

# --- training ---

task= machine= variant=() warm_start=()
export CONDITIONS= # for same_run.py: inputs of a training that are not in its command line, one per line
same_run() { python "$COMMON/same_run.py" "$@"; }

# train [flags]: trains, unless this run is finished
train() {
  need_data
  training_command "$@"
  [ -d "$run" ] || need_encoding
  CONDITIONS=$(conditions)
  before_training
  same_run run "${task:+$task: }$encoding, seed $SEED$machine" "$run" ${#warm_start[@]} "${warm_start[@]}" "${training[@]}"
}
conditions() { data_conditions; }
before_training() { :; }

# print_command [flags]: `run.sh command`
print_command() {
  need_encoding
  training_command "$@"
  if [ ${#warm_start[@]} -gt 0 ]; then
    same_run show mkdir -p "$run"
    same_run show "${warm_start[@]}"
  fi
  same_run show "${training[@]}"
}

# Checks the name before a folder is made; fairseq would list its hundreds of architectures.
need_encoding() {
  local message
  message=$(python -m fairseq_relpos show "$encoding" 2>&1 >/dev/null) || die "$(tail -n 1 <<<"$message")"
}

# shared_flags: flags of fairseq-train in several recipes -> `adam`, `linear`, `checkpoints`, `logs`
shared_flags() {
  adam=(--optimizer "${OPTIMIZER:-adam}" --adam-betas "$ADAM_BETAS" ${ADAM_EPS:+--adam-eps "$ADAM_EPS"}
    --weight-decay "$WEIGHT_DECAY" --clip-norm "$CLIP_NORM" --lr "$LEARNING_RATE")
  # a linear rise, and a linear fall to 0
  linear=(--lr-scheduler polynomial_decay --warmup-updates "${WARMUP_UPDATES:-}"
    --total-num-update "${UPDATES:-}" --max-update "${UPDATES:-}")
  # epochs do not matter
  checkpoints=(--validate-interval-updates "${VALIDATE_EVERY:-${SAVE_EVERY:-}}" --validate-interval 1000000
    --save-interval-updates "${SAVE_EVERY:-${VALIDATE_EVERY:-}}" --save-interval 1000000 --no-epoch-checkpoints)
  # the default of --required-batch-size-multiple, 8, would silently leave samples out of every validation
  logs=(--required-batch-size-multiple 1
    --save-dir "$run" --log-format json ${LOG_EVERY:+--log-interval "$LOG_EVERY"} --log-file "$run/train.log")
}

# hparams: the flag for HPARAMS of the encoding, and the flags of the variant, which win over it -> `hparams`
hparams() {
  hparams=()
  [ -z "${HPARAMS[$encoding]:-}" ] || hparams=("--position-hparams=${HPARAMS[$encoding]}")
  hparams+=("${variant[@]}")
}

# launcher RANKS: the part of the command before the data and the flags -> `launch`. For several machines it is LAUNCH.
launcher() {
  launch=(fairseq-train)
  # ranks started by fairseq-train itself do not save on a signal
  [ "$1" -eq 1 ] || launch=(bash "$ROOT/scripts/launch_torchrun.sh" --nproc_per_node "$1" --)
  [ -z "${LAUNCH:-}" ] || launch=($LAUNCH)
}

# precision_flags -> `precision`
precision_flags() {
  case ${PRECISION:-fp32} in
    fp16 | bf16 | amp) precision=("--$PRECISION") ;;
    fp32) precision=() ;;
    *) die "PRECISION=$PRECISION: give fp32, fp16, bf16 or amp" ;;
  esac
}

# divide_batch [flags]: BATCH over GPUS and UPDATE_FREQ -> $ranks, $rows, `launch`, `precision`, `device`
divide_batch() {
  local gpus=${GPUS:-1}
  [[ $gpus =~ ^[0-9]+$ ]] || die "GPUS=$gpus: give a number"
  ranks=$((gpus > 1 ? gpus : 1)) device=()
  divide_over "$ranks" "GPUS and UPDATE_FREQ say" "$@"
  [ "$gpus" -gt 0 ] || device=(--cpu)
  precision_flags
  launcher "$ranks"
}

# divide_over RANKS WHO_SAYS [flags]: BATCH over so many processes and UPDATE_FREQ -> $rows
divide_over() {
  refuse_batch_flags "${@:2}"
  [ $((BATCH % ($1 * UPDATE_FREQ))) -eq 0 ] ||
    die "BATCH=$BATCH is no multiple of $1 processes x UPDATE_FREQ=$UPDATE_FREQ: give one that is"
  rows=$((BATCH / $1 / UPDATE_FREQ))
}

# refuse_batch_flags WHO_SAYS [flags]: refuses flags that would change the batch of the settings
refuse_batch_flags() {
  local flag
  for flag in "${@:2}"; do
    case ${flag%%=*} in
      --batch-size | --max-sentences | --max-tokens | --update-freq | --distributed-world-size)
        die "$flag: the batch is BATCH=$BATCH of the settings, and $1 how it is made" ;;
    esac
  done
}

# --- data and checkpoints ---

need_data() { [ -e "$DATA/dict.txt" ] || die "no data in $DATA: run prepare.sh first, or set DATA"; }
need_checkpoint() {
  [ -e "$checkpoint" ] || die "no checkpoint $checkpoint: train it first (run.sh train)"
  need_dictionary
}
# With other words in a dictionary of the same size, every id would be another word.
need_dictionary() {
  [ ! -e "$run/conditions" ] || grep -qxF "$(data_conditions | head -n 1)" "$run/conditions" ||
    die "the dictionary in $DATA is not the one that $run was trained with: set DATA to its data, or RUNS to another folder"
}
data_conditions() { echo "dictionary $(digest "$DATA/dict.txt")"; echo "text $(digest "$DATA/sources.txt")"; }
# digest FILE...: one digest of all files
digest() { cat -- "$@" | sha256sum | cut -d' ' -f1; }
# start_condition: the checkpoint that a training begins with, as a line of its conditions
start_condition() {
  [ -n "$START_FROM" ] || return 0
  [ -f "$START_FROM" ] || die "START_FROM=$START_FROM: no such checkpoint"
  refuse_other_dictionary "$START_FROM" "$(data_conditions)"
  echo "start $(digest "$START_FROM")"
}

# refuse_other_dictionary CHECKPOINT TEXT: refuses a checkpoint whose run had a dictionary with a digest that is not in TEXT
refuse_other_dictionary() {
  local kept
  kept=$(sed -n 's/^dictionary //p' "$(dirname "$1")/conditions" 2>/dev/null || true)
  [ -z "$kept" ] || grep -qF "$kept" <<<"$2" ||
    die "the dictionary in $DATA is not the one that $1 was trained with: prepare $DATA with the vocabulary of its data"
}

# splits KIND...: the splits of these kinds in the data; `valid` if there are no data yet.
splits() {
  [ -e "$DATA/dict.txt" ] || { echo valid; return; }
  (cd "$DATA" && printf '%s\n' *.bin) | sed 's/\.bin$//' | grep -E "^($(IFS='|'; echo "$*"))" | sort -V | paste -sd,
}

# trained_with FLAG: its last value in the command that has trained the run, whatever the settings are now
trained_with() { sed -nE "s/.* '--$1(=|' ')([^']*)'.*/\2/p" "$run/trained"; }

# --- other steps ---

# lock FOLDER: waits until no other process works on a run
lock() {
  mkdir -p "$1"
  exec 9>>"$1/lock"
  python "$COMMON/stopping.py" lock 9 "$1"
}

# logged FILE COMMAND...: writes all output to FILE, whose last line has the error
logged() { "${@:2}" >"$1" 2>&1 </dev/null || failed "$1"; }
# errors_in FILE COMMAND...: writes stderr to FILE
errors_in() { "${@:2}" 2>"$1" </dev/null || failed "$1"; }
# a run that has diverged says so by its exit code
failed() {
  local code=$?
  [ $code = 76 ] || code=1
  echo "$SCRIPT: error: $(tail -n 1 "$1") (all of it in $1)" >&2
  exit $code
}

# order_gap [flags of fairseq-relpos order-gap]: the loss of a masked language model, with and without the order of the tokens
order_gap() {
  need_data
  need_checkpoint
  lock "$run" # a training would make the checkpoint older than what is said of it
  say "$encoding, seed $SEED: loss, and loss with the tokens of each block permuted"
  errors_in "$run/order_gap.log" python -m fairseq_relpos order-gap "$checkpoint" "$DATA" --seed "$MASK_SEED" \
    --json "$run/order_gap.json" "$@"
}

# is_current FILE TEXT INPUT: FILE of the run has this text, and is not older than INPUT
is_current() { [ "$(cat "$run/$1" 2>/dev/null)" = "$2" ] && ! [ "$3" -nt "$run/$1" ]; }

# write_report PROGRAM FOLDER NAME...: PROGRAM gets these settings and those that every report needs as NAME=VALUE; NAME may be
# a NAME=VALUE, too. Then the runs are packed beside the report.
write_report() {
  local name values=("RECIPE=$(basename "$HERE")" "CONDITIONS=$([ ! -e "$DATA/dict.txt" ] || data_conditions)")
  for name in RUNS DATA BASELINE SEEDS LEARNING_RATES COMPARED ENVIRONMENT "${@:3}"; do
    case $name in *=*) values+=("$name") ;; *) values+=("$name=${!name:-}") ;; esac
  done
  python "$1" "$2" "${values[@]}"
  same_run pack "$RUNS" "$2"
}
