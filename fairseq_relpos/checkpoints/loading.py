"""Safe loading of checkpoints: no code in the file runs, and an error says what is wrong with it."""

import argparse
import ast
import collections
import contextlib
import importlib
import itertools
import json
import logging
import os
import re
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf

from .checksums import refuse_damage

logger = logging.getLogger(__name__)

# how torch.save began a file before torch 1.6: pickle protocol 2 and torch's magic number
_LEGACY_TORCH_FILE = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def allow_fairseq_classes() -> None:
    """Makes torch's weights_only, which stays on, accept the classes in fairseq's checkpoints.

    By default it accepts only tensors and plain containers; fairseq stores more. Every class listed here holds values
    and runs nothing when it is read. The list is torch's own and process-wide.
    """
    from fairseq.data.dictionary import Dictionary
    from fairseq.distributed.utils import _TensorPlaceholder
    from fairseq.logging import meters
    from omegaconf import DictConfig, ListConfig
    from omegaconf.base import ContainerMetadata, Metadata
    from omegaconf.nodes import AnyNode

    multiarray = importlib.import_module(f"numpy.{'_core' if hasattr(np, '_core') else 'core'}.multiarray")
    settings: list[Any] = [argparse.Namespace]
    # validation scores (--eval-bleu, --report-acc-and-f1) and what a criterion logs are numpy numbers
    scores = [multiarray._reconstruct, multiarray.scalar, np.ndarray, np.dtype]
    scores += [type(np.dtype(letter)) for letter in np.typecodes["AllInteger"] + np.typecodes["AllFloat"] + "?"]
    # when a run resumes, the first rank sends the others its configuration as objects
    sent = [DictConfig, ListConfig, ContainerMetadata, Metadata, AnyNode, Any]
    sent += [dict, list, int, collections.defaultdict, _TensorPlaceholder]
    # in an old file that a newer fairseq has written again
    counters = [meters.AverageMeter, meters.TimeMeter, meters.StopwatchMeter]
    # some tasks of speech keep their dictionaries
    torch.serialization.add_safe_globals([*settings, *scores, *sent, *counters, Dictionary])

    if torch.__version__ >= "2.6":  # compares versions; an older torch cannot allow a class under another name
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


def trusted() -> bool:
    """Whether --trust-checkpoint was given, or torch's own variable says the same."""
    return os.environ.get(_TRUST, "").lower() in ("1", "y", "yes", "true")


