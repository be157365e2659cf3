"""``fairseq-relpos export-ct2``: a Transformer or a language model as a folder that CTranslate2 serves."""

import argparse
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import torch
from ctranslate2.specs import transformer_spec
from ctranslate2.specs.common_spec import Activation
from ctranslate2.specs.model_spec import ModelSpec
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.models.transformer import TransformerModel
from fairseq.models.transformer_lm import TransformerLanguageModel
from fairseq.modules import MultiheadAttention

from .. import vocabulary_files
from ..atomic_files import whole_folder
from ..checkpoints.loading import upgraded
from ..checkpoints.starting_point import complete_settings
from ..models.language_model import RelPosLanguageModel
from ..models.transformer import RelPosTransformer
from ..override import layers_of
from .ctranslate2_positions import CannotHoldError, encodings_of, has_alibi, is_blind, numpy, put_positions
from .dictionaries import languages_of, load_dictionary
from .split_pieces import model_that_splits
from .trained_models import (
    END,
    OF_LANGUAGE_MODELS,
    OF_TRANSLATORS,
    arch_of,
    built_language_model,
    built_translator,
    read,
    refuse_without_counterpart,
)

#: fairseq's activations in CTranslate2
ACTIVATIONS = {
    "gelu": Activation.GELU,
    "gelu_accurate": Activation.GELUTanh,
    "gelu_fast": Activation.GELUTanh,
    "relu": Activation.RELU,
    "tanh": Activation.Tanh,
}
#: tasks whose sentences have no marks besides </s>, or <s> where a task of language models adds it
TASKS = ("translation", "language_modeling", "lm_streams")
#: the largest difference of the log-probability of a token between fairseq and CTranslate2, in float32
TOLERANCE = 1e-4
#: tokens of the longest sentence that both score
LONGEST = 160


@dataclass
class Exported:
    """The result of ``export``. difference: the largest of a token's log-probability in so many sentences."""

    kind: str
    parameters: int
    difference: float
    sentences: int
    copied: list[str]


def export(checkpoint: str | Path, folder: str | Path, data: str | Path) -> Exported:
    """Writes ``folder``: model.bin, config.json, the vocabularies, and the files of the data that cut text into pieces.

    data: a folder with dict.SOURCE.txt and dict.TARGET.txt, of a language model dict.txt. Both programs score the same
    sentences before the folder gets its name. Raises ValueError, one line, and writes nothing, if a log-probability
    differs by more than 1e-4, or if CTranslate2 has no place for something in the model.
    """
    checkpoint, folder, data = Path(checkpoint), Path(folder), Path(data)
    raw = read(checkpoint, folder, data)
    is_translator = has_encoder(checkpoint, arch_of(raw))
    state = upgraded(raw)
    task = state["cfg"].task
    if getattr(task, "_name", None) not in TASKS:
        raise ValueError(
            f"{checkpoint} was trained by --task {getattr(task, '_name', None)}, whose sentences CTranslate2 would not "
            f"mark alike: it serves {', '.join(TASKS)}"
        )
    args = complete_settings(state["cfg"].model)
    if is_translator:
        refuse_without_counterpart(args, checkpoint, OF_TRANSLATORS, ACTIVATIONS, "CTranslate2")
        model = built_translator(args, state["model"])
        languages = languages_of(task, data, checkpoint)
        names = [f"dict.{language}.txt" for language in languages]
    else:
        refuse_without_counterpart(args, checkpoint, OF_LANGUAGE_MODELS, ACTIVATIONS, "CTranslate2")
        model = built_language_model(args, state["model"])
        languages, names = [], ["dict.txt"]
    words = [
        load_dictionary(data, name, len(stack.embed_tokens.weight), checkpoint)
        for name, stack in zip(names, stacks_of(model).values())
    ]
    try:
        if is_translator:
            start = words[1].eos_word
            spec = translator_spec(model, args, words)
        else:
            start = "<s>" if getattr(task, "add_bos_token", False) else "</s>"
            spec = generator_spec(model, args, words[0], start)
    except CannotHoldError as error:
        raise ValueError(f"{checkpoint}: {error}") from None
    return write(spec, folder, model, words, start, data, languages)


def has_encoder(checkpoint: Path, arch: str) -> bool:
    """True for an encoder-decoder model, False for a language model. ValueError for any other."""
    found = ARCH_MODEL_REGISTRY.get(arch)
    if found in (RelPosTransformer, TransformerModel):
        return True
    if found in (RelPosLanguageModel, TransformerLanguageModel):
        return False
    raise ValueError(
        f"{checkpoint} has the architecture {arch}, which export-ct2 does not serve: it serves transformer_NAME and "
        "transformer_lm_NAME, and stock fairseq's transformer and transformer_lm"
    )


def stacks_of(model: Any) -> dict[str, Any]:
    return {name: getattr(model, name) for name in ("encoder", "decoder") if hasattr(model, name)}


