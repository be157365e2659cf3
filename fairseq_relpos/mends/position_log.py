"""Logs of the position encoding during training: for TensorBoard, Weights & Biases, and a warning."""

import logging
from typing import Any

import torch

from ..biases import mosaic, position_biases
from ..encodings import PositionEncoding
from ..encodings.base import StackPart
from ..flags import BIAS_INTERVAL

logger = logging.getLogger(__name__)

#: the folder under --tensorboard-logdir, beside fairseq's train_inner, train and valid
TAG = "positions"
#: how many tokens a picture of a bias shows, both ways: further away little changes, and it stays below 500 x 600
#: points
TOKENS = 128


def log_update(trainer: Any) -> None:
    """Logs one update, on the first rank, with --tensorboard-logdir or --wandb-project.

    Each time that fairseq logs (--log-interval) it adds the norm of every parameter of a position encoding. Every
    --log-position-bias-interval updates it adds the biases as pictures. Weights stay the same to the bit.
    """
    common, update = trainer.cfg.common, trainer.get_num_updates()
    if not (common.tensorboard_logdir or common.wandb_project) or not trainer.is_data_parallel_master:
        return
    model = trainer.get_model()
    if update % common.log_interval == 0 and (values := norms(model)):
        log_scalars(common, values, update)
    interval = getattr(trainer.cfg.model, "log_position_bias_interval", BIAS_INTERVAL)
    if interval and update % interval == 0:
        log_pictures(common, biases(model), update)


def warn_of_lost_heads(trainer: Any) -> None:
    """Warns, once in a training and on the first rank, of heads whose position scores leave [CLS] alone."""
    if trainer.relpos.lost_head_named or not trainer.is_data_parallel_master:
        return
    parts = (part for part in trainer.get_model().modules() if isinstance(part, StackPart))
    lost = sorted({head for part in parts for head in part.lost_heads()})
    if lost:
        trainer.relpos.lost_head_named = True
        logger.warning(
            f"update {trainer.get_num_updates()}: by its position scores, head {', '.join(map(str, lost))} attends to "
            "the first token alone, and hardly any gradient leads back: try longer samples "
            "(examples/roberta_small/README.md)"
        )


@torch.no_grad()
def norms(model: Any) -> dict[str, float]:
    """Returns the Euclidean norm of every parameter that belongs to a position encoding, by name."""
    found: dict[str, torch.Tensor] = {}
    for name, module in model.named_modules():
        if isinstance(module, (StackPart, PositionEncoding)):
            found.update(module.named_parameters(name))
    if not found:
        return {}
    # one copy from the GPU for all of them
    values = torch.stack([parameter.detach().float().norm() for parameter in found.values()]).tolist()
    return {f"norm of {name}": value for name, value in zip(found, values)}


def biases(model: Any) -> dict[str, torch.Tensor]:
    """Returns the content-free bias [H, T, T] of the first tokens, by the name of a stack or of one of its layers."""
    found = {}
    for name, stack in model.named_modules():
        part = getattr(stack, "embed_positions", None)
        if isinstance(part, StackPart):
            length = min(TOKENS, part.max_positions)
            for title, bias_HTS in position_biases(stack, length).items():
                found[f"{name} {title}".strip()] = bias_HTS
    return found


def log_scalars(common: Any, values: dict[str, float], update: int) -> None:
    from fairseq.logging.progress_bar import TensorboardProgressBarWrapper, wandb

    if common.tensorboard_logdir:
        # by fairseq's own writers, which fairseq closes
        TensorboardProgressBarWrapper(None, common.tensorboard_logdir)._log_to_tensorboard(values, TAG, update)
    if common.wandb_project and wandb is not None:
        wandb.log({f"{TAG}/{name}": value for name, value in values.items()}, step=update)


def log_pictures(common: Any, found: dict[str, torch.Tensor], update: int) -> None:
    from fairseq.logging.progress_bar import TensorboardProgressBarWrapper, wandb

    strongest = {name: bias_HTS.abs().max().item() for name, bias_HTS in found.items()}
    # the value of the darkest colours in a picture
    log_scalars(common, {f"largest bias of {name}": value for name, value in strongest.items()}, update)
    writer = None
    if common.tensorboard_logdir:
        writer = TensorboardProgressBarWrapper(None, common.tensorboard_logdir)._writer(TAG)
    for name, bias_HTS in found.items():
        picture = mosaic(bias_HTS)
        if writer is not None:
            writer.add_image(f"bias of {name}", picture, update, dataformats="HWC")
        if common.wandb_project and wandb is not None:
            wandb.log({f"{TAG}/bias of {name}": wandb.Image(picture)}, step=update)
    if writer is not None:
        writer.flush()
