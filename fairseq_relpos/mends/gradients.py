"""The check for parameters that no gradient reaches."""

import logging
from typing import Any

import torch

logger = logging.getLogger(__name__)
SHOWN = 5


def check(trainer: Any) -> None:
    """Names the parameters that the loss does not use, before the first update changes anything. It raises ValueError
    under --ddp-backend pytorch_ddp, which waits for every parameter; elsewhere it warns."""
    parameters = trainer.get_model().named_parameters()
    without = [name for name, p in parameters if p.requires_grad and p.grad is None]
    if not without:
        return
    more = f" and {len(without) - SHOWN} more" if len(without) > SHOWN else ""
    what = f"no gradient reaches {', '.join(without[:SHOWN])}{more}"
    distributed = trainer.cfg.distributed_training
    waits_for_all = distributed.ddp_backend in ("c10d", "pytorch_ddp")
    if trainer.data_parallel_world_size > 1 and waits_for_all:
        if not distributed.find_unused_parameters:
            raise ValueError(
                f"{what}, and --ddp-backend {distributed.ddp_backend} waits for them: add "
                "--find-unused-parameters, or --ddp-backend legacy_ddp"
            )
    elif not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
        logger.warning(f"{what}: in this model or task they are not trained")
