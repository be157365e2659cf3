"""``fairseq-relpos export-hf``: a checkpoint of any family as a folder for Hugging Face transformers."""

from pathlib import Path
from typing import Any

from ..checkpoints import warm_start
from ..checkpoints.discriminator import refuse_electra
from ..checkpoints.loading import upgraded
from . import encoder_decoder_to_transformers, language_model_to_transformers, to_transformers
from .trained_models import arch_of, read
from .transformers_folder import Exported


def export(
    checkpoint: str | Path, folder: str | Path, data: str | Path | None = None, head: str | None = None
) -> Exported:
    """Writes ``folder``: config.json, model.safetensors, the tokenizer's files if ``data`` is given, and a model card.

    data: a folder with dict.txt, and spm.model or encoder.json and vocab.bpe if text is cut into pieces. head: the
    classification head to export, where the checkpoint has several. A model with ``learned`` positions, and nothing
    else that transformers' own RoBERTa lacks, becomes one of these, which needs nothing of this package.

    The folder is loaded through the Auto classes before it gets its name, and compared with fairseq: logits of random
    and real sentences, and the ids of texts. Raises ValueError, one line, and writes nothing, if they differ.
    """
    checkpoint, folder = Path(checkpoint), Path(folder)
    raw = read(checkpoint, folder, data)
    arch = arch_of(raw)
    if arch.startswith(("transformer", "bart")):
        family: Any = encoder_decoder_to_transformers
        what = "an encoder-decoder model"
        if arch.startswith("transformer_lm"):
            family, what = language_model_to_transformers, "a language model"
        if head is not None:
            raise ValueError(f"{checkpoint} is {what}, which has no classification heads: leave out --head")
        return family.export(upgraded(raw), checkpoint, folder, data)
    refuse_electra(checkpoint, raw["model"])
    warm_start.refuse_other_checkpoints(checkpoint, raw)
    return to_transformers.export(upgraded(raw), checkpoint, folder, data, head)
