"""The folder that transformers loads: what the exports of all families of models share."""

import argparse
import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..atomic_files import whole_folder
from ..hf import model_card
from ..signature import KEY

#: the largest difference of a logit between fairseq and the folder, as a part of the largest logit
TOLERANCE = 1e-5


@dataclass
class Exported:
    """The result of ``export``. difference: the largest of a logit. texts: so many got the same ids."""

    model: str
    parameters: int
    difference: float
    largest: float
    tokenizer: str | None
    texts: int
    left_out: list[str]

    @classmethod
    def of(cls, loaded: nn.Module, logits: Iterable[tuple[Tensor, Tensor]], words: Any, texts: int) -> "Exported":
        """Compares logits of ``loaded`` with those of fairseq's model. Raises ValueError if a difference is more than
        rounding, or a logit is not finite."""
        sizes = [(float((theirs - ours).abs().max()), float(ours.abs().max())) for theirs, ours in logits]
        difference, largest = torch.tensor(sizes).max(0).values.tolist()  # which is NaN if one of them is
        if not math.isfinite(difference):
            weight, name = max((weight.abs().max().item(), name) for name, weight in loaded.named_parameters())
            raise ValueError(
                f"logits of the model are not finite (nan or inf); its largest weight is {weight:.2g}, in {name}: "
                "nothing is written; give a checkpoint from before the training diverged"
            )
        if not difference <= TOLERANCE * max(largest, 1.0):
            raise ValueError(
                f"the logits of the exported model differ by {difference:.2g} from fairseq's, whose largest is "
                f"{largest:.2g}: nothing is written; please report this"
            )
        parameters = sum(parameter.numel() for parameter in loaded.parameters())
        tokenizer = None if words is None else words.kind
        return cls(type(loaded).__name__, parameters, difference, largest, tokenizer, texts, [])


def write(
    folder: Path,
    exported: Any,
    words: Any,
    longest: int,
    compare: Callable[[Path], Exported],
    cfg: Any,
    args: argparse.Namespace,
) -> Exported:
    """Writes the folder with a model of transformers, its tokenizer and its card, if ``compare`` raises no error.
    longest: tokens of an input."""
    with whole_folder(folder) as part, quiet():
        exported.save_pretrained(part)
        if words is not None:
            words.save(part, longest)
        result = compare(part)
        card = model_card.text(cfg, args, exported, result, words)
        (part / "README.md").write_text(card, encoding="utf-8")
    return result


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Within this block transformers shows no progress."""
    from transformers.utils import logging

    was_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_shown:
            logging.enable_progress_bar()


def renamed(weights: dict[str, torch.Tensor], names: dict[str, str]) -> dict[str, torch.Tensor]:
    """The weights by their names in transformers."""
    out = {}
    for key, tensor in weights.items():
        if key.endswith((".version", "._float_tensor")):  # no weights
            continue
        out[name_in_transformers(key, names)] = tensor
    return out


def name_in_transformers(key: str, names: dict[str, str]) -> str:
    for pattern, name in names.items():
        if re.match(pattern, key):
            return re.sub(pattern, name, key, count=1)
    raise ValueError(f"the model has a weight {key}, which has no place in transformers")


#: weights of transformers' RoBERTa that fairseq does not have
WITHOUT_COUNTERPART = "roberta.embeddings.token_type_embeddings.weight"


def load(model: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Loads all weights and no others. Token types are 0, and a bias that transformers has twice is one."""
    own = model.state_dict()
    if WITHOUT_COUNTERPART in own:
        weights[WITHOUT_COUNTERPART] = torch.zeros_like(own[WITHOUT_COUNTERPART])
    if "lm_head.bias" in own and "lm_head.decoder.bias" in own:
        weights["lm_head.decoder.bias"] = weights["lm_head.bias"]
    model.load_state_dict({key: tensor for key, tensor in weights.items() if key in own or not key.endswith(KEY)})


def random_rows(words: int, longest: int) -> list[Tensor]:
    """Three sentences of random ids below ``words``."""
    generator, longest = torch.Generator().manual_seed(1), min(longest, 48)
    return [torch.randint(4, max(words, 5), (length,), generator=generator) for length in (longest, longest // 2, 3)]
