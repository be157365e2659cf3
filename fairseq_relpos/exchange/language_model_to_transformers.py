"""A checkpoint of a language model (transformer_lm) as a folder that transformers loads."""

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from fairseq.data import data_utils

from .. import flags
from ..checkpoints.starting_point import complete_settings
from ..encodings import Dims, build_layer_part, parse_hparams
from ..hf import RelPosDecoderConfig, RelPosDecoderForCausalLM
from ..signature import text_of
from .names import ACTIVATIONS
from .trained_models import (
    END,
    OF_LANGUAGE_MODELS,
    PAD,
    built_language_model,
    fairseq_texts,
    refuse_without_counterpart,
)
from .transformers_folder import Exported, load, random_rows, renamed, write
from .words import Words, compare_ids, real_rows

#: names of weights, fairseq's -> those of transformers; the first that fits
NAMES = {
    r"decoder\.output_projection\.": "lm_head.",
    r"decoder\.(embed_tokens|project_in_dim|project_out_dim)\.": r"decoder.\1.",
    r"decoder\.": "decoder.stack.",
}
#: fairseq-generate's default of --max-len-b, the tokens of a text without </s>
MAX_LEN_B = 200


def export(state: dict[str, Any], checkpoint: Path, folder: Path, data: str | Path | None) -> Exported:
    """``to_transformers.export`` for a language model. Besides logits and ids, it compares what both generate."""
    model, args = fairseq_model(state, checkpoint)
    start = "<s>" if getattr(state["cfg"].task, "add_bos_token", False) else "</s>"
    words = None if data is None else Words(data, len(model.decoder.embed_tokens.weight), checkpoint, start)
    exported = as_transformers(model, args, start)
    comparison = partial(compare, model=model, words=words)
    return write(folder, exported, words, args.max_target_positions, comparison, state["cfg"], args)


def fairseq_model(state: dict[str, Any], path: Path) -> tuple[Any, argparse.Namespace]:
    """The model in the checkpoint, as it is evaluated, and its settings."""
    args, weights = complete_settings(state["cfg"].model), state["model"]
    refuse_without_counterpart(args, path, OF_LANGUAGE_MODELS, ACTIVATIONS, "transformers")
    return built_language_model(args, weights), args


def as_transformers(model: Any, args: argparse.Namespace, start: str) -> RelPosDecoderForCausalLM:
    """The model of transformers with the same weights."""
    positions = {"encoding": args.position_encoding, "hparams": args.position_hparams, "layers": args.position_layers}
    settings = decoder_settings(model.decoder, args, **positions, window=flags.window(args))
    out = RelPosDecoderForCausalLM(RelPosDecoderConfig(**settings, bos_token_id=0 if start == "<s>" else END))
    load(out, renamed(model.state_dict(), NAMES))
    set_generation(out, out.config.max_position_embeddings, bos_token_id=out.config.bos_token_id)
    return out.eval()


def decoder_settings(decoder: Any, args: argparse.Namespace, **positions: str) -> dict[str, Any]:
    """The settings of a decoder for ``RelPosDecoderConfig``. positions: those of ``stack_settings``."""
    return {
        **stack_settings(decoder, "decoder", args, **positions),
        "embedding_size": decoder.embed_tokens.embedding_dim,
        "output_size": decoder.output_projection.in_features,
        "tie_word_embeddings": decoder.output_projection.weight is decoder.embed_tokens.weight,
        "final_norm": decoder.layer_norm is not None,
    }


