"""The two parts of an ELECTRA in a checkpoint."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

#: what stands before the names of the weights of each part
PREFIX, GENERATOR = "discriminator.", "generator."
TABLE = "encoder.sentence_encoder.embed_tokens.weight"


def has_discriminator(weights: Iterable[str]) -> bool:
    return any(key.startswith(PREFIX) for key in weights)


def need_discriminator(what: Any, weights: Iterable[str]) -> None:
    """Raises ValueError, one line, for weights that are not those of an ELECTRA. what: where they come from."""
    if not has_discriminator(weights):
        raise ValueError(
            f"{what} has no discriminator, so it is no ELECTRA: give one that --arch electra_NAME has trained; "
            "`fairseq-relpos warm-start IN OUT --arch electra_NAME` makes one of a RoBERTa"
        )


def refuse_electra(what: Any, weights: Iterable[str]) -> None:
    """Raises ValueError, one line, for the weights of an ELECTRA where a RoBERTa is needed."""
    if has_discriminator(weights):
        raise ValueError(
            f"{what} is a checkpoint of ELECTRA: first use `fairseq-relpos export-discriminator`, which makes a "
            "RoBERTa of its discriminator"
        )


def renamed_as_part(part: str, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights of a RoBERTa by the names that they have in a part of an ELECTRA, which has no classification
    heads."""
    return {f"{part}{key}": tensor for key, tensor in weights.items() if not key.startswith("classification_heads.")}


def need_width(path: str | Path, state: dict[str, Any], generator: Any, words: int) -> None:
    """Raises ValueError, one line, for a RoBERTa that an ELECTRA's generator cannot start from."""
    table = next(tensor for key, tensor in state["model"].items() if key.endswith(TABLE.removeprefix("encoder")))
    width = generator.args.encoder_embed_dim
    if tuple(table.shape) != (words, width):
        raise ValueError(
            f"--generator {path} has {len(table)} words and a width of {table.size(1)}, but the generator has {words} "
            f"and {width}: give a RoBERTa with the same dictionary and this width, or another --generator-size"
        )
