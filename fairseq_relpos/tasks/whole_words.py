"""--mask-whole-words of fairseq's masked_lm, which fairseq 0.12 ends with "no attribute 'args'".

fairseq asks the task's arguments for the vocabulary that says which pieces begin a word. They are
now found beside the data: spm.model, or encoder.json and vocab.bpe of GPT-2.
"""

import os
from argparse import Namespace

from fairseq import utils
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceConfig
from fairseq.tasks.masked_lm import MaskedLMTask


def vocabulary_beside_the_data(task):
    """What fairseq's build_bpe takes."""
    data = utils.split_paths(task.cfg.data)[0]
    model, encoder, merges = (os.path.join(data, name) for name in ("spm.model", "encoder.json", "vocab.bpe"))
    if os.path.exists(model):
        settings = SentencepieceConfig(sentencepiece_model=model)
        return Namespace(bpe="sentencepiece", **vars(settings))
    if os.path.exists(encoder) and os.path.exists(merges):
        return Namespace(bpe="gpt2", gpt2_encoder_json=encoder, gpt2_vocab_bpe=merges)
    raise ValueError(
        f"--mask-whole-words: {data} has no vocabulary that says where a word begins: put spm.model there, or "
        "encoder.json and vocab.bpe"
    )


if not hasattr(MaskedLMTask, "args"):
    MaskedLMTask.args = property(vocabulary_beside_the_data)
