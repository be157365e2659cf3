"""python -m fairseq_relpos.finetuning.start CHECKPOINT DATA [flags]: the flags of fairseq-train, a line each, that
fine-tune CHECKPOINT on DATA: those of the model, and of a schedule that is computed from the number of batches.
"""

import argparse
import math
from collections.abc import Sequence
from typing import Any

from ..command_line import Parser, positive
from .errors import run_program


def schedule(batches: int, epochs: int, warmup: float, validations: int) -> list[str]:
    """The flags of ``epochs`` over so many batches. warmup: a part of all updates. validations: so many an epoch."""
    updates = batches * epochs
    interval = math.ceil(batches / validations)
    return [
        *(f"--max-epoch {epochs}", f"--total-num-update {updates}", f"--warmup-updates {round(warmup * updates)}"),
        *(f"--validate-interval-updates {interval}", f"--save-interval-updates {interval}"),
    ]


def count_batches(data: str, seed: int, batch: int, max_tokens: int | None, longest: int) -> int:
    """The number of updates of an epoch, as fairseq-train makes them with these settings."""
    task = task_on(data, seed, longest)
    iterator = task.get_batch_iterator(
        task.load_dataset("train"),
        max_tokens=max_tokens,
        max_sentences=batch,
        required_batch_size_multiple=1,
        seed=seed,
    )
    return len(iterator.frozen_batches)


def task_on(data: str, seed: int, longest: int) -> Any:
    from ..tasks.sentence_pairs import SentencePairsConfig, SentencePairsTask

    cfg = SentencePairsConfig(data=data, max_positions=longest)
    cfg.seed, cfg.classification_head_name = seed, ""
    return SentencePairsTask.setup_task(cfg)


def settings_of(checkpoint: str, data: str) -> Any:
    """The settings of the model in the checkpoint, which may be of stock fairseq. Raises ValueError for one that no
    roberta_NAME can read, or that has another dictionary than DATA."""
    from ..checkpoints import warm_start

    state = warm_start.read(checkpoint)
    model = state["cfg"].model
    name = getattr(model, "position_encoding", None) or "learned"
    arch = getattr(model, "arch", None) or getattr(model, "_name", None) or ""
    ours = f"roberta_{name}"
    settings = warm_start.settings(model, arch if arch in (ours, f"{ours}_large") else ours, {})
    for key in ("position_encoding", "position_layers", "attention_window"):
        setattr(settings, key, getattr(model, key, None))
    refuse_another_dictionary(checkpoint, state, data)
    return settings


def refuse_another_dictionary(checkpoint: str, state: Any, data: str) -> None:
    from ..checkpoints.starting_point import same_dictionaries
    from ..checkpoints.warm_start import EMBEDDINGS

    words = len(task_on(data, 1, 512).dictionary)
    rows = next(len(state["model"][key]) for key in EMBEDDINGS if key in state["model"])
    remedy = "prepare the data with the vocabulary of this pretraining"
    if rows != words:
        raise ValueError(f"{checkpoint} has a dictionary of {rows} words, {data} has one of {words}: {remedy}")
    same_dictionaries(checkpoint, state["cfg"], data, remedy)


def flags(given: argparse.Namespace) -> list[str]:
    from ..checkpoints.warm_start import model_flags

    settings = settings_of(given.checkpoint, given.data)
    longest = given.max_positions or settings.max_positions
    batches = count_batches(given.data, given.seed, given.batch, given.max_tokens, longest)
    lines = list(model_flags(settings))
    if settings.position_layers not in (None, "all"):
        lines.append(f"--position-layers {settings.position_layers}")
    if settings.attention_window:
        lines.append(f"--attention-window {';'.join(settings.attention_window.split())}")
    lines.append(f"--max-positions {longest}")
    return lines + schedule(batches, given.epochs, given.warmup, given.validations)


def main(arguments: Sequence[str]) -> None:
    parser = Parser(prog="start")
    parser.add_argument("checkpoint")
    parser.add_argument("data")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=positive, default=32)
    parser.add_argument("--max-tokens", type=int)
    parser.add_argument("--epochs", type=positive, default=10)
    parser.add_argument("--warmup", type=float, default=0.06)
    parser.add_argument("--validations", type=positive, default=1)
    parser.add_argument("--max-positions", type=int)
    print("\n".join(flags(parser.parse_args(arguments))))


if __name__ == "__main__":
    run_program(main)
