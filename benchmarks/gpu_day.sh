#!/usr/bin/env bash
# All that is measured on a GPU, the most important first, within some minutes; the next call continues where this stopped.
#
#     bash benchmarks/gpu_day.sh 10                   # into benchmarks/results/gpu_*.json
#     bash benchmarks/gpu_day.sh 10 FOLDER            # into another folder
#     TINY=1 bash benchmarks/gpu_day.sh 10 FOLDER     # tiny sizes on a CPU, to see that it runs
#     PYTHON=python bash benchmarks/gpu_day.sh 10     # another Python than that of .venv
#
# Each part writes its JSON file after each row (gpu.py, gpu_steps.py), and FOLDER/gpu_day.done has the names of those that are
# complete; remove the line of a part to measure it again. A part that fails is named at the end, and the next call tries
# it again. Exit status: 0 if all is there, 75 if something is left, 1 if something failed.
set -uo pipefail  # a part that fails does not end the others
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1

minutes=${1:-} folder=${2:-$here/results}
if [[ ! $minutes =~ ^[1-9][0-9]*$ ]]; then
    echo "gpu_day.sh: error: how many minutes? Such as: bash benchmarks/gpu_day.sh 10" >&2
    exit 2
fi
mkdir -p "$folder" || exit 1
done=$folder/gpu_day.done
touch "$done" || exit 1
python=${PYTHON:-$here/../.venv/bin/python}
end=$((SECONDS + 60 * minutes))
failed=() left=()

# part NAME COMMAND...: its result is gpu_NAME.json
part() {
    local name=$1 rest=$((end - SECONDS)) status
    shift
    grep -qx "$name" "$done" && return
    if ((rest < 20)); then
        left+=("$name")
        return
    fi
    [[ -n ${TINY:-} ]] && set -- "$@" --tiny
    echo "gpu_day.sh: $name, $((rest / 60)) minutes are left"
    # what began in time may end a little later; what hangs must not cost the GPU
    timeout --kill-after 10 "$((rest + 60))" \
        "$python" "$here/$1" "${@:2}" --minutes "$(printf '%d.%02d' $((rest / 60)) $((rest % 60 * 100 / 60)))" --json "$folder/gpu_$name.json"
    status=$?
    case $status in
        0) echo "$name" >>"$done" ;;
        75 | 124 | 137) left+=("$name") ;;
        *) failed+=("$name") ;;
    esac
}

FEW="t5 alibi tupe_r shaw m4"
CLIPPED="shaw:max_distance=16 lfhc m4:max_distance=32 m4m:max_distance=32 deberta"

# the kernels' tests; what each kernel takes
part kernels gpu.py --encodings learned t5 shaw m4 --dropout 0.1 --backends triton --profile
# whole steps are what users have
part steps gpu_steps.py --models roberta_512 --dtypes bfloat16 --encodings $FEW shaw:max_distance=16 m4:max_distance=32
part clipped gpu.py --encodings t5 $CLIPPED --backends triton --no-tests --profile
part shared gpu.py --encodings t5 tupe_a tupe_r tupe_a_tie_cls tupe_r_tie_cls --backends auto triton sdpa --no-tests --profile
part attention gpu.py --backends auto triton sdpa lean eager --no-tests --profile
part all_steps gpu_steps.py

for name in ${left+"${left[@]}"}; do echo "gpu_day.sh: $name is not complete: the same command resumes it"; done
for name in ${failed+"${failed[@]}"}; do echo "gpu_day.sh: error: $name failed, see above" >&2; done
((${#failed[@]})) && exit 1
((${#left[@]})) && exit 75
exit 0
