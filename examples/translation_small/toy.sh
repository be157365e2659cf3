# Values for the toy grammar that differ from those for real text: minutes on one core.
#   SETTINGS=examples/translation_small/toy.sh bash examples/translation_small/compare.sh t5 none
NAME=translation_toy
VOCAB_SIZE=400             # about the words of both languages
LAYERS=2
EMBED_DIM=128
FFN_DIM=256
DROPOUT=0.1
ATTENTION_DROPOUT=0
UPDATES=1200
WARMUP_UPDATES=200
LEARNING_RATE=0.002
SCHEDULE=inverse_sqrt
LEARNING_RATES=
LENGTH_PENALTIES=
TOKENS_PER_UPDATE=2048
LENGTH_EDGES="5 10 15 20 25 30"
COMPARED="sinusoidal t5 tupe_r learned none"
