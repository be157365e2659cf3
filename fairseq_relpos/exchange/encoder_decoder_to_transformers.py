"""A checkpoint of an encoder-decoder model (transformer, BART) as a folder that transformers loads."""

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from fairseq.data import data_utils
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.models.bart import BARTModel
from fairseq.models.transformer import TransformerModel

from .. import flags
from ..checkpoints.encoder_decoder import encoding_of
from ..checkpoints.starting_point import complete_settings
from ..hf import (
    RelPosDecoderConfig,
    RelPosRobertaConfig,
    RelPosTransformerConfig,
    RelPosTransformerForConditionalGeneration,
)
from ..models.bart import RelPosBart
from ..models.transformer import RelPosTransformer
from . import language_model_to_transformers as language_model
from .dictionaries import languages_of
from .language_model_to_transformers import GENERATED
from .names import ACTIVATIONS
from .trained_models import (
    END,
    OF_TRANSLATORS,
    PAD,
    built_translator,
    refuse_without_counterpart,
    translated_by_fairseq,
)
from .transformers_folder import Exported, load, random_rows, renamed, write
from .translation_words import DenoisedText, TwoVocabularies

#: names of weights, fairseq's -> those of transformers; the first that fits
NAMES = {
    **{pattern: f"decoder.{name}" for pattern, name in language_model.NAMES.items()},
    r"encoder\.embed_tokens\.": "encoder.embed_tokens.",
    r"encoder\.": "encoder.encoder.",
}
#: heads of a BART for the class of a text, which stay behind
HEADS = "classification_heads."
#: sentences of each comparison
SENTENCES = 8


def export(state: dict[str, Any], checkpoint: Path, folder: Path, data: str | Path | None) -> Exported:
    """``to_transformers.export`` for an encoder-decoder model. Besides logits and ids, it compares translations."""
    left_out = sorted(key for key in state["model"] if key.startswith(HEADS))
    for key in left_out:
        del state["model"][key]
    model, args = fairseq_model(state, checkpoint)
    words = None if data is None else words_of(state["cfg"].task, data, model, checkpoint)
    exported = as_transformers(model, args)
    comparison = partial(compare, model=model, words=words)
    result = write(folder, exported, words, args.max_source_positions, comparison, state["cfg"], args)
    result.left_out = left_out
    return result


def words_of(task: Any, data: str | Path, model: Any, checkpoint: Path) -> TwoVocabularies | DenoisedText:
    """The vocabulary of the training's data."""
    sizes = [len(stack.embed_tokens.weight) for stack in (model.encoder, model.decoder)]
    if getattr(task, "_name", None) == "denoising":
        return DenoisedText(data, sizes[0], checkpoint)
    return TwoVocabularies(data, languages_of(task, Path(data), checkpoint), sizes, checkpoint)


def fairseq_model(state: dict[str, Any], path: Path) -> tuple[Any, argparse.Namespace]:
    """The model in the checkpoint, as it is evaluated, and its settings."""
    args, weights = complete_settings(state["cfg"].model), state["model"]
    if ARCH_MODEL_REGISTRY.get(args.arch) not in (RelPosTransformer, TransformerModel, RelPosBart, BARTModel):
        raise ValueError(
            f"{path} has the architecture {args.arch}, which export-hf does not serve: it serves transformer_NAME, "
            "bart_NAME, the stock transformer and BART, transformer_lm_NAME and roberta_NAME"
        )
    refuse_without_counterpart(args, path, OF_TRANSLATORS, ACTIVATIONS, "transformers")
    return built_translator(args, weights), args


