"""A fine-tuning has the position hyperparameters of the checkpoint that it starts from."""

import argparse
import logging
import os
from typing import Any

from .. import flags
from ..encodings import ENCODINGS, hyperparameters
from ..ranks import from_the_first
from .loading import load_checkpoint

logger = logging.getLogger(__name__)


def adopt_hparams(args: argparse.Namespace) -> None:
    """Completes ``args.position_hparams`` with those of the checkpoint that --finetune-from-model or --restore-file
    names, if its encoding is the same. Given ones remain. Without this, a hyperparameter whose default depends on
    --max-positions would not fit the checkpoint where inputs are longer than in the pretraining.

    It does so once: ``args`` are saved with the model, which is built again by them alone."""
    path = start_of(args)
    if path is None or getattr(args, "position_hparams_adopted", False):
        return
    args.position_hparams_adopted = True
    if not hyperparameters(ENCODINGS[args.position_encoding]):
        return
    saved = from_the_first(lambda: saved_hparams(path, args.position_encoding))
    text = not_given(saved, args.position_hparams)
    if text:
        logger.info(f"position hyperparameters of {path}, as they are not given: {text}")
        # a setting of some layers wins over one before it
        args.position_hparams = f"{text} {args.position_hparams}".strip()


def saved_hparams(path: str, encoding: str) -> str:
    """The position hyperparameters of a checkpoint, as for --position-hparams, if it has this encoding."""
    if not os.path.isfile(path):
        return ""  # fairseq refuses it with a message of its own
    state = load_checkpoint(path)
    saved = state.get("args") or (state.get("cfg") or {}).get("model")
    settings: dict[str, Any] = vars(saved) if isinstance(saved, argparse.Namespace) else dict(saved or {})
    return settings.get("position_hparams") or "" if settings.get("position_encoding") == encoding else ""


def not_given(saved: str, given: str) -> str:
    """The hyperparameters of ``saved`` that ``given`` does not have. Both are texts for --position-hparams."""
    known = flags.hparams(given)
    return " ".join(f"{key}={value}" for key, value in flags.hparams(saved).items() if key not in known)


def start_of(args: argparse.Namespace) -> str | None:
    """The file from which the training starts, if a flag names one. Where it is gone, the last checkpoint."""
    restored = getattr(args, "restore_file", None)
    given = getattr(args, "finetune_from_model", None)
    own = os.path.join(getattr(args, "save_dir", None) or "", "checkpoint_last.pt")
    if given:
        return own if os.path.isfile(own) and not os.path.exists(given) else given
    return restored if restored != "checkpoint_last.pt" else None
