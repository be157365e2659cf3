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

# read_settings FILE LIKE: SETTINGS names it, LIKE is one to copy
read_settings() {
  [ -f "$1" ] && [ -r "$1" ] || die "SETTINGS=$1 is no readable file: give one like $2"
  . "$1"
}

# lock FOLDER: one process at a time works on a run
lock() {
  mkdir -p "$1"
  if command -v flock >/dev/null; then
    exec 9>"$1/lock"
    flock -n 9 || { say "$1 is in use by another process: waiting for it"; flock 9; }
  fi
}

# logged FILE COMMAND...: with everything it prints in FILE, and its last line if it fails
logged() {
  "${@:2}" >"$1" 2>&1 || die "$(tail -n 1 "$1") (all of it in $1)"
}

# in_words COMMAND...: as it is kept with a run, the same wherever the repository lies
in_words() {
  local command=("$@")
  command=${command[*]@Q}
  echo "${command//"$ROOT"/.}"
}

# is_trained RUN COMMAND...: this command has come to its end there, wherever RUN lies
is_trained() { [ "$(without_place "$(in_words "${@:2}")")" = "$(without_place "$(cat "$1/trained" 2>/dev/null)")" ]; }
without_place() { sed -E "s/ '--(save-dir|log-file)' '[^']*'//g" <<<"$1"; }

# What may change while a run goes on: its end, what is written when, and how it is computed.
NO_SETTING='max-update|(log|save|keep|validate|reset|distributed|ddp|wandb)-[a-z-]+|tensorboard-logdir'
NO_SETTING+='|cpu|num-workers|batch-size|update-freq|checkpoint-activations|attention-backend|torch-compile|unpad'
NO_SETTING+='|(memory-efficient-)?(fp16|bf16)[a-z-]*|amp[a-z-]*|finetune-from-model|restore-file'

# settings_of COMMAND_IN_WORDS: all others, one a line
settings_of() {
  sed "s/ '--/\n'--/g" <<<"$1" | sed "1,/^'--user-dir'/d" | grep -vE "^'--($NO_SETTING)['=]" || true
}

# need_same_settings PLACE COMMAND...: with others fairseq would go on all the same, and the report
# would tell of a training that there was not. $run has the checkpoints, where they were kept.
need_same_settings() {
  local before=$1/command changed
  [ -e "$1/trained" ] || compgen -G "$run/checkpoint*.pt" >/dev/null || return 0
  [ -e "$before" ] || before=$1/trained
  [ -e "$before" ] || return 0
  changed=$(diff <(settings_of "$(cat "$before")") <(settings_of "$(in_words "${@:2}")") |
    sed -n "s/^< /was /p; s/^> /is /p" | paste -sd' ') || true
  [ -z "$changed" ] ||
    die "$run was begun with other settings ($changed): set RUNS to another folder, or remove this one"
}

# train_to_the_end PLACE COMMAND...: PLACE/output.txt has what it prints, errors, too
train_to_the_end() {
  need_same_settings "$@"
  in_words "${@:2}" >"$1/command"
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
