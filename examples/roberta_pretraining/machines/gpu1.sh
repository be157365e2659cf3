# 1 GPU with 16 GB, of any kind that has fp16.
NODES=1 GPUS=1 PRECISION=fp16
case $BATCH in
  96 | 160 | 192 | 256 | 480) SAMPLES_PER_GPU=8 UPDATE_FREQ=$((BATCH / 8)) ;;
esac
