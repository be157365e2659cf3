"""RoBERTa, language models and encoder-decoder models with any position encoding in transformers, without fairseq:
importing this package makes the Auto classes of transformers know them.

    import fairseq_relpos.hf
    from transformers import AutoModelForMaskedLM, AutoTokenizer
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(DIR), AutoTokenizer.from_pretrained(DIR)

``fairseq-relpos export-hf`` writes such a DIR.
"""

import importlib.metadata
import importlib.util
import logging
import sys
from typing import Any

from ..version import install

if sys.modules.get("torchaudio") is None and importlib.util.find_spec("torchaudio") is not None:
    try:  # transformers imports it where it is installed, and fairseq's distributions install it
        import torchaudio  # noqa: F401
    except Exception as error:  # for example the CUDA build beside a CPU build of torch
        logging.getLogger(__name__).warning(
            "torchaudio does not fit this torch (%s), so transformers is imported without it. Where transformers is "
            "imported alone it fails: pip uninstall torchaudio, or install the build for your torch",
            str(error).split("\n", 1)[0],
        )
        sys.modules["torchaudio"] = None  # type: ignore[assignment]  # as if it were not installed
        if "transformers" in sys.modules:  # which may have looked before
            sys.modules["transformers"].utils.import_utils.is_torchaudio_available.cache_clear()

try:
    import transformers
except ImportError as error:
    raise ImportError(f"fairseq_relpos.hf needs transformers ({error}): {install('hf')}") from error

# the first whose configurations are dataclasses
if tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 4):
    raise ImportError(
        f"fairseq_relpos.hf needs transformers 5.4 or newer, this is {transformers.__version__}: "
        'pip install "transformers>=5.4"'
    )

if not transformers.utils.is_torch_available():
    raise ImportError(
        f"fairseq_relpos.hf needs torch, and transformers {transformers.__version__} does not use torch "
        f"{importlib.metadata.version('torch')}: it is too old (fairseq-relpos doctor names the version), or USE_TORCH "
        "is off"
    )

from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES  # noqa: E402

from .configuration import RelPosConfig, RelPosDecoderConfig, RelPosRobertaConfig, RelPosTransformerConfig  # noqa: E402
from .decoder import GenerationCache, RelPosDecoderForCausalLM, RelPosDecoderModel  # noqa: E402
from .encoder_decoder import RelPosTransformerForConditionalGeneration  # noqa: E402
from .modeling import (  # noqa: E402
    RelPosRobertaForMaskedLM,
    RelPosRobertaForQuestionAnswering,
    RelPosRobertaForSequenceClassification,
    RelPosRobertaForTokenClassification,
    RelPosRobertaModel,
)
from .sentencepiece_tokenizer import RelPosSentencePieceTokenizer  # noqa: E402
from .translation_tokenizer import RelPosTranslationTokenizer  # noqa: E402

_families: dict[type[transformers.PreTrainedConfig], dict[Any, Any]] = {
    RelPosRobertaConfig: {
        transformers.AutoModel: RelPosRobertaModel,
        transformers.AutoModelForMaskedLM: RelPosRobertaForMaskedLM,
        transformers.AutoModelForSequenceClassification: RelPosRobertaForSequenceClassification,
        transformers.AutoModelForTokenClassification: RelPosRobertaForTokenClassification,
        transformers.AutoModelForQuestionAnswering: RelPosRobertaForQuestionAnswering,
    },
    RelPosDecoderConfig: {
        transformers.AutoModel: RelPosDecoderModel,
        transformers.AutoModelForCausalLM: RelPosDecoderForCausalLM,
    },
    RelPosTransformerConfig: {transformers.AutoModelForSeq2SeqLM: RelPosTransformerForConditionalGeneration},
}
for _config, _models in _families.items():
    transformers.AutoConfig.register(_config.model_type, _config, exist_ok=True)
    for _auto, _model in _models.items():
        _auto.register(_config, _model, exist_ok=True)
# by this name the Trainer knows that label smoothing has to shift the labels
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[RelPosDecoderConfig.model_type] = "RelPosDecoderForCausalLM"
_tokenizers = {
    RelPosRobertaConfig: RelPosSentencePieceTokenizer,
    RelPosDecoderConfig: RelPosSentencePieceTokenizer,
    RelPosTransformerConfig: RelPosTranslationTokenizer,
}
for _config, _tokenizer in _tokenizers.items():
    transformers.AutoTokenizer.register(_config, _tokenizer, exist_ok=True)

__all__ = [
    "GenerationCache",
    "RelPosConfig",
    "RelPosDecoderConfig",
    "RelPosDecoderForCausalLM",
    "RelPosDecoderModel",
    "RelPosRobertaConfig",
    "RelPosRobertaForMaskedLM",
    "RelPosRobertaForQuestionAnswering",
    "RelPosRobertaForSequenceClassification",
    "RelPosRobertaForTokenClassification",
    "RelPosRobertaModel",
    "RelPosSentencePieceTokenizer",
    "RelPosTransformerConfig",
    "RelPosTransformerForConditionalGeneration",
    "RelPosTranslationTokenizer",
]
