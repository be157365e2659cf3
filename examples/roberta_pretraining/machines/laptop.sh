# A CPU: all samples of an update at once.
NODES=1 GPUS=0 PRECISION=fp32 SAMPLES_PER_GPU=$BATCH UPDATE_FREQ=1