def as_transformers(model: Any, args: argparse.Namespace) -> RelPosTransformerForConditionalGeneration:
    """The model of transformers with the same weights."""
    positions = positions_of(args)
    source = language_model.stack_settings(model.encoder, "encoder", args, **positions["encoder"])
    target = language_model.decoder_settings(model.decoder, args, **positions["decoder"])
    config = RelPosTransformerConfig(
        # dtype: from_pretrained adds it, and a folder that is loaded and saved shall not change
        encoder=RelPosRobertaConfig(**source, has_cls=False, dtype="float32"),
        decoder=RelPosDecoderConfig(**target, memory_size=source["hidden_size"], dtype="float32"),
        tie_word_embeddings=model.encoder.embed_tokens.weight is model.decoder.embed_tokens.weight,
    )
    out = RelPosTransformerForConditionalGeneration(config)
    load(out, renamed(model.state_dict(), NAMES))
    language_model.set_generation(out, args.max_target_positions, decoder_start_token_id=END)
    return out.eval()


def positions_of(args: argparse.Namespace) -> dict[str, dict[str, str]]:
    """The encoding of each stack, its hyperparameters, and the layers that have it. Positions that stock fairseq
    adds to the input are an encoding, too."""
    chosen = flags.chosen_stacks(args.position_stacks) if hasattr(args, "position_stacks") else ()
    windows = flags.windows_of(args, chosen)
    found = {}
    for stack in flags.STACKS:
        name, hparams = encoding_of(args, stack)
        found[stack] = {
            "encoding": name,
            "hparams": " ".join(f"{key}={value}" for key, value in hparams.items()),
            "layers": args.position_layers if stack in chosen else "all",
            "window": windows.get(stack, ""),
        }
    return found


def compare(folder: Path, model: Any, words: TwoVocabularies | DenoisedText | None) -> Exported:
    """Loads the folder and compares it with fairseq's model. Raises ValueError if they differ."""
    from transformers import AutoModelForSeq2SeqLM

    loaded = AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True).eval()
    texts = 0 if words is None else words.compare(folder)
    pairs = list(batches(model, words))

    @torch.no_grad()
    def pairs_of_logits():
        for source_BS, previous_BT in pairs:
            real = previous_BT.ne(PAD)
            theirs = loaded(source_BS, decoder_input_ids=previous_BT).logits[real]
            yield theirs, model(source_BS, source_BS.ne(PAD).sum(1), previous_BT)[0][real]

    result = Exported.of(loaded, pairs_of_logits(), words, texts)
    source_BS, length = pairs[-1][0], min(GENERATED, model.max_decoder_positions() - 1)
    for beam in (1, 5):
        found = translated(loaded, source_BS, num_beams=beam, early_stopping=beam > 1, max_length=length + 2)
        for ours, best in zip(found, translated_by_fairseq(model, source_BS, beam, length)):
            language_model.need_same_text(ours, best, beam)
    return result


def batches(model: Any, words: TwoVocabularies | DenoisedText | None) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Sources and the decoder's inputs: random ones, with pads on either side and without, and real sentences."""
    longest, stacks = min(model.max_positions()), (model.encoder, model.decoder)
    source, target = (random_rows(len(stack.embed_tokens.weight), longest) for stack in stacks)
    target.reverse()
    for row in (*source, *target):
        row[-1] = END
    previous_BT = data_utils.collate_tokens(target, PAD, END, move_eos_to_beginning=True)
    yield source[0][None], previous_BT[:1]
    yield data_utils.collate_tokens(source, PAD, left_pad=True), previous_BT
    yield data_utils.collate_tokens(source, PAD), previous_BT
    real = [] if words is None else words.pairs(*model.max_positions())
    if real:
        source, target = map(list, zip(*real[:SENTENCES]))
        previous_BT = data_utils.collate_tokens(target, PAD, END, move_eos_to_beginning=True)
        yield data_utils.collate_tokens(source, PAD), previous_BT


def translated(loaded: Any, source_BS: torch.Tensor, **settings: Any) -> list[list[int]]:
    """Returns the text that ``generate`` finds for each source, without its first token and pads."""
    rows = loaded.generate(source_BS, **settings).tolist()
    return [[token for token in row[1:] if token != PAD] for row in rows]
