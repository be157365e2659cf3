# translation_small from a BART of examples/denoising: the same vocabulary and the same model.
#   SETTINGS=examples/denoising/translation.sh bash examples/translation_small/run.sh evaluate t5
NAME=denoising_translation
VOCABULARY=data-bin/denoising
START_FROM=runs/denoising
MODEL_FLAGS=(--share-all-embeddings --layernorm-embedding --no-scale-embedding --activation-fn gelu)
LEARNING_RATE=5e-4
LEARNING_RATES=            # as in the pretraining; from scratch, set START_FROM=none and some rates
