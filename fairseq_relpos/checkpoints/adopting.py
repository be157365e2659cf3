"""A fine-tuning has the position hyperparameters of the checkpoint that it starts from."""

import argparse
import logging
import os
from typing import Any

from .. import flags
from ..encodings import ENCODINGS, hyperparameters
from .loading import load_checkpoint

logger = logging.getLogger(__name__)


def adopt_hparams(args: argparse.Namespace) -> None:
    """Completes ``args.position_hparams`` with those of the checkpoint that --finetune-from-model or --restore-file
    names, if its encoding is the same. What is given stays. Without this, a hyperparameter whose default depends on
    --max-positions would not fit the checkpoint where inputs are longer than in the pretraining."""
    path = start_of(args)
    if path is None:
        return
    given = flags.hparams(args.position_hparams)
    if set(hyperparameters(ENCODINGS[args.position_encoding])) <= set(given):
        return
    state = load_checkpoint(path)
    saved = state.get("args") or (state.get("cfg") or {}).get("model")
    settings: dict[str, Any] = vars(saved) if isinstance(saved, argparse.Namespace) else dict(saved or {})
    if settings.get("position_encoding") != args.position_encoding:
        return
    text = not_given(settings.get("position_hparams") or "", args.position_hparams)
    if text:
        logger.info(f"position hyperparameters of {path}, as they are not given: {text}")
        args.position_hparams = f"{args.position_hparams} {text}".strip()


def not_given(saved: str, given: str) -> str:
    """The hyperparameters of ``saved`` that ``given`` does not have. Both are texts for --position-hparams."""
    known = flags.hparams(given)
    return " ".join(f"{key}={value}" for key, value in flags.hparams(saved).items() if key not in known)


def start_of(args: argparse.Namespace) -> str | None:
    """The file from which the training starts, if a flag names one that there is."""
    restored = getattr(args, "restore_file", None)
    path = getattr(args, "finetune_from_model", None) or (restored if restored != "checkpoint_last.pt" else None)
    return path if path and os.path.isfile(path) else None
