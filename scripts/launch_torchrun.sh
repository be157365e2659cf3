#!/usr/bin/env bash
# fairseq-train with this plugin on any number of nodes and GPUs, through torchrun.
#
#   scripts/launch_torchrun.sh [flags of torchrun] -- DATA [flags of fairseq-train]
#
#   scripts/launch_torchrun.sh -- DATA --arch roberta_tupe_r ...                  # every GPU of this machine
#   scripts/launch_torchrun.sh --nproc_per_node 2 -- DATA ... --cpu               # two processes, no GPU
#   scripts/launch_torchrun.sh --nnodes 2 --node_rank R --master_addr node0 \
#       --nproc_per_node 8 -- DATA ...                                            # on node R of two
#
# Its last line says why it ended. RELPOS_JOIN_TIMEOUT=300: seconds that nodes and ranks wait for each other. After SIGTERM the ranks
# have STOP_TIMEOUT=120 seconds (torch before 2.12: 30) to finish an update and save, and the exit code is 75.
# docs/multi_node.md has the rest.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export RELPOS_JOIN_TIMEOUT=${RELPOS_JOIN_TIMEOUT:-300}
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=${STOP_TIMEOUT:-120}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

usage="usage: launch_torchrun.sh [flags of torchrun] -- DATA [flags of fairseq-train]"
die() { echo "launch_torchrun: error: $*" >&2; exit 1; }

python=python
[ ! -x "$ROOT/.venv/bin/python" ] || python=$ROOT/.venv/bin/python
"$python" -c 'import sys; from importlib.util import find_spec as find; sys.exit(not (find("torch") and find("fairseq")))' ||
  die "$python lacks torch or fairseq: activate your environment, or install them (README.md)"

torchrun=()
nodes=1 node_rank=0 master_addr= master_port=29500 gave_processes= gave_rendezvous=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  flag=${1%%=*} value=${2:-}
  [[ $1 != *=* ]] || value=${1#*=}
  case ${flag//-/_} in
    __nnodes) nodes=$value ;;
    __node_rank) node_rank=$value ;;
    __master_addr) master_addr=$value ;;
    __master_port) master_port=$value ;;
    __nproc_per_node) gave_processes=yes ;;
    __rdzv_* | __standalone) gave_rendezvous=yes ;;
  esac
  torchrun+=("$1")
  shift
done
[ "${1:-}" = -- ] || die "no -- between torchrun's flags and the data folder; $usage"
shift
[ $# -gt 0 ] || die "no data folder; $usage"

if [ -z "$gave_processes" ]; then
  gpus=$("$python" -c 'import torch; print(torch.cuda.device_count())')
  [ "$gpus" -gt 0 ] || die "no GPU here: say how many processes (--nproc_per_node N, and --cpu after --)"
  torchrun+=(--nproc_per_node "$gpus")
fi
if [ -z "$gave_rendezvous" ]; then
  if [ "$nodes" = 1 ] && [ -z "$master_addr" ]; then
    torchrun+=(--standalone)
  else
    [ -n "$master_addr" ] || die "--nnodes $nodes needs --master_addr, the address of node 0, on every node"
    for number in "nnodes $nodes" "node_rank $node_rank" "master_port $master_port"; do
      [[ ${number#* } =~ ^[0-9]+$ ]] || die "--$number is not a number (for a range of nodes give --rdzv_backend c10d --rdzv_endpoint HOST:PORT)"
    done
    [ "$node_rank" -lt "$nodes" ] || die "--node_rank $node_rank of --nnodes $nodes: nodes count from 0"
    torchrun+=(--rdzv_conf "timeout=$RELPOS_JOIN_TIMEOUT")
    # torchrun would wait for a taken port, for nodes, or for an address where nobody is, and say less.
    # without FATAL, torch's store also logs the error that it raises, with C++ frames
    TORCH_CPP_LOG_LEVEL=${TORCH_CPP_LOG_LEVEL:-FATAL} \
      "$python" "$ROOT/scripts/launch_check.py" "$master_addr" "$master_port" "$node_rank" "$nodes"
  fi
fi
[[ " $* " =~ " --user-dir"[\ =] ]] || set -- "$@" --user-dir "$ROOT/fairseq_relpos"

code=0 signal=
# the ranks write into it why they ended: torchrun's own last lines do not say
export RELPOS_ERROR_FILE=$(mktemp) RELPOS_STOPPED_FILE=$(mktemp)
trap 'rm -f "$RELPOS_ERROR_FILE" "$RELPOS_STOPPED_FILE"' EXIT
"$python" -m torch.distributed.run "${torchrun[@]}" -m fairseq_cli.train "$@" &
torchrun_pid=$!
trap 'signal=came; kill -TERM $torchrun_pid 2>/dev/null' TERM USR1 INT HUP
while :; do
  wait $torchrun_pid && code=0 || code=$?
  kill -0 $torchrun_pid 2>/dev/null || break
done
if [ $code != 0 ] && [[ $(tail -n 1 "$RELPOS_STOPPED_FILE") = *updates ]]; then
  echo "launch_torchrun: stopped by a signal and saved; the line with \"saved\" above says how to resume" >&2
  exit 75
elif [ $code != 0 ] && [ -n "$signal" ] && [ ! -s "$RELPOS_STOPPED_FILE" ] && [ ! -s "$RELPOS_ERROR_FILE" ]; then
  echo "launch_torchrun: stopped by a signal, and no rank has saved; the same command starts again" >&2
  exit 75
elif [ $code != 0 ]; then
  # of the last start, which stands before each: the first error, or the one that names where NaN began
  last=$(cut -f1 "$RELPOS_ERROR_FILE" | sort -n | tail -n 1)
  errors=$(sed -n "s/^$last\t//p" "$RELPOS_ERROR_FILE")
  ! grep -q '^76' <<<"$errors" || code=76 # it has diverged: torchrun's own exit code is 1
  why=$(grep -m 1 '^76+' <<<"$errors" || sed -n 1p <<<"$errors")
  why=$(cut -f2- <<<"$why")
  [ -n "$why" ] || why="torchrun ended with exit code $code: the first line above that names an error says why"
  echo "launch_torchrun: error: $why" >&2
fi
exit $code