def stack_settings(
    stack: Any, name: str, args: argparse.Namespace, encoding: str, hparams: str, layers: str, window: str
) -> dict[str, Any]:
    """Returns the settings that encoder and decoder share. encoding, hparams, layers: of the positions; window: of the
    attention."""
    sizes = ("embed_dim", "attention_heads", "ffn_embed_dim", "normalize_before")
    embed_dim, heads, ffn_dim, normalize_before = (getattr(args, f"{name}_{size}") for size in sizes)
    longest = args.max_source_positions if name == "encoder" else args.max_target_positions
    longest = max(longest, flags.randomized_positions(args) or 0)  # as many as the tables cover
    dims = Dims(embed_dim, heads, longest, causal=name == "decoder", has_cls=False)
    signature = getattr(stack.embed_positions, "signature", None)
    if signature is None:  # stock fairseq's positions
        signature = text_of(build_layer_part(encoding, dims, **parse_hparams(hparams)), layers)
    return {
        "vocab_size": len(stack.embed_tokens.weight),
        "hidden_size": embed_dim,
        "num_hidden_layers": len(stack.layers),
        "num_attention_heads": heads,
        "intermediate_size": ffn_dim,
        "hidden_act": ACTIVATIONS[args.activation_fn],
        "hidden_dropout_prob": args.dropout,
        "attention_probs_dropout_prob": args.attention_dropout,
        "activation_dropout": args.activation_dropout,
        "max_position_embeddings": longest,
        "layer_norm_eps": stack.layers[0].final_layer_norm.eps,
        "position_encoding": encoding,
        "position_hparams": hparams,
        "position_layers": layers,
        "position_signature": signature,
        "attention_window": window,
        "normalize_before": normalize_before,
        "layernorm_embedding": args.layernorm_embedding,
        "scale_embedding": not args.no_scale_embedding,
    }


def set_generation(model: Any, longest: int, **tokens: int | None) -> None:
    """Gives ``generate`` the rules and defaults of fairseq-generate: five beams, which end as soon as five texts have
    ended, scores divided by the number of tokens, no <pad>, no empty text, and </s> at the end of the longest one.
    longest: text of the model. tokens: more ids."""
    model.generation_config.update(
        **tokens,
        eos_token_id=END,
        pad_token_id=PAD,
        num_beams=5,
        early_stopping=True,
        length_penalty=1.0,
        do_sample=False,
        suppress_tokens=[PAD],
        min_length=2,
        max_length=min(MAX_LEN_B + 2, longest + 1),
        forced_eos_token_id=END,
    )


def compare(folder: Path, model: Any, words: Words | None) -> Exported:
    """Loads the folder and compares it with fairseq's model. Raises ValueError if they differ."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    loaded = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    texts: list[str] = []
    if words is not None:
        texts = words.texts()
        compare_ids(AutoTokenizer.from_pretrained(folder, local_files_only=True), words, texts)

    @torch.no_grad()
    def pairs_of_logits():
        for tokens_BT in batches(model, loaded.config.bos_token_id, words, texts):
            real = tokens_BT.ne(PAD)
            theirs = loaded(input_ids=tokens_BT, attention_mask=real.long()).logits[real]
            yield theirs, model(tokens_BT)[0][real]

    result = Exported.of(loaded, pairs_of_logits(), words, len(texts))
    compare_texts(loaded, model)
    return result


def batches(model: Any, start: int, words: Words | None, texts: list[str]) -> Iterator[torch.Tensor]:
    """Token ids: random ones padded to the right, to the left and not at all, and real texts."""
    rows = random_rows(len(model.decoder.embed_tokens.weight), model.max_positions())
    for row in rows:
        row[0] = start
    yield rows[0][None]
    yield data_utils.collate_tokens(rows, PAD)
    yield data_utils.collate_tokens(rows, PAD, left_pad=True)
    if real := [] if words is None else real_rows(words, texts, model.max_positions()):
        yield data_utils.collate_tokens(real, PAD, left_pad=True)


#: tokens of the texts that both generate for the comparison
GENERATED = 24


def compare_texts(loaded: Any, model: Any) -> None:
    """Raises ValueError if ``generate`` finds another text than fairseq's search, with one beam or five."""
    length = min(GENERATED, model.max_positions() - 1)
    for beam in (1, 5):
        (best,) = fairseq_texts(model, loaded.config.bos_token_id, beam, length)
        found = loaded.generate(num_beams=beam, early_stopping=beam > 1, max_length=length + 2)[0, 1:].tolist()
        need_same_text(found, best, beam)


def need_same_text(found: list[int], best: list[int], beam: int) -> None:
    """Raises ValueError if ``generate`` has found another text than fairseq's search."""
    if found != best:
        raise ValueError(
            f"the exported model generates {found[:12]} with {beam} beams, fairseq {best[:12]}: nothing is "
            "written; please report this"
        )
