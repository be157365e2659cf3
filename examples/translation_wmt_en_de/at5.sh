# WMT17 English-German as in the AT5 paper (Wu et al. 2021). Values that the paper does not give are from
# the authors' code or from THUMT, which it used.
NAME=translation_wmt17_at5

# --- texts: WMT17's own preprocessed ones ---
TRAIN_TEXTS=corpus.tc
VALID_TEXT=newstest2014
TEST_TEXTS="newstest2015 newstest2016 newstest2017"
TEXT=tokenised
JOINED_DICTIONARY=no       # one vocabulary, two dictionaries, nothing shared
VOCAB_THRESHOLD=50         # code
MAX_PIECES=255             # 256 with </s>
MAX_RATIO=255              # no other filter

# --- the model ---
MAX_POSITIONS=256
MODEL_FLAGS=(--encoder-normalize-before --decoder-normalize-before)
POSITION_LAYERS=first
HPARAMS=([t5]="num_buckets=64 max_distance=128" [at5]="gamma_min=1 gamma_max=15 hidden=32,4")

# --- one update: 25,000 tokens ---
BATCH=25000
TOKENS_PER_UPDATE=12500    # on each GPU: two GPUs, as the authors had, or one with UPDATE_FREQ=2
UPDATES=250000             # code
LEARNING_RATE=7e-4         # peak of THUMT's schedule: 512^-0.5 x 4000^-0.5
PRECISION=fp32
# the model of the updates with the best BLEU on newstest2014
TRAIN_FLAGS=(--adam-eps 1e-9 --eval-bleu --eval-bleu-args '{"beam": 4, "lenpen": 0.6}'
  --eval-bleu-remove-bpe sentencepiece --eval-tokenized-bleu
  --best-checkpoint-metric bleu --maximize-best-checkpoint-metric)
VALIDATE_EVERY=2000
SAVE_EVERY=2000

# --- evaluation: no averaging ---
AVERAGED=1
EVALUATED=checkpoint_best.pt
# THUMT's alpha divides by ((5 + length) / 6)^alpha, fairseq's lenpen by length^lenpen
LENGTH_PENALTY=0.6
GENERATE_FLAGS=(--max-len-a 1 --max-len-b 50)
LENGTH_EDGES="20 40 60 80 100"

COMPARED="sinusoidal t5 t5_nob at5 at5_nob none"
SEEDS="1 2 3 4 5"
