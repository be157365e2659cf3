"""Parameters that no gradient reaches."""

import logging

import torch

from ..shims import replace

logger = logging.getLogger(__name__)
SHOWN = 5


def name_parameters_without_gradient():
    """--ddp-backend pytorch_ddp with a parameter that the loss does not use: ranks that drift
    apart for one update, then a RuntimeError that counts parameters. An error here that names
    them, before the first update changes anything; elsewhere a warning, once.
    """
    from fairseq.trainer import Trainer

    @replace(Trainer, "clip_grad_norm")
    def check_gradients(stock, self, clip_norm):
        if not getattr(self, "_relpos_gradients_checked", False):
            self._relpos_gradients_checked = True
            check(self)
        return stock(self, clip_norm)


def check(trainer):
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