def take_trust_flag(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments without --trust-checkpoint. If it was there, this process, and those that it starts, load
    whatever a checkpoint holds."""
    if TRUST_FLAG in arguments:
        os.environ[_TRUST] = "1"
        logger.warning(f"{TRUST_FLAG}: code in a checkpoint is RUN while it is read")
    return [argument for argument in arguments if argument != TRUST_FLAG]


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """Reads the dict in a fairseq checkpoint of any age, to the CPU, with weights_only on unless --trust-checkpoint
    was given.

    Raises ValueError, one line, if the file is damaged or no checkpoint, or if it contains a class that is not
    allowed or a setting that is code. Nothing in it is executed. Raises OSError if there is no such file.
    """
    allow_fairseq_classes()
    refuse_packed(path)
    try:
        state = torch.load(path, map_location="cpu", weights_only=not trusted())
    except MemoryError:
        raise
    except Exception as error:  # a damaged file makes torch raise almost anything
        if isinstance(error, OSError) and error.filename is not None:
            raise  # the file cannot be opened
        # torch's own text advises to switch the protection off: it is left out
        raise ValueError(_what_is_wrong(path, error)) from None
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise ValueError(f"{path} is a torch file but no fairseq checkpoint: no model is in it")
    refuse_damage(path)
    refuse_code_in_settings(path, state)
    return state


def upgraded(state: dict[str, Any]) -> dict[str, Any]:
    """Returns what fairseq would have read where ``load_checkpoint`` has read this: with settings of fairseq 0.12,
    whatever version wrote the file."""
    from fairseq import checkpoint_utils

    if state.get("cfg") is not None:
        state["cfg"] = OmegaConf.create(state["cfg"], flags={"allow_objects": True})
    return checkpoint_utils._upgrade_state_dict(state)


def refuse_nonfinite(path: str | Path, weights: Mapping[str, torch.Tensor]) -> None:
    """Raises ValueError, one line, that names the first weight with NaN or infinity, in single precision."""
    for name, tensor in weights.items():
        if torch.is_tensor(tensor) and tensor.is_floating_point() and not tensor.float().isfinite().all():
            raise ValueError(
                f"{path}: {name} has values that are not finite (nan or inf), as after a training that has diverged: "
                "give an earlier checkpoint"
            )


def refuse_code_in_settings(path: str | Path, state: Any) -> None:
    """Raises ValueError if a setting in the checkpoint may run code.

    Some models of fairseq call ``eval`` on their settings, which are text such as "[(512, 3)] * 20". A text that
    Python can parse is accepted if it is a literal, or JSON, or only names, or repeated lists of numbers. Any other is
    refused, and so is every value that is no text, no number and no container of them, because it could hide such a
    text. The error names the setting.
    """
    if trusted():
        return
    if not isinstance(state, dict):
        raise ValueError(f"{path} is a torch file but no fairseq checkpoint: it holds a {type(state).__name__}")
    for top in ("args", "cfg"):
        for setting, value, is_free in _values(state.get(top), top):
            if not is_free and _may_run(value):
                shown = repr(value)
                raise ValueError(
                    f"{path} has code in its setting {setting} "
                    f"({shown if len(shown) <= 60 else shown[:57] + '...'}), which "
                    "fairseq may run: not used, nothing was executed. Get the file from elsewhere, or, if you trust "
                    f"whoever made it, add {TRUST_FLAG}"
                )


#: settings on which fairseq never calls eval, although they may look like code: names of files ("wiki(2)",
#: "config.yaml"), of languages and data sets ("de.tok"), and of hydra's log
_FREE_TEXT = re.compile(
    r"(.*_)?(path|dir|logdir|file|filename|json|yaml|npz|model|checkpoint|codes|vocab|merges|dict|dictionary|dict_specs"
    r"|data|from|prefix|project|run_name|lexicon|stats)"
    r"|gpt2_vocab_bpe|source_lang|target_lang|lang_pairs|(train|valid|gen)_subset|input|class|continue_once"
)
#: OmegaConf's reference to another setting
_REFERENCE = re.compile(r"\$\{\.*(\w[\w.]*)\}")
_HARMLESS = (type(None), bool, int, float, complex, torch.Tensor, torch.dtype, torch.device)


def _values(settings, name):
    """Yields (name, value, whether it is free text) for all values in nested settings, each object once."""
    waiting, seen = [(settings, name, name)], set()
    while waiting:
        value, name, key = waiting.pop()
        if OmegaConf.is_config(value):
            value = OmegaConf.to_container(value, resolve=False, enum_to_str=True)
        if isinstance(value, argparse.Namespace):
            value = vars(value)
        is_free = bool(_FREE_TEXT.fullmatch(key))
        if isinstance(value, (dict, list, tuple, set, frozenset, collections.deque)):
            if (id(value), is_free) not in seen:
                seen.add((id(value), is_free))
                if isinstance(value, dict):
                    waiting += [(value[k], f"{name}.{k}", str(k)) for k in value]
                else:
                    waiting += [(item, f"{name}.{number}", key) for number, item in enumerate(value)]
        else:
            yield name, value, is_free and isinstance(value, str)


#: a setting with more characters is refused without a check
LONGEST = 20_000
#: an expression with more parts is refused, too
MOST_NODES = 500
#: what runs nothing and is no literal: names and numbers such as "de-en,de-fr" and "1/3", and lists such as
#: "[(512, 3)] * 20 + [(1024, 1)]" and "[True] + [False]*5"
_NAMES = re.compile(r"[\w\s,/-]*")
_LIST = r"\[([\d\s,.()-]|True|False)*\](\s*\*\s*\d{1,3})?"
_LISTS = re.compile(rf"{_LIST}(\s*\+\s*{_LIST})*")


def _may_run(value):
    if isinstance(value, _HARMLESS) or isinstance(value, np.generic) and value.dtype.kind in "biufc":
        return False
    if not isinstance(value, str):
        return True  # bytes, which eval takes as well, and objects with settings of their own
    if "${" in value:
        # the setting that it refers to is checked by itself, unless that is free text
        reference = _REFERENCE.fullmatch(value)
        names = reference[1].split(".") if reference else []
        return not names or any(_FREE_TEXT.fullmatch(name) for name in names)
    if len(value) > LONGEST:
        return True
    if _NAMES.fullmatch(value) or _LISTS.fullmatch(value.strip()):
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            literal = ast.literal_eval(value.strip())
    except SyntaxError:
        return False  # eval cannot run it either
    except (ValueError, TypeError, MemoryError, RecursionError):
        try:
            literal = json.loads(value)  # with true, false or null, as in --eval-bleu-args
        except (ValueError, RecursionError):
            return not _is_inert(value)
    return _holds_code(literal)


#: what a text such as "runs/teacher/model.pt" or "my.losses.Focal" is as an expression: evaluated, it calls nothing and
#: becomes no large value
_INERT = (
    ast.Expression,
    ast.Name,
    ast.Attribute,
    ast.Constant,
    ast.BinOp,
    ast.Add,
    ast.Sub,
    ast.Div,
    ast.BitOr,
    ast.Load,
)


def _is_inert(text):
    try:
        nodes = list(itertools.islice(ast.walk(ast.parse(text.strip(), mode="eval")), MOST_NODES + 1))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return len(nodes) <= MOST_NODES and all(
        isinstance(node, _INERT) and (not isinstance(node, ast.Constant) or isinstance(node.value, (int, float)))
        for node in nodes
    )


def _holds_code(literal):
    """Whether a text in the literal is code: fairseq may evaluate it in its turn."""
    if isinstance(literal, (list, tuple, set, dict)):
        values = literal.values() if isinstance(literal, dict) else ()
        return any(map(_holds_code, (*literal, *values)))
    return _may_run(literal)


def refuse_packed(path: str | Path) -> None:
    """Raises ValueError, one line, if the contents of the file are compressed. torch never compresses them, and a few
    bytes could become more than the memory holds."""
    with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.compress_type != zipfile.ZIP_STORED:
                raise ValueError(
                    f"{path} is no checkpoint as torch saves it ({member.filename} in it is packed): not read"
                )


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
        return f"{path} cannot be read safely: {reason}. If you trust whoever made it, add {TRUST_FLAG}"
    return f"{path} is no checkpoint: give a .pt file that fairseq saved"


def _zip_contents(path):
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except OSError:
        raise
    except Exception:  # zipfile raises many kinds, for example where a name is no text
        return None
