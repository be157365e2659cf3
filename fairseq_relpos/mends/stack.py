"""fairseq on today's numpy and torch."""

import importlib.util
import inspect
import sys
import types
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import vocabulary_files
from .replace import note, put, replace


def numpy_compat() -> None:
    if not hasattr(np, "compat"):
        put(np, "compat", types.SimpleNamespace(long=int), "numpy-compat")


def length_buckets() -> None:
    from fairseq.data import bucket_pad_length_dataset

    if "interpolation" in inspect.signature(np.percentile).parameters:
        return

    @replace(bucket_pad_length_dataset, "get_buckets", "length-buckets")
    def get_buckets(stock, sizes, num_buckets):
        borders = np.linspace(0, 100, num_buckets + 1)
        return np.unique(np.percentile(sizes, borders, method="lower")[1:])


def checkpoint_classes() -> None:
    import torch

    from ..checkpoints.loading import allow_fairseq_classes

    if note(torch.serialization, "add_safe_globals", ["checkpoint-classes"]):
        allow_fairseq_classes()


def whole_word_masks() -> None:
    """fairseq asks the task's arguments for the vocabulary that says which pieces begin a word."""
    from fairseq.tasks.masked_lm import MaskedLMTask

    if not hasattr(MaskedLMTask, "args"):
        put(MaskedLMTask, "args", BesideTheData(), "whole-word-masks")


class BesideTheData:
    """The ``args`` of a task that sets none of its own, with --mask-whole-words."""

    def __get__(self, task: Any, owner: type | None = None) -> Any:
        if task is None:
            return self
        if not getattr(getattr(task, "cfg", None), "mask_whole_words", False):
            raise AttributeError(f"{type(task).__name__!r} object has no attribute 'args'")
        return vocabulary_beside_the_data(task)


def vocabulary_beside_the_data(task: Any, flag: str = "--mask-whole-words") -> Namespace:
    """Returns the vocabulary for fairseq's build_bpe. flag: the one that needs it, for the error."""
    from fairseq import utils
    from fairseq.data.encoders.sentencepiece_bpe import SentencepieceConfig

    data = utils.split_paths(task.cfg.data)[0]
    kind, paths = vocabulary_files.find(data)
    if kind == "sentencepiece":
        settings = SentencepieceConfig(sentencepiece_model=str(paths[0]))
        return Namespace(bpe="sentencepiece", **vars(settings))
    if kind == "gpt2":
        return Namespace(bpe="gpt2", gpt2_encoder_json=str(paths[0]), gpt2_vocab_bpe=str(paths[1]))
    raise ValueError(
        f"{flag}: {data} has no vocabulary that says where a word begins: put spm.model there, or "
        "encoder.json and vocab.bpe"
    )


def blocked_ngrams() -> None:
    """The generator hands over all of its buffer, at whose end there are pads."""
    from fairseq.ngram_repeat_block import NGramRepeatBlock

    def forward(self, tokens, lprobs, bsz: int, beam_size: int, step: int):  # such that TorchScript compiles it
        if self.use_extension:
            return self.call_cuda_extension(tokens, lprobs, bsz, beam_size, step)
        return self._no_repeat_ngram(tokens[:, : step + 1], lprobs, bsz, beam_size, step)

    put(NGramRepeatBlock, "forward", forward, "blocked-ngrams")


def bf16_without_tpu(settings: Namespace, arguments: Sequence[str] | None) -> None:
    """``--bf16`` without ``--tpu`` is no TPU; ``--tpu`` without torch_xla is a ValueError."""
    asked_for_tpu = "--tpu" in (sys.argv if arguments is None else arguments)
    has_tpu = importlib.util.find_spec("torch_xla") is not None
    if asked_for_tpu and not has_tpu:
        raise ValueError("--tpu needs torch_xla, which is not installed: leave the flag out")
    if getattr(settings, "bf16", False) and not asked_for_tpu:
        settings.tpu = has_tpu


INSTALLERS = (numpy_compat, length_buckets, checkpoint_classes, whole_word_masks, blocked_ngrams)
