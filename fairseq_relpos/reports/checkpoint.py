"""A trained model back from its checkpoint, with its task."""

import os

from ..encodings import StackPart

STACKS = ("encoder", "decoder")


def load_model(path, data=None, seed=None):
    """The model (in eval mode), its saved settings and its task.

    data: binarised text with dict.txt, in place of the one in the checkpoint, which may lie
    elsewhere on this machine. seed: of the masks, in place of the training's.
    """
    from fairseq import checkpoint_utils

    if not os.path.isfile(path):
        raise ValueError(f"no checkpoint {path}: give a .pt file that fairseq-train saved")
    # the plugin is imported already, from here; the checkpoint's own path may be another machine's
    # and so may the backend that it was trained with
    overrides = {"user_dir": None, "attention_backend": "auto"}
    if data is not None:
        overrides["data"] = data
    if seed is not None:
        overrides["seed"] = seed
    models, settings, task = checkpoint_utils.load_model_ensemble_and_task([path], overrides)
    return models[0].eval(), settings, task


def choose_stack(model, wanted=None):
    """(name, encoder or decoder): the wanted one, else the encoder, else the only one."""
    stacks = {name: getattr(model, name) for name in STACKS if hasattr(model, name)}
    # RoBERTa wraps its transformer
    stacks = {name: getattr(stack, "sentence_encoder", stack) for name, stack in stacks.items()}
    name = wanted or next(iter(stacks))
    if name not in stacks:
        raise ValueError(f"--stack {name}: this model has no {name}, only {' and '.join(stacks)}")
    return name, stacks[name]


def refuse_stock_stack(stack, name, path):
    """--position-stacks can leave one to fairseq."""
    if not isinstance(stack.embed_positions, StackPart):
        raise ValueError(f"the {name} of {path} is stock fairseq, without a position encoding of this package: "
                         "choose the other with --stack")  # fmt: skip


def encoding_name(settings, path):
    """What the model was trained with, for titles."""
    name = getattr(settings.model, "position_encoding", None)
    if name is None:
        raise ValueError(
            f"{path} was trained with --arch {settings.model.arch}, which has no position encoding "
            "of this package; `fairseq-relpos warm-start` makes a roberta_learned of a RoBERTa"
        )
    return name