def translator_spec(model: Any, args: argparse.Namespace, words: Sequence[Dictionary]) -> ModelSpec:
    """CTranslate2's specification of an encoder-decoder model."""
    encoder, decoder = (stack_spec(name, stack, args) for name, stack in stacks_of(model).items())
    spec = transformer_spec.TransformerSpec(encoder, decoder)
    spec.register_source_vocabulary(words[0].symbols)
    spec.register_target_vocabulary(words[1].symbols)
    spec.config.decoder_start_token = words[1].eos_word
    spec.config.add_source_eos = True
    return spec


def generator_spec(model: Any, args: argparse.Namespace, words: Dictionary, start: str) -> ModelSpec:
    """The same of a language model. start: the symbol that its texts begin with."""
    spec = transformer_spec.TransformerDecoderModelSpec(stack_spec("decoder", model.decoder, args))
    spec.register_vocabulary(words.symbols)
    spec.config.bos_token = start
    return spec


def stack_spec(name: str, stack: Any, args: argparse.Namespace) -> Any:
    """The specification of an encoder or a decoder, with its weights."""
    layers = layers_of(stack)
    attention = layers[0].self_attn
    sizes = {"num_layers": len(layers), "num_heads": attention.num_heads}
    how = {
        "pre_norm": layers[0].normalize_before,
        "no_final_norm": stack.layer_norm is None,
        "activation": ACTIVATIONS[args.activation_fn],
        "layernorm_embedding": stack.layernorm_embedding is not None,
    }
    alibi = False
    if name == "encoder":
        spec = transformer_spec.TransformerEncoderSpec(**sizes, **how)
        embeddings = spec.embeddings[0]
    else:
        alibi = has_alibi(stack)
        crosses = getattr(layers[0], "encoder_attn", None) is not None
        spec = transformer_spec.TransformerDecoderSpec(
            **sizes, **how, alibi=alibi, with_encoder_attention=crosses, project_in_out=True
        )
        put_or_leave_out(spec, "project_in", stack.project_in_dim)
        put_or_leave_out(spec, "project_out", stack.project_out_dim)
        put_linear(spec.projection, stack.output_projection)
        embeddings = spec.embeddings
    embeddings.weight = numpy(stack.embed_tokens.weight)
    spec.scale_embeddings = np.float32(stack.embed_scale)
    try:
        orders = put_positions(spec, stack, alibi)
    except CannotHoldError as error:
        found = {encoding.name for encoding in encodings_of(stack) if encoding is not None and not is_blind(encoding)}
        raise CannotHoldError(f"{' '.join(found)} in the {name} cannot be served by CTranslate2: {error}") from None
    for layer_spec, layer, order in zip(spec.layer, layers, orders):
        put_layer(layer_spec, layer, order)
    if stack.layer_norm is not None:
        put_norm(spec.layer_norm, stack.layer_norm)
    if stack.layernorm_embedding is not None:
        put_norm(spec.layernorm_embedding, stack.layernorm_embedding)
    return spec


def put_or_leave_out(spec: Any, name: str, module: Any) -> None:
    if module is None:
        delattr(spec, name)
    else:
        put_linear(getattr(spec, name), module)


def put_layer(spec: Any, layer: Any, order: torch.Tensor | None) -> None:
    """The weights of a layer. order: see ``put_positions``."""
    attention = layer.self_attn
    q, k = (in_order(part, attention.num_heads, order) for part in (attention.q_proj, attention.k_proj))
    put_joined(spec.self_attention.linear[0], q, k, weights_of(attention.v_proj))
    put_linear(spec.self_attention.linear[1], attention.out_proj)
    put_norm(spec.self_attention.layer_norm, layer.self_attn_layer_norm)
    crossing = getattr(layer, "encoder_attn", None)
    if crossing is not None:
        if type(crossing) is not MultiheadAttention:
            raise CannotHoldError("encoder-decoder attention with positions cannot be served by CTranslate2")
        put_linear(spec.attention.linear[0], crossing.q_proj)
        put_joined(spec.attention.linear[1], weights_of(crossing.k_proj), weights_of(crossing.v_proj))
        put_linear(spec.attention.linear[2], crossing.out_proj)
        put_norm(spec.attention.layer_norm, layer.encoder_attn_layer_norm)
    put_linear(spec.ffn.linear_0, layer.fc1)
    put_linear(spec.ffn.linear_1, layer.fc2)
    put_norm(spec.ffn.layer_norm, layer.final_layer_norm)


