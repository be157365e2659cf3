# What the recipes share. Sourced by their own scripts; needs bash 4.4.
shopt -s inherit_errexit # an error within $(...) is one
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[ ! -d "$ROOT/.venv/bin" ] || PATH=$ROOT/.venv/bin:$PATH
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

# is_trained RUN COMMAND...: this command has come to its end there
is_trained() {
  local command=("${@:2}")
  [ "${command[*]@Q}" = "$(cat "$1/trained" 2>/dev/null)" ]
}

# train_to_the_end RUN COMMAND...: RUN/train.log is fairseq's own; RUN/output.txt has errors, too
train_to_the_end() {
  local command=("${@:2}")
  git -C "$ROOT" describe --always --dirty >"$1/commit.txt" 2>/dev/null || echo unknown >"$1/commit.txt"
  logged "$1/output.txt" "${command[@]}"
  echo "${command[*]@Q}" >"$1/trained" # only now: it says that all updates are done
}
