# 2 processes on CPUs, with LAUNCH="bash scripts/launch_torchrun.sh --nproc_per_node 2 --", or on 2 nodes.
NODES=1 GPUS=0 PROCESSES=2 PRECISION=fp32 SAMPLES_PER_GPU=$((BATCH / 2)) UPDATE_FREQ=1
