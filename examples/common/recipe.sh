# Shared by the recipes (docs/recipes.md). Sourced by their scripts; needs bash 4.4.
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
  local name
  [ -z "${HAS_NAMED:-}" ] || return 0
  export HAS_NAMED=yes
  for name in $(cat "$ROOT"/examples/*/settings.sh | grep -oE '^[A-Z_]+=' | tr -d = | sort -u | comm -12 - <(compgen -e | sort)); do
    [[ NAME\ $FROM_ENVIRONMENT\  =~ (^|[[:space:]])$name[[:space:]] ]] || # some systems set NAME
      echo "$SCRIPT: $name=${!name} in the environment changes nothing: set it in a file, and SETTINGS=FILE" >&2
  done
}

# read_settings [FILE]: reads settings.sh or FILE, then the files in SETTINGS. A name that the first file does not have is an
# error, because it would silently change nothing. ENVIRONMENT gets the variables that were set, for the command in a report.
read_settings() {
  local _name _before _unknown _given=() _files=() _first=${1:-$HERE/settings.sh}
  name_what_has_no_effect
  ENVIRONMENT=
  for _name in SETTINGS $FROM_ENVIRONMENT; do
    [ -n "${!_name:-}" ] || continue
    [ "$_name" = SETTINGS ] || _given+=("$_name=${!_name}")
    case $_name in SEED | JOBS | COMPARED | ALLOCATOR) ;; *) ENVIRONMENT+="$_name='${!_name//"$ROOT/"/}' " ;; esac
  done
  # not every recipe has them
  unset DATA_NAME EVALUATED ALLOCATOR OPTIMIZER ADAM_EPS WARMUP_UPDATES UPDATES LOG_EVERY VALIDATE_EVERY SAVE_EVERY
  declare -gA VARIANTS=()
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
  for _name in "${_given[@]}"; do
    printf -v "${_name%%=*}" %s "${_name#*=}"
  done
  DATA=${DATA:-data-bin/${DATA_NAME:-$NAME}}
  RUNS=${RUNS:-runs/$NAME}
  export ALLOCATOR=${ALLOCATOR:-default} # for same_run.py
  case $ALLOCATOR in tuned | default) ;; *) die "ALLOCATOR=$ALLOCATOR: give tuned or default" ;; esac
  [ "${LEARNING_RATES:-}" != none ] || LEARNING_RATES= # an empty variable in the environment has no effect
}

# prepare KIND ARGUMENTS...: `prepare.sh`, with the settings in the environment (prepare.py)
prepare() {
  local names
  read_settings
  mapfile -t names < <(grep -ohE '^[A-Z_]+=' "$HERE/settings.sh" | tr -d =)
  export HERE SETTINGS="${SETTINGS:-}" "${names[@]}"
  python "$COMMON/prepare.py" "$@"
}

# end_in_order ARGUMENTS...: restarts this script with its arguments under a program that forwards signals to all children.
end_in_order() {
  [ -n "${SUPERVISED:-}" ] || SUPERVISED=yes exec python "$COMMON/stopping.py" recipe bash "$0" "$@"
  trap 'exit 75' TERM INT HUP USR1
}

# side_by_side JOBS <MANIFEST: runs each line with run.sh of its recipe (scripts/sweep.py), JOBS at a time
side_by_side() {
  local code=0
  python "$ROOT/scripts/sweep.py" each "$1" || code=$?
  [ $code != 75 ] || exit 75
  return $code
}

# compare [ENCODING...]: `compare.sh`: all runs of a comparison, then their report (scripts/sweep.py)
compare() {
  begin "$@"
  [ $# -gt 0 ] || set -- $COMPARED
  python "$ROOT/scripts/sweep.py" compare "$HERE" "$DATA" "$RUNS" "$JOBS" "$SEEDS" "$LEARNING_RATES" "$@"
}

# begin ARGUMENTS...: the first step of run.sh and compare.sh
begin() {
  end_in_order "$@"
  read_settings
}

# refuse_other_dictionary CHECKPOINT TEXT: refuses a checkpoint whose run had a dictionary with a digest that is not in TEXT
refuse_other_dictionary() {
  local kept
  kept=$(sed -n 's/^dictionary //p' "$(dirname "$1")/conditions" 2>/dev/null || true)
  [ -z "$kept" ] || grep -qF "$kept" <<<"$2" ||
    die "the dictionary in $DATA is not the one that $1 was trained with: run prepare.sh with --vocabulary of its data"
}

# hparams: the flag for HPARAMS of the encoding, and the flags of the variant -> `hparams`
hparams() {
  hparams=("${variant[@]}")
  [ -z "${HPARAMS[$encoding]:-}" ] || hparams+=("--position-hparams=${HPARAMS[$encoding]}")
}

# write_report PROGRAM FOLDER NAME...: PROGRAM gets these settings and those that every report needs as NAME=VALUE; NAME may be
# a NAME=VALUE, too. Then the runs are packed beside the report.
write_report() {
  local name values=("RECIPE=$(basename "$HERE")" "CONDITIONS=$([ ! -e "$DATA/dict.txt" ] || data_conditions)")
  for name in RUNS DATA BASELINE SEEDS LEARNING_RATES COMPARED ENVIRONMENT "${@:3}"; do
    case $name in *=*) values+=("$name") ;; *) values+=("$name=${!name:-}") ;; esac
  done
  python "$1" "$2" "${values[@]}"
  pack_runs "$RUNS" "$2"
}

# Inputs of a run that are not in its command line, one per line. Set by the recipes.
export CONDITIONS=
same_run() { python "$COMMON/same_run.py" "$@"; }

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
  refuse_batch_flags "GPUS and UPDATE_FREQ say" "$@"
  [[ $gpus =~ ^[0-9]+$ ]] || die "GPUS=$gpus: give a number"
  ranks=$((gpus > 1 ? gpus : 1))
  [ $((BATCH % (ranks * UPDATE_FREQ))) -eq 0 ] ||
    die "BATCH=$BATCH is no multiple of $ranks processes x UPDATE_FREQ=$UPDATE_FREQ: give one that is"
  rows=$((BATCH / ranks / UPDATE_FREQ)) device=()
  [ "$gpus" -gt 0 ] || device=(--cpu)
  precision_flags
  launcher "$ranks"
}

# shared_flags: flags of fairseq-train that stand in several recipes, with the values of the settings
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

# train_run WHAT: runs `training`, unless this run is finished, after `warm_start`, which makes the checkpoint it begins with
train_run() { same_run run "$1" "$run" ${#warm_start[@]} "${warm_start[@]}" "${training[@]}"; }

# train [flags]: `run.sh train`. training_command and conditions are functions of the recipe.
train() {
  need_data
  training_command "$@"
  [ -d "$run" ] || need_encoding
  CONDITIONS=$(conditions)
  before_training
  train_run "$encoding, seed $SEED$machine"
}
conditions() { data_conditions; }
before_training() { :; }
need_data() { [ -e "$DATA/dict.txt" ] || die "no data in $DATA: run prepare.sh first, or set DATA"; }

# Checks the name before a folder is made; fairseq would list its hundreds of architectures.
need_encoding() {
  local message
  message=$(python -m fairseq_relpos show "$encoding" 2>&1 >/dev/null) || die "$(tail -n 1 <<<"$message")"
}

# print_command [flags]: `run.sh command`. training_command of the recipe sets `training`, and `warm_start` if it is needed.
warm_start=() variant=() machine=
print_command() {
  need_encoding
  training_command "$@"
  [ ${#warm_start[@]} -eq 0 ] || same_run show mkdir -p "$run"
  [ ${#warm_start[@]} -eq 0 ] || same_run show "${warm_start[@]}"
  same_run show "${training[@]}"
}

# act ACTIONS ACTION ENCODING [...]: calls the function with the name of the action, with $run and $checkpoint set
act() {
  local action=${2:-}
  usage="usage: run.sh ${1// /|} ENCODING [...], or run.sh report [FOLDER]"
  case " $1 report " in *" ${action:-none} "*) ;; *) die "$usage" ;; esac
  if [ "$action" = report ]; then
    [ $# -le 3 ] || die "$usage"
    report "${3:-$RUNS}"
    return
  fi
  encoding=${3:-}
  [ -n "$encoding" ] || die "which encoding? $usage"
  run=$RUNS/$encoding-seed$SEED
  variant=(${VARIANTS[$encoding]:-$encoding}) # an encoding and flags
  encoding=${variant[0]} variant=("${variant[@]:1}")
  checkpoint=$run/${EVALUATED:-checkpoint_last.pt}
  shared_flags
  [ "$action" != command ] || action=print_command
  "${action//-/_}" "${@:4}"
}

# lock FOLDER: only one process at a time works on a run
lock() {
  local status=0
  mkdir -p "$1"
  command -v flock >/dev/null || return 0
  exec 9>"$1/lock"
  flock -n 9 || status=$?
  if [ $status -eq 1 ]; then
    say "$1 is in use by another process: waiting for it"
    flock 9
  elif [ $status -ne 0 ]; then
    say "$1 is on a file system without locks: see to it that nothing else works there"
  fi
}

# digest FILE...: one digest of all files
digest() { cat -- "$@" | sha256sum | cut -d' ' -f1; }

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

# preprocess LOG [flags]: fairseq-preprocess. On a full disk the log may be empty, too.
preprocess() {
  fairseq-preprocess "${@:2}" >"$1" 2>&1 && return
  if [ ! -s "$1" ] || grep -qE "No space left on device|File too large|Disk quota exceeded" "$1"; then
    die "fairseq-preprocess failed: no room to write in $(dirname "$1"): make room and run this again"
  fi
  die "fairseq-preprocess failed: $(tail -n 1 "$1") (all of it in $1)"
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

# splits KIND...: the splits of these kinds in the data; `valid` if there are no data yet.
splits() {
  [ -e "$DATA/dict.txt" ] || { echo valid; return; }
  (cd "$DATA" && printf '%s\n' *.bin) | sed 's/\.bin$//' | grep -E "^($(IFS='|'; echo "$*"))" | sort -V | paste -sd,
}
# The conditions of a language model's data. With other words in a dictionary of the same size, every id would be another
# word.
data_conditions() { echo "dictionary $(digest "$DATA/dict.txt")"; echo "text $(digest "$DATA/sources.txt")"; }
need_checkpoint() {
  [ -e "$checkpoint" ] || die "no checkpoint $checkpoint: run.sh train $encoding first"
  need_dictionary
}
need_dictionary() {
  [ ! -e "$run/conditions" ] || grep -qxF "$(data_conditions | head -n 1)" "$run/conditions" ||
    die "the dictionary in $DATA is not the one that $run was trained with: set DATA to its data, or RUNS to another folder"
}

# pack_runs RUNS FOLDER: packs the inputs of a report into FOLDER/runs.tar.xz, to repeat or extend it:
# tar -xJf FOLDER/runs.tar.xz -C RUNS
pack_runs() {
  [ "$(realpath "$1")" != "$(realpath "$2")" ] || return 0
  local work
  work=$(mktemp -d)
  # without the sources and references of a test set, which we may not have the right to distribute
  tar -C "$1" --exclude='*.pt' --exclude='*.generate.txt' --exclude='valid.penalty*' --exclude=lock --exclude=output.txt --exclude=errors.txt --exclude='*.errors' -c . | tar -C "$work" -x
  { grep -rlZF -- "$ROOT" "$work" || true; } | xargs -0 -r sed -i "s|$ROOT|.|g" # other files keep their dates
  tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -cJf "$2/runs.tar.xz.part" .
  mv "$2/runs.tar.xz.part" "$2/runs.tar.xz"
  rm -r "$work"
}
