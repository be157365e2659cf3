"""One short file per fairseq model family. Importing this package installs the mends and registers everything."""

# ruff: noqa: E402, F401
from .. import mends

mends.apply()  # before fairseq is imported, which would log its own lines

from ..criterions import electra as replaced_tokens
from ..criterions import masked_lm_order_gap, sentence_scores, sequence_labels, span_prediction
from ..optim import torch_adamw
from ..tasks import lm_streams, sentence_pairs, tupe_data
from ..tasks import sequence_labels as sequences
from ..tasks import span_prediction as spans
from . import bart, electra, language_model, roberta, sequence_encoder, speech, transformer, variants
