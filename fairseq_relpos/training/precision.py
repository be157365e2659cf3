"""--fp16 and --amp where there is no GPU."""

import logging

import torch

from ..shims import replace

logger = logging.getLogger(__name__)


def use_half_precision_on_cpus():
    """All versions of fairseq, on a CPU: --fp16 asks for a flat gradient on the GPU, and --amp
    computes in float32 without saying so.

    Here --fp16 keeps its gradients apart, and --amp is torch's autocast to bfloat16.
    """
    from fairseq.distributed import utils
    from fairseq.optim import AMPOptimizer
    from fairseq.tasks import FairseqTask

    @replace(utils, "call_main")
    def keep_gradients_apart(stock, cfg, main, **kwargs):
        common = cfg.common
        on_cpu = common.cpu or not torch.cuda.is_available()
        if on_cpu and common.fp16 and not common.memory_efficient_fp16:
            if not common.fp16_no_flatten_grads:
                logger.info("--fp16-no-flatten-grads is on: flat gradients need a GPU")
            common.fp16_no_flatten_grads = True
        return stock(cfg, main, **kwargs)

    @replace(FairseqTask, "train_step")
    def autocast(stock, self, sample, model, criterion, optimizer, *args, **kwargs):
        on_cpu = next(model.parameters()).device.type == "cpu"
        enabled = on_cpu and isinstance(optimizer, AMPOptimizer)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            return stock(self, sample, model, criterion, optimizer, *args, **kwargs)
