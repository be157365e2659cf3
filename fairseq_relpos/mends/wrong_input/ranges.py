"""Checks of numbers: each flag has a range, whatever the other flags are."""

import argparse
import ast
import math
from collections.abc import Sequence
from typing import Any

#: no model is larger; beyond it the number of bytes overflows in torch
LARGEST = 2**24
#: how many seeds numpy has
SEEDS = 2**32

#: sizes of layers and tables, which need memory
SIZES = (
    "max_positions",
    *(
        f"{stack}_{what}"
        for stack in ("encoder", "decoder")
        for what in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
    ),
)
#: a large one means "never", or "no limit"
COUNTS = (
    "batch_size",
    "batch_size_valid",
    "max_tokens",
    "max_tokens_valid",
    "required_batch_size_multiple",
    "save_interval",
    "validate_interval",
    "log_interval",
    "tokens_per_sample",
    "max_source_positions",
    "max_target_positions",
    "beam",
    "nbest",
    "num_shards",
    "update_freq",
)
FROM_ZERO = (
    "max_update",
    "max_epoch",
    "num_workers",
    "warmup_updates",
    "validate_interval_updates",
    "adam_eps",
    "context_window",
    "memory_length",
    "eval_memory_length",
    "shard_id",
    "lr",
)
SHARES = (
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "relu_dropout",
    "pooler_dropout",
    "encoder_layerdrop",
    "decoder_layerdrop",
    "mask_prob",
    "leave_unmasked_prob",
    "random_token_prob",
    "label_smoothing",
)

#: name -> lowest and highest value, in the order in which they are checked
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(FROM_ZERO, (0, math.inf)),
    **dict.fromkeys(COUNTS, (1, math.inf)),
    **dict.fromkeys(SIZES, (1, LARGEST)),
    **dict.fromkeys(SHARES, (0, 1)),
    "seed": (0, SEEDS - 1),
    "clip_norm": (-math.inf, math.inf),
}


def check_numbers(args: argparse.Namespace) -> None:
    """Raises ValueError, one line, if one of the parsed settings is out of its range."""
    given = vars(args)
    for name, (lowest, highest) in RANGES.items():
        value: Any = given.get(name)
        for number in value if isinstance(value, (list, tuple)) else [value]:
            is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
            if is_number and not lowest <= number <= highest:
                raise ValueError(f"{flag(name)} {number}: give {in_words(lowest, highest, number)}")
    if given.get("mask_prob") in (0, 1) and "masked_lm" in str(given.get("task")):
        raise ValueError(f"--mask-prob {given['mask_prob']:g}: give a share above 0 and below 1, such as 0.15")
    if given.get("leave_unmasked_prob") and given["leave_unmasked_prob"] + given.get("random_token_prob", 0) > 1:
        raise ValueError(
            f"--leave-unmasked-prob {given['leave_unmasked_prob']:g} and --random-token-prob "
            f"{given['random_token_prob']:g} are shares of the same tokens: together 1 at most"
        )
    if given.get("context_window") and given["context_window"] >= (given.get("tokens_per_sample") or math.inf):
        raise ValueError(
            f"--context-window {given['context_window']} leaves nothing to score of "
            f"--tokens-per-sample {given['tokens_per_sample']}: give fewer"
        )
    if (given.get("shard_id") or 0) >= (given.get("num_shards") or math.inf):
        raise ValueError(f"--shard-id {given['shard_id']}: one of --num-shards {given['num_shards']}, counted from 0")
    check_betas(given.get("adam_betas"))


def check_betas(betas: str | Sequence[float] | None) -> None:
    """Raises ValueError, one line, if --adam-betas is anything but two shares."""
    if isinstance(betas, str):
        try:
            betas = ast.literal_eval(betas)
        except (ValueError, SyntaxError):
            pass  # the error below says that these are no numbers
    numbers = betas if isinstance(betas, (list, tuple)) else ()
    right = len(numbers) == 2 and all(isinstance(b, (int, float)) and 0 <= b < 1 for b in numbers)
    if betas is not None and not right:
        raise ValueError(f"--adam-betas {betas!r}: two numbers from 0 to below 1, such as '(0.9, 0.98)'")


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def in_words(lowest: float, highest: float, number: float) -> str:
    if math.isnan(number):
        return "a number"
    if highest == 1:
        return f"a share from {lowest} to 1"
    return f"{lowest} or more" if number < lowest else f"{highest:,} or less"
