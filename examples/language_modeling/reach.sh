# Encodings and settings of recent models, in blocks of up to 16 times the training's length: docs/reach.md.
RUNS=runs/language_modeling_reach
EVALUATIONS="128/0"
VARIANTS=(
  [rope_quarter]="rope --position-hparams fraction=0.25"
  [rope_randomized]="rope --randomized-positions 2048" # 16 times the length, as far as it is evaluated
  [t5_randomized]="t5 --randomized-positions 2048"
  [rope_windows]="rope --attention-window 32;every.2=none" # a local layer, then a global one
  [rope_local]="rope --attention-window 32"
  [nope_global]="rope --attention-window 32;every.2=none --position-layers 1" # the global layer has no positions
)
COMPARED="alibi t5 t5_randomized rope rope_quarter rope_randomized rope_windows rope_local nope_global fox path pope"
BASELINE=rope
