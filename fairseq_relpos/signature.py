"""The encoding's signature in the state dict, so that a checkpoint of one encoding cannot
be continued with another whose tables happen to have the same shapes."""

import contextlib
import logging
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .layer_numbers import layers_text
from .once import log_once

logger = logging.getLogger(__name__)

#: fairseq's EMA and averaging leave keys with "version" in them alone; float32, because
#: an integer buffer breaks the first and a byte buffer the second
KEY = "encoding_version"


#: what to do about a mismatch in fairseq's commands
ADVICE = (
    "use the same --arch and --position-... flags and, as tables may be as long as the inputs, --max-...-positions, "
    "or name in --position-hparams what differs; "
    "`fairseq-relpos warm-start` starts a new RoBERTa, ELECTRA, BART or transformer from a trained one"
)


class SignatureMismatch(ValueError):
    """The checkpoint has another position encoding."""


def sign(
    stack_part: Any,
    encoding: Any,
    layers: str = "all",
    count: int = 1,
    stock: bool = True,
    advice: str = ADVICE,
    windows: str = "",
) -> None:
    """Gives the stack part its signature. layers: those of ``count`` that have the encoding. stock=False: also where
    the encoding's positions are fairseq's own, but not those that fairseq builds in this stack. advice: what a mismatch
    says to do. windows: of the layers, as text."""
    stack_part.signature = canonical(text_of(encoding, layers, windows), count)
    stack_part.layer_count = count
    stack_part.if_signatures_differ = advice
    if stock and encoding.stock_positions:
        # stock fairseq's state dict, key for key
        before_loading(stack_part, check_stock_file)
    else:
        stack_part.register_buffer(KEY, to_bytes(stack_part.signature))
        before_loading(stack_part, check_signature)


def before_loading(module: nn.Module, hook: Callable[..., None]) -> None:
    """Calls hook(module, state_dict, prefix, ...) before the module loads a state dict."""
    # the public method is new in torch 2.5
    module._register_load_state_dict_pre_hook(hook, with_module=True)


def check_stock_file(positions: Any, state_dict: dict[str, Any], prefix: str, *unused: Any) -> None:
    """Load hook: drops the keys of fairseq's sinusoids and compares a signature if there is one."""
    drop_sinusoids(positions, state_dict, prefix)
    signature = state_dict.pop(prefix + KEY, None)
    if signature is not None:
        compare_with(positions, signature, prefix)


def drop_sinusoids(positions: Any, state_dict: dict[str, Any], prefix: str, *unused: Any) -> None:
    """Load hook: drops the keys of fairseq's sinusoids."""
    # fairseq 0.12.2 writes the second, older ones the first
    for key in ("weights", "_float_tensor"):
        state_dict.pop(prefix + key, None)


def refuse_positions(stack: nn.Module) -> None:
    """Makes a stock fairseq stack refuse a checkpoint in which it had a position encoding."""
    before_loading(stack, check_stock_stack)


def check_stock_stack(stack: nn.Module, state_dict: dict[str, Any], prefix: str, *unused: Any) -> None:
    signature = state_dict.get(f"{prefix}embed_positions.{KEY}")
    if signature is not None:
        compare(to_text(signature), "stock fairseq's positions", prefix)


def text_of(encoding: Any, layers: str, windows: str = "") -> str:
    """The signature of the encoding in these layers, as text."""
    return f"{encoding.signature}|layers:{layers}" + (f"|window:{windows}" if windows else "")


def canonical(signature: str, count: int) -> str:
    """The signature of a stack of ``count`` layers with the canonical form of their pattern: files from before it have
    the pattern as it was given."""
    pattern = re.search(r"(?<=\|layers:)[^|]*", signature)
    if pattern:
        with contextlib.suppress(ValueError):  # no layers of this stack
            return signature[: pattern.start()] + layers_text(pattern[0], count) + signature[pattern.end() :]
    return signature


def compare_with(stack_part: Any, found: torch.Tensor, prefix: str) -> None:
    """Raises SignatureMismatch where a file has another signature than the stack part."""
    signature = canonical(to_text(found), stack_part.layer_count)
    compare(signature, stack_part.signature, prefix, stack_part.if_signatures_differ)


def check_signature(stack_part: Any, state_dict: dict[str, Any], prefix: str, *unused: Any) -> None:
    key = prefix + KEY
    if key in state_dict:
        compare_with(stack_part, state_dict[key], prefix)
    else:
        # once: fairseq's EMA loads one at every update
        log_once(
            logger,
            "checkpoint without a position-encoding signature (stock fairseq, or learned positions): loaded as "
            f"{stack_part.signature} where the weights fit",
        )
    state_dict[key] = to_bytes(stack_part.signature)


def compare(found: str, wanted: str, prefix: str, advice: str = ADVICE) -> None:
    """Raises SignatureMismatch where the two signatures differ."""
    if found != wanted:
        stack = prefix.split(".")[0]
        raise SignatureMismatch(f"the checkpoint's {stack} was trained with [{found}], asked for [{wanted}]: {advice}")


def to_bytes(text: str) -> torch.Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.float32)


def to_text(signature: torch.Tensor) -> str:
    return bytes(signature.round().to(torch.uint8).tolist()).decode(errors="replace")
