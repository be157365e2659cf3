"""The discriminator of an ELECTRA as a RoBERTa of its own."""

import copy
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf, open_dict

from .discriminator import PREFIX, TABLE, need_discriminator
from .loading import load_checkpoint, refuse_nonfinite, upgraded
from .starting_point import build_roberta, check_paths, save


def export_discriminator(in_path: str | Path, out_path: str | Path, seed: int = 1) -> Any:
    """Writes the discriminator of an ELECTRA checkpoint as one of roberta_NAME, whose outputs are the same to the last
    bit. A discriminator has no head for masks; that of the new model is initialised with ``seed``. Returns the
    settings. Raises ValueError, one line, before anything is written.
    """
    check_paths(in_path, out_path)
    state = load_checkpoint(in_path)
    need_discriminator(in_path, state["model"])
    refuse_nonfinite(in_path, state["model"])
    state = upgraded(state)
    weights = {key.removeprefix(PREFIX): x for key, x in state["model"].items() if key.startswith(PREFIX)}
    args = copy.copy(state["cfg"].model)
    ending = "_large" if args.arch.endswith("_large") else ""
    args.arch = args._name = f"roberta_{args.position_encoding}{ending}"
    args.criterion = "masked_lm"
    del args.generator_size
    model = build_roberta(args, len(weights[TABLE]), seed)
    model.load_state_dict({**model.state_dict(), **weights, "encoder.lm_head.weight": weights[TABLE]})
    cfg = OmegaConf.create(OmegaConf.to_container(state["cfg"]), flags={"allow_objects": True})
    with open_dict(cfg):
        cfg.criterion = {"_name": "masked_lm", "tpu": False}
    save(out_path, cfg, args, model)
    return args
