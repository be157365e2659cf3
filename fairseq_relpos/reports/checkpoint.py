"""A trained model back from its checkpoint, with its task."""

import os


def load_model(path, data=None, seed=None):
    """The model (in eval mode), its saved settings and its task.

    data: binarised text with dict.txt, in place of the one in the checkpoint, which may lie
    elsewhere on this machine. seed: of the masks, in place of the training's.
    """
    from fairseq import checkpoint_utils

    if not os.path.isfile(path):
        raise ValueError(f"no checkpoint {path}: give a .pt file that fairseq-train saved")
    # the plugin is imported already, from here; the checkpoint's own path may be another machine's
    overrides = {"user_dir": None}
    if data is not None:
        overrides["data"] = data
    if seed is not None:
        overrides["seed"] = seed
    models, settings, task = checkpoint_utils.load_model_ensemble_and_task([path], overrides)
    return models[0].eval(), settings, task
