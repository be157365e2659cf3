# What the recipes share. Sourced by their own scripts; needs bash 4.4.
shopt -s inherit_errexit # an error within $(...) is one
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ ! -d "$ROOT/.venv/bin" ] || PATH=$ROOT/.venv/bin:$PATH
python -c 'import sys; from importlib.util import find_spec as find; sys.exit(not (find("torch") and find("fairseq")))' 2>/dev/null || {
  echo "$(basename "$0"): error: this python has no torch and fairseq: bash scripts/setup.sh first, or activate your environment" >&2
  exit 1
}
# Also where the plugin is not installed.
export PYTHONPATH=$ROOT${PYTHONPATH:+:$PYTHONPATH}
# Tensors of this size gain nothing from more threads, and two runs can share two cores.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

say() { echo "$(basename "$0"): $*"; }
die() { echo "$(basename "$0"): error: $*" >&2; exit 1; }
. "$ROOT/examples/common/stopping.sh"

# read_settings FILE LIKE: SETTINGS names it, LIKE is one to copy
read_settings() {
  [ -f "$1" ] && [ -r "$1" ] || die "SETTINGS=$1 is no readable file: give one like $2"
  . "$1"
}

# lock FOLDER: one process at a time works on a run
lock() {
  local status=0
  mkdir -p "$1"
  command -v flock >/dev/null || return 0
  exec 9>"$1/lock"
  flock -n 9 || status=$?
  if [ $status -eq 1 ]; then
    say "$1 is in use by another process: waiting for it"
    stoppable flock 9 || status=$?
    [ $status != $STOPPED ] || stopped
  elif [ $status -ne 0 ]; then
    say "$1 is on a file system without locks: see to it that nothing else works there"
  fi
}

# digest FILE...: of all of them together
digest() { cat -- "$@" | sha256sum | cut -d' ' -f1; }

# logged FILE COMMAND...: with everything it prints in FILE
logged() {
  local code=0
  stoppable "${@:2}" >"$1" 2>&1 || code=$?
  need_success $code "$1"
}

# errors_in FILE COMMAND...: with its errors in FILE
errors_in() {
  local code=0
  stoppable "${@:2}" 2>"$1" || code=$?
  need_success $code "$1"
}

# need_success CODE FILE: of a command that has ended; FILE's last line says what went wrong
need_success() {
  # somebody sent the program SIGINT, and it has saved
  [ "$1" != 130 ] || ! tail -n 9 "$2" | grep -qF "the same command goes on" || stopped
  [ "$1" != $STOPPED ] || stopped
  [ "$1" = 0 ] || die "$(tail -n 1 "$2") (all of it in $2)"
}

# preprocess LOG [flags]: fairseq-preprocess. A full disk may keep the log from being written, too.
preprocess() {
  fairseq-preprocess "${@:2}" >"$1" 2>&1 && return
  if [ ! -s "$1" ] || grep -qE "No space left on device|File too large|Disk quota exceeded" "$1"; then
    die "fairseq-preprocess failed: no room to write in $(dirname "$1"): make room and run this again"
  fi
  die "fairseq-preprocess failed: $(tail -n 1 "$1") (all of it in $1)"
}

# in_words COMMAND...: as it is kept with a run, the same wherever the repository lies
in_words() {
  local command=("$@")
  command=${command[*]@Q}
  echo "${command//"$ROOT"/.}"
}

# is_trained RUN COMMAND...: this command has come to its end there, wherever RUN lies
is_trained() {
  [ "$(without_place "$(in_words "${@:2}")")" = "$(without_place "$(cat "$1/trained" 2>/dev/null)")" ] &&
    [ "$(conditions_before "$1")" = "${CONDITIONS:-}" ]
}
without_place() {
  sed -E "s/ '--(save-dir|log-file|distributed-world-size)' '[^']*'//g; s/ '--finetune-from-model=[^']*'//g" <<<"$1"
}

# What a training depends on and its command does not say, a line each. A recipe sets CONDITIONS; a run
# from before they were kept has none to compare.
conditions_before() { cat "$1/conditions" 2>/dev/null || cat "$run/conditions" 2>/dev/null || echo "${CONDITIONS:-}"; }

