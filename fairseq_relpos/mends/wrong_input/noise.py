"""Checks of the noise of fairseq's denoising tasks."""

import math
from collections.abc import Mapping
from typing import Any

from .ranges import flag

#: tasks that restore a text from one with noise
TASKS = ("denoising", "multilingual_denoising")
#: mean lengths of spans. Above 16.1 fairseq's table of lengths has only the length 0; near 0 nearly every length is 0.
#: In both cases its search for spans does not end
SPANS = (0.1, 16.0)


def check(settings: Mapping[str, Any]) -> None:
    """Raises ValueError, one line, for noise that leaves nothing of the text, or that is none."""
    if settings.get("task") not in TASKS:
        return
    given = {name: value for name, value in settings.items() if value}
    for name in ("mask", "mask_random", "rotate"):
        if not 0 <= given.get(name, 0) <= 1:
            raise ValueError(f"{flag(name)} {given[name]}: give a share from 0 to 1")
    if not 0 <= given.get("insert", 0) < math.inf:
        raise ValueError(f"--insert {given['insert']}: give 0 or more")
    spans = settings.get("poisson_lambda")
    if spans is not None and not SPANS[0] <= spans <= SPANS[1]:
        raise ValueError(f"--poisson-lambda {spans}: give a number from {SPANS[0]:g} to {SPANS[1]:g}; BART has 3")
    if given.get("replace_length", 0) not in (-1, 0, 1):
        raise ValueError(
            f"--replace-length {given['replace_length']}: give 1 (a span becomes one <mask>), -1 (each of its tokens "
            "does) or 0 (none does)"
        )
    if given.get("replace_length") == -1 and given.get("mask_length") == "subword":
        raise ValueError("--replace-length -1 needs --mask-length word or span-poisson: with subword give 1 or 0")
    tokens = settings["tokens_per_sample"]
    words = tokens - 2  # without <s> and </s>
    if "mask" in given and math.ceil(words * given["mask"]) >= words:
        raise ValueError(
            f"--mask {given['mask']:g} hides every word of a sample, so that nothing is left to restore the text from: "
            "give a smaller share, such as 0.3"
        )
    if "permute" in given:
        raise ValueError(f"--permute {given['permute']:g}: fairseq has the flag, but no such noise: leave it out")
    if given.get("permute_sentences", 0) > 0 and settings["task"] == "denoising" and given.get("bpe") != "gpt2":
        raise ValueError(
            f"--permute-sentences {given['permute_sentences']:g} changes nothing: fairseq knows a sentence by the full "
            "stop of --bpe gpt2 alone; leave it out"
        )
    longest, room = math.ceil(tokens * (1 + given.get("insert", 0))), given.get("max_source_positions", math.inf)
    if longest > max(room, tokens):
        raise ValueError(
            f"--insert {given['insert']:g} makes inputs of up to {longest} tokens, and --max-source-positions is "
            f"{room}: give {longest}"
        )
