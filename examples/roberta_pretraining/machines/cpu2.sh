# 2 processes on CPUs, of one machine, or of 2 with LAUNCH.
NODES=1 GPUS=0 PROCESSES=2 PRECISION=fp32 SAMPLES_PER_GPU=$((BATCH / 2)) UPDATE_FREQ=1