# has_checkpoints: that fairseq would go on from, in $run
has_checkpoints() { compgen -G "$run/checkpoint_last*.pt" >/dev/null || compgen -G "$run/checkpoint_[0-9]*.pt" >/dev/null; }

# What may change while a run goes on: its end, what is written when, and how it is computed.
NO_SETTING='max-update|(log|save|keep|validate|reset|distributed|ddp|wandb)-[a-z-]+|tensorboard-logdir'
NO_SETTING+='|cpu|num-workers|batch-size|update-freq|checkpoint-activations|attention-backend|torch-compile|unpad'
NO_SETTING+='|(memory-efficient-)?(fp16|bf16)[a-z-]*|amp[a-z-]*|finetune-from-model|restore-file'

# settings_of COMMAND_IN_WORDS: all others, one a line
settings_of() {
  sed "s/ '--/\n'--/g" <<<"$1" | sed "1,/^'--user-dir'/d" | grep -vE "^'--($NO_SETTING)['=]" || true
}

# refuse_batch_flags WHO_SAYS [flags]: what would change the batch of the settings
refuse_batch_flags() {
  local flag
  for flag in "${@:2}"; do
    case ${flag%%=*} in
      --batch-size | --max-sentences | --max-tokens | --update-freq | --distributed-world-size)
        die "$flag: the batch is BATCH=$BATCH of the settings, and $1 how it is made" ;;
    esac
  done
}

# Those of a language model's data. With a dictionary of the same size and other words every number
# would mean another word.
data_conditions() { echo "dictionary $(digest "$DATA/dict.txt")"; echo "text $(digest "$DATA/sources.txt")"; }
need_dictionary() {
  [ ! -e "$run/conditions" ] || grep -qxF "$(data_conditions | head -n 1)" "$run/conditions" ||
    die "the dictionary in $DATA is not the one that $run was trained with: set DATA to its data, or RUNS to another folder"
}

# need_same_settings PLACE COMMAND...: with others fairseq would go on all the same, and the report
# would tell of a training that there was not. $run has the checkpoints, where they were kept.
need_same_settings() {
  local before=$1/command changed
  [ -e "$1/trained" ] || compgen -G "$run/checkpoint*.pt" >/dev/null || return 0
  [ -e "$before" ] || before=$1/trained
  [ -e "$before" ] || before=$run/command
  [ -e "$before" ] || return 0
  changed=$(diff <(settings_of "$(cat "$before")"; conditions_before "$1") \
    <(settings_of "$(in_words "${@:2}")"; echo "${CONDITIONS:-}") |
    sed -n "s/^< /was /p; s/^> /is /p" | paste -sd' ') || true
  [ -z "$changed" ] ||
    die "$run was begun with other settings ($changed): set RUNS to another folder, or remove this one"
}

# train_to_the_end PLACE COMMAND...: PLACE/output.txt has what it prints, errors, too
train_to_the_end() {
  need_same_settings "$@"
  in_words "${@:2}" >"$1/command"
  [ -z "${CONDITIONS:-}" ] || echo "$CONDITIONS" >"$1/conditions"
  git -C "$ROOT" describe --always --dirty >"$1/commit.txt" 2>/dev/null || echo unknown >"$1/commit.txt"
  logged "$1/output.txt" "${@:2}"
  in_words "${@:2}" >"$1/trained" # only now: it says that all updates are done
}

# pack_runs RUNS FOLDER: what a report is made of, into FOLDER/runs.tar.xz, so that it can be made
# again, or gone on with: tar -xJf FOLDER/runs.tar.xz -C RUNS
pack_runs() {
  [ "$(realpath "$1")" != "$(realpath "$2")" ] || return 0
  local work
  work=$(mktemp -d)
  # without the sources and references of a test set, which may not be ours to give on
  tar -C "$1" --exclude='*.pt' --exclude='*.generate.txt' --exclude=lock --exclude=output.txt --exclude=errors.txt --exclude='*.errors' -c . | tar -C "$work" -x
  { grep -rlZF -- "$ROOT" "$work" || true; } | xargs -0 -r sed -i "s|$ROOT|.|g" # the others keep their dates
  tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -cJf "$2/runs.tar.xz.part" .
  mv "$2/runs.tar.xz.part" "$2/runs.tar.xz"
  rm -r "$work"
}
