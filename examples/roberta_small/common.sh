# What prepare.sh, run.sh and compare.sh share. HERE is set by them.
ROOT=$(cd "$HERE/../.." && pwd)
[ ! -d "$ROOT/.venv/bin" ] || PATH=$ROOT/.venv/bin:$PATH
# Also where the plugin is not installed.
export PYTHONPATH=$ROOT${PYTHONPATH:+:$PYTHONPATH}
# Tensors of this size gain nothing from more threads, and two runs can share two cores.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

say() { echo "$(basename "$0"): $*"; }
die() { echo "$(basename "$0"): error: $*" >&2; exit 1; }

. "$HERE/settings.sh"
