"""Reading checkpoints without running what is in them, and saying what is wrong with a file."""

import argparse
import ast
import collections
import logging
import os
import re
import typing
import zipfile

import numpy as np
import torch
from omegaconf import OmegaConf

logger = logging.getLogger(__name__)

# how torch.save began a file before torch 1.6: pickle protocol 2 and torch's magic number
_LEGACY_TORCH_FILE = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def allow_fairseq_classes():
    """Lets torch's weights_only, which stays on, accept the classes in fairseq's checkpoints.

    It refuses all but tensors and plain containers; fairseq stores more. Every class listed
    holds values and runs nothing when it is read. The list is torch's own and process-wide.
    """
    from fairseq.distributed.utils import _TensorPlaceholder
    from fairseq.logging import meters
    from omegaconf import DictConfig, ListConfig
    from omegaconf.base import ContainerMetadata, Metadata
    from omegaconf.nodes import AnyNode

    multiarray = np._core.multiarray if hasattr(np, "_core") else np.core.multiarray
    settings = [argparse.Namespace]
    # validation scores (--eval-bleu, --report-acc-and-f1) are numpy numbers
    scores = [multiarray._reconstruct, multiarray.scalar, np.ndarray, np.dtype]
    scores += [type(np.dtype(name)) for name in ("int64", "float32", "float64")]
    # when a run resumes, the first rank sends the others its configuration as objects
    sent = [DictConfig, ListConfig, ContainerMetadata, Metadata, AnyNode, typing.Any]
    sent += [dict, list, int, collections.defaultdict, _TensorPlaceholder]
    # an old file that a newer fairseq has written again
    counters = [meters.AverageMeter, meters.TimeMeter, meters.StopwatchMeter]
    torch.serialization.add_safe_globals(settings + scores + sent + counters)

    if torch.__version__ >= (2, 6):  # before, a class cannot be allowed under another name
        torch.serialization.add_safe_globals(
            [
                # fairseq < 0.9
                *((meter, f"fairseq.meters.{meter.__name__}") for meter in counters),
                # files that numpy < 2 wrote, files that numpy >= 2 wrote
                (multiarray._reconstruct, "numpy.core.multiarray._reconstruct"),
                (multiarray.scalar, "numpy.core.multiarray.scalar"),
                (multiarray._reconstruct, "numpy._core.multiarray._reconstruct"),
                (multiarray.scalar, "numpy._core.multiarray.scalar"),
            ]
        )


TRUST_FLAG = "--trust-checkpoint"
_TRUST = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"


def trust_checkpoints():
    """From now on this process builds whatever a checkpoint holds: --trust-checkpoint."""
    os.environ[_TRUST] = "1"
    logger.warning(f"{TRUST_FLAG}: code in a checkpoint is RUN while it is read")


def take_trust_flag(arguments):
    """The arguments without --trust-checkpoint, which is obeyed."""
    if TRUST_FLAG in arguments:
        trust_checkpoints()
    return [argument for argument in arguments if argument != TRUST_FLAG]


def load_checkpoint(path):
    """The dict in a fairseq checkpoint of any age, read to the CPU with weights_only on, unless
    --trust-checkpoint was given.

    Raises ValueError, one line, for a file that is cut short, that is no checkpoint, or that
    contains a class which is not allowed or a setting that is code (nothing in it is executed);
    OSError for no file at all.
    """
    allow_fairseq_classes()
    try:
        state = torch.load(path, map_location="cpu", weights_only=_TRUST not in os.environ)
    except MemoryError:
        raise
    except Exception as error:  # a damaged file makes torch raise almost anything
        if isinstance(error, OSError) and error.filename is not None:
            raise  # the file cannot be opened
        # torch's own text advises to switch the protection off: it is left out
        raise ValueError(_what_is_wrong(path, error)) from None
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise ValueError(f"{path} is a torch file but no fairseq checkpoint: no model is in it")
    refuse_code_in_settings(path, state)
    return state


def refuse_code_in_settings(path, state):
    """Some models of fairseq build themselves by ``eval`` of their settings, which are text such as
    "[(512, 3)] * 20". A call in it runs whatever it names, so none may be there."""
    if _TRUST in os.environ:
        return
    for name in ("args", "cfg"):
        for setting, text in _texts(state.get(name), name):
            if setting.rsplit(".", 1)[-1] not in PATHS and _calls_something(text):
                raise ValueError(
                    f"{path} has code in its setting {setting} ({text[:40]!r}), which fairseq may run: not used, "
                    "nothing was executed. Get the file from elsewhere, or, if you trust whoever made it, add "
                    f"{TRUST_FLAG}"
                )


#: settings that are names of files, which nothing evaluates: wiki(2) is one
PATHS = {
    "data", "save_dir", "restore_file", "finetune_from_model", "log_file", "tensorboard_logdir", "wandb_project",
    "user_dir", "path", "results_path", "plasma_path", "bpe_codes", "sentencepiece_model", "gpt2_encoder_json",
    "gpt2_vocab_bpe",
}  # fmt: skip


def _texts(settings, name):
    """(name, text) of every text in nested settings."""
    if OmegaConf.is_config(settings):
        settings = OmegaConf.to_container(settings, resolve=False)
    if isinstance(settings, argparse.Namespace):
        settings = vars(settings)
    if isinstance(settings, (list, tuple)):
        settings = dict(enumerate(settings))
    if isinstance(settings, dict):
        for key, value in settings.items():
            yield from _texts(value, f"{name}.{key}")
    elif isinstance(settings, str):
        yield name, settings


def _calls_something(text):
    if "(" not in text:
        return False
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False  # nor does eval come to run it
    return any(isinstance(node, ast.Call) for node in ast.walk(tree))


def _what_is_wrong(path, error):
    foreign = re.search(r"GLOBAL (\S+)", str(error))
    if foreign:
        return (
            f"{path} contains {foreign[1]}, which has no place in a checkpoint and could run any "
            "code: not read, nothing was executed. Get the file from elsewhere, or, if you trust "
            f"whoever made it, add {TRUST_FLAG}"
        )
    with open(path, "rb") as file:
        start = file.read(len(_LEGACY_TORCH_FILE))
    contents = _zip_contents(path) if start.startswith(b"PK") else ()
    if contents is None or _LEGACY_TORCH_FILE.startswith(start):
        size = os.path.getsize(path)
        return f"{path} is cut short or damaged ({size:,} bytes): copy or download it again"
    if any(name.endswith("data.pkl") for name in contents):
        reason = str(error).split("WeightsUnpickler error:")[-1].strip().split("\n")[0]
        return f"{path} cannot be read safely: {reason}"
    return f"{path} is no checkpoint: give a .pt file that fairseq saved"


def _zip_contents(path):
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except zipfile.BadZipFile:
        return None
