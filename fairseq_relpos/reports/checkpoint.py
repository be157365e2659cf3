"""Loading a trained model from its checkpoint, with its task."""

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .. import register
from ..encodings import StackPart

STACKS = ("encoder", "decoder")


def load_model(
    path: str | Path, data: str | Path | None = None, seed: int | None = None, **settings: Any
) -> tuple[Any, Any, Any]:
    """Loads a model (in eval mode), its saved settings and its task.

    data: a folder with binarised text and dict.txt, in place of the one named in the checkpoint, which may be
    somewhere else on this machine. seed: the seed of the masks, in place of the training's. settings: others in place
    of the saved ones.
    """
    register()
    from fairseq import checkpoint_utils

    from ..checkpoints.discriminator import refuse_electra

    refuse_missing(path)
    # the plugin is imported already; the checkpoint's path of it, and its backend, may be those of another machine
    overrides: dict[str, Any] = {"user_dir": None, "attention_backend": "auto", **settings}
    if data is not None:
        overrides["data"] = str(data)
    if seed is not None:
        overrides["seed"] = seed
    try:
        models, saved, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], overrides)
    except FileNotFoundError as error:
        if data is not None:
            raise
        raise ValueError(
            f"{path} was trained on data that are not here ({error.filename}): give the folder with --data"
        ) from None
    refuse_electra(path, models[0].state_dict())
    return models[0].eval(), saved, task


def load_positions(path: str | Path) -> tuple[Any, Any, int]:
    """Loads a model (in eval mode), its saved settings and its number of updates from the file alone. Plots of
    positions need no words, and so no data."""
    register()
    from fairseq import checkpoint_utils
    from fairseq.models import build_model

    from ..checkpoints.discriminator import refuse_electra
    from ..checkpoints.starting_point import nameless_words

    refuse_missing(path)
    state = checkpoint_utils.load_checkpoint_to_cpu(path)
    settings, weights = state["cfg"], state["model"]
    refuse_electra(path, weights)
    encoding_name(settings, path)  # refuses other models, which may need more of their task

    def rows(name):  # those of a table, or of the parts of an adaptive one
        return sum(len(tensor) for key, tensor in weights.items() if re.fullmatch(name, key))

    # a RoBERTa wraps its encoder; a language model has no encoder
    words = rows(r"decoder\.embed_tokens\.(embeddings\.\d+\.0\.)?weight")
    task = SimpleNamespace(
        source_dictionary=nameless_words(rows(r"encoder\.(sentence_encoder\.)?embed_tokens\.weight") or words),
        target_dictionary=nameless_words(rows(r"decoder\.output_projection\.weight") or words),
        # of an encoder of sequences, whose input may be vectors, and which ends with a projection
        channels=weights["project_values.weight"].size(1) if "project_values.weight" in weights else None,
        num_labels=rows(r"project_out\.weight"),
    )
    model = build_model(settings.model, task)
    model.load_state_dict(weights, strict=True, model_cfg=settings.model)
    return model.eval(), settings, state["optimizer_history"][-1]["num_updates"]


def refuse_missing(path: str | Path) -> None:
    if not os.path.isfile(path):
        raise ValueError(f"no checkpoint {path}: give a .pt file that fairseq-train saved")


def choose_stack(model: Any, wanted: str | None = None) -> tuple[str, Any]:
    """Returns the name and the stack: the wanted one, or else the encoder, or else the only one."""
    stacks = {name: getattr(model, name) for name in STACKS if hasattr(model, name)}
    # RoBERTa wraps its transformer
    stacks = {name: getattr(stack, "sentence_encoder", stack) for name, stack in stacks.items()}
    name = wanted or next(iter(stacks))
    if name not in stacks:
        raise ValueError(f"--stack {name}: this model has no {name}, only {' and '.join(stacks)}")
    return name, stacks[name]


def encoded_stack(model: Any, settings: Any, path: str | Path, wanted: str | None) -> tuple[str, str, Any]:
    """Returns the name of the encoding, the name of the stack and the stack. Raises ValueError if the stack is stock
    fairseq's, which --position-stacks allows."""
    encoding = encoding_name(settings, path)
    name, stack = choose_stack(model, wanted)
    if not isinstance(stack.embed_positions, StackPart):
        raise ValueError(
            f"the {name} of {path} is stock fairseq, without a position encoding of this package: "
            "choose the other with --stack"
        )
    return encoding, name, stack


def encoding_name(settings: Any, path: str | Path) -> str:
    """Returns the encoding that the model was trained with. Raises ValueError for a model of stock fairseq."""
    name = getattr(settings.model, "position_encoding", None)
    if name is None:
        raise ValueError(
            f"{path} was trained with --arch {settings.model.arch}, which has no position encoding "
            "of this package; `fairseq-relpos warm-start` makes a roberta_learned of a RoBERTa"
        )
    return name