def weights_of(linear: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return linear.weight, linear.bias


def in_order(linear: Any, num_heads: int, order: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and bias, with the dimensions of each head in this order."""
    if order is None:
        return weights_of(linear)
    weight, bias = (x.unflatten(0, (num_heads, -1))[:, order].flatten(0, 1) for x in weights_of(linear))
    return weight, bias


def put_joined(spec: Any, *parts: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Several projections of the same input as one."""
    spec.weight, spec.bias = (numpy(torch.cat(tensors)) for tensors in zip(*parts))


def put_linear(spec: Any, linear: Any) -> None:
    spec.weight = numpy(linear.weight)
    if linear.bias is not None:
        spec.bias = numpy(linear.bias)


def put_norm(spec: Any, norm: Any) -> None:
    spec.gamma, spec.beta = numpy(norm.weight), numpy(norm.bias)


def write(
    spec: ModelSpec,
    folder: Path,
    model: Any,
    words: Sequence[Dictionary],
    start: str,
    data: Path,
    languages: Sequence[str],
) -> Exported:
    """Writes the folder, and compares it with fairseq's model before it gets its name. languages: of a translator."""
    spec.validate()
    spec.optimize()  # weights that are shared are written once
    vocabulary, pieces = vocabulary_files.find(data)
    with whole_folder(folder) as part:
        spec.save(str(part))
        for path in pieces:
            if languages and vocabulary == "sentencepiece":
                (part / path.name).write_bytes(model_that_splits(path, data, languages, words))
            else:
                shutil.copyfile(path, part / path.name)
        difference, sentences = compare(part, model, words, start)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    kind = "Translator" if len(words) == 2 else "Generator"
    return Exported(kind, parameters, difference, sentences, [path.name for path in pieces])


def compare(folder: Path, model: Any, words: Sequence[Dictionary], start: str) -> tuple[float, int]:
    """The largest difference of a token's log-probability, and the number of sentences that both have scored. Raises
    ValueError if it is more than rounding."""
    sentences = random_sentences(model)
    if len(words) == 2:
        scores = translator_scores(folder, words, sentences)
    else:
        scores = generator_scores(folder, words[0], sentences, start)
    difference = 0.0
    for theirs, (source, target) in zip(scores, sentences, strict=True):
        ours = fairseq_scores(model, source, target, words[0].index(start))
        gap = (torch.tensor(theirs) - ours).abs().max().item() if len(theirs) == len(ours) else math.inf
        difference = max(difference, gap) if math.isfinite(gap) else math.inf
    if difference > TOLERANCE:
        raise ValueError(
            f"log-probabilities of CTranslate2 {ctranslate2.__version__} differ by {difference:.2g} from fairseq's, "
            f"which is more than {TOLERANCE:g}: nothing is written; please report this"
        )
    return difference, len(sentences)


def random_sentences(model: Any) -> list[tuple[list[int], list[int]]]:
    """Random sources and targets, without marks, of different lengths. Sources of a language model are empty."""
    generator = torch.Generator().manual_seed(1)

    def sentence(stack: Any, part: float) -> list[int]:
        length = max(1, int(part * min(stack.max_positions() - 1, LONGEST)))
        return torch.randint(4, max(len(stack.embed_tokens.weight), 5), (length,), generator=generator).tolist()

    pairs = []
    for source_part, target_part in ((1, 0.02), (0.02, 0.7), (0.7, 0.3), (0.3, 0.1), (0.1, 0.5), (0.5, 1)):
        source = sentence(model.encoder, source_part) if hasattr(model, "encoder") else []
        pairs.append((source, sentence(model.decoder, target_part)))
    return pairs


@torch.no_grad()
def fairseq_scores(model: Any, source: list[int], target: list[int], start: int) -> torch.Tensor:
    """The log-probability of each token of the target, </s> included."""
    before, after = torch.tensor([[start, *target]]), torch.tensor([*target, END])
    if hasattr(model, "encoder"):
        logits = model(torch.tensor([[*source, END]]), torch.tensor([len(source) + 1]), before)[0]
    else:
        logits = model(before)[0]
    return logits[0].float().log_softmax(-1)[torch.arange(len(after)), after]


def translator_scores(
    folder: Path, words: Sequence[Dictionary], sentences: Sequence[tuple[list[int], list[int]]]
) -> list[list[float]]:
    """Returns the log-probabilities that CTranslate2 gives the tokens of each target."""
    translator = ctranslate2.Translator(str(folder), compute_type="float32")
    sources = [[words[0][i] for i in source] for source, _ in sentences]
    targets = [[words[1][i] for i in target] for _, target in sentences]
    return [result.log_probs for result in translator.score_batch(sources, targets, max_input_length=0)]


def generator_scores(
    folder: Path, words: Dictionary, sentences: Sequence[tuple[list[int], list[int]]], start: str
) -> list[list[float]]:
    """The same of a language model."""
    generator = ctranslate2.Generator(str(folder), compute_type="float32")
    texts = [[start, *(words[i] for i in target), words.eos_word] for _, target in sentences]
    return [result.log_probs for result in generator.score_batch(texts, max_input_length=0)]
