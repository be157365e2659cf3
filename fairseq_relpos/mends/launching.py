"""The ranks that a launcher (torchrun, srun) has started, and whether fairseq sees them."""

import argparse
import inspect
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import batches
from .replace import replace, tasks_with

logger = logging.getLogger(__name__)

TORCHRUN_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")


def _launched_ranks():
    """Returns how many ranks torchrun, or else srun, has started, this process included."""
    environment = os.environ
    return int(environment.get("WORLD_SIZE") or environment.get("SLURM_STEP_NUM_TASKS") or 1)


def take_our_rank(cfg: Any, main: Callable[..., Any]) -> None:
    """Joins torchrun's ranks, also on CPUs and with one GPU per node.

    Stock fairseq reads the launcher's variables only if it counts two or more GPUs on its own node. On CPUs it would
    divide by the number of GPUs, choose NCCL, and wrap the model in a DistributedDataParallel for GPUs. Without a
    launcher it starts one process per GPU: on a machine without GPUs that is none, with exit code 0. Here that is an
    error.
    """
    distributed = cfg.distributed_training
    is_special = cfg.common.tpu or distributed.pipeline_model_parallel
    if command_of(main) == "eval_lm.py":
        warn_of_a_part(distributed)
    if not _combines_its_ranks(main) or is_special:
        return
    on_cpu = cfg.common.cpu or not torch.cuda.is_available()
    launched = all(name in os.environ for name in TORCHRUN_VARIABLES)
    undecided = distributed.distributed_init_method is None
    if launched and undecided and _launched_ranks() > 1:
        _join_torchrun(distributed, on_cpu)
    if on_cpu and distributed.distributed_world_size > 1:
        _refuse_to_start_nothing(distributed)
        _communicate_between_cpus(distributed)


def warn_of_a_part(distributed: Any) -> None:
    """Warns that fairseq-generate or fairseq-eval-lm prints the result of a part of the data, as that of all."""
    parts = getattr(distributed, "distributed_world_size", 1)
    if parts > 1:
        logger.warning(
            "the result is that of one of %d parts of the data: for that of all, leave out --distributed-world-size",
            parts,
        )


def command_of(main: Callable[..., Any]) -> str:
    """Returns the file of fairseq_cli that defines this main function, such as train.py."""
    return os.path.basename(inspect.unwrap(main).__code__.co_filename)


def _combines_its_ranks(main):
    """Whether the ranks of this command share one result. In other commands each rank prints a part of it, or all."""
    return command_of(main) not in {"generate.py", "interactive.py", "eval_lm.py"}


def _join_torchrun(distributed, on_cpu):
    distributed.distributed_init_method = "env://"
    distributed.distributed_world_size = int(os.environ["WORLD_SIZE"])
    distributed.distributed_rank = int(os.environ["RANK"])
    distributed.distributed_no_spawn = True  # torchrun has started the processes
    local_rank = int(os.environ.get("LOCAL_RANK", distributed.distributed_rank))
    gpus = torch.cuda.device_count()
    if not on_cpu and 1 < gpus <= local_rank:
        raise ValueError(
            f"the launcher started more than {gpus} ranks on {os.uname().nodename}, which has {gpus} GPUs: start one "
            "rank for each GPU, on several machines as docs/multi_node.md says"
        )
    # 0 also because some launchers show every process its own GPU only
    distributed.device_id = 0 if on_cpu or gpus == 1 else local_rank


def _refuse_to_start_nothing(distributed):
    on_slurm = "SLURM_STEP_NODELIST" in os.environ or "SLURM_JOB_NODELIST" in os.environ
    if torch.cuda.device_count() == 0 and not distributed.distributed_no_spawn and not on_slurm:
        raise ValueError(
            f"--distributed-world-size {distributed.distributed_world_size}: fairseq starts one "
            "process per GPU and finds no GPU; on CPUs use "
            "`torchrun --nproc_per_node N $(which fairseq-train) ... --cpu`"
        )


def _communicate_between_cpus(distributed):
    if distributed.ddp_backend in ("slowmo", "fully_sharded"):
        raise ValueError(f"--ddp-backend {distributed.ddp_backend} needs GPUs: leave it out, and CPUs get legacy_ddp")
    for_cpus = {"nccl": "gloo", "c10d": "legacy_ddp", "pytorch_ddp": "legacy_ddp"}
    for setting in ("distributed_backend", "ddp_backend"):
        given = distributed[setting]
        if given in for_cpus:
            logger.info(f"{setting}: {for_cpus[given]} instead of {given}, which needs GPUs")
            distributed[setting] = for_cpus[given]


def refuse_another_number_of_ranks(settings: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Raises ValueError, one line, if --distributed-world-size is not torchrun's number of ranks.

    With --distributed-init-method fairseq ignores the launcher's variables, and WORLD_SIZE may be the number of nodes.
    """
    if getattr(settings, "distributed_init_method", None):
        return
    launched = all(name in os.environ for name in TORCHRUN_VARIABLES)
    if launched and "--distributed-world-size" in " ".join(map(str, arguments)):
        ranks = int(os.environ["WORLD_SIZE"] or 1)
        if settings.distributed_world_size != ranks:
            raise ValueError(
                f"--distributed-world-size {settings.distributed_world_size}, but the launcher started {ranks} ranks: "
                f"the effective batch size would change; start {settings.distributed_world_size} ranks, or drop the "
                "flag"
            )


def refuse_to_train_alone(cfg: Any) -> None:
    """Raises ValueError if the launcher started several ranks that fairseq does not see.

    These are the cases that ``take_our_rank`` cannot reach: srun with one task per GPU and no
    --distributed-world-size, and fairseq-hydra-train, which imports plugins too late.
    """
    ranks = _launched_ranks()
    if ranks != 1 and cfg.distributed_training.distributed_world_size == 1:
        raise ValueError(
            f"the launcher started {ranks} ranks and each of them would train alone: add "
            f"--distributed-world-size {ranks} (under srun also --distributed-port 29500); "
            f"for {ranks} separate runs unset WORLD_SIZE and SLURM_STEP_NUM_TASKS"
        )


def validate_on_several_ranks() -> None:
    """Lets fairseq-validate gather results of any size, also on CPUs, and skip the empty batch of a rank that has one
    too few."""
    from fairseq.distributed import utils
    from fairseq.utils import move_to_cpu

    @replace(utils, "all_gather_list", "validate-on-ranks")
    def gather_on_cpu(stock, data, group=None, max_size=16384):
        if torch.cuda.is_available() and not batches.made_for.evaluation:
            return stock(data, group, max_size)  # in a training
        group = utils.get_global_group() if group is None else group
        gathered = [None] * utils.get_world_size(group)
        torch.distributed.all_gather_object(gathered, move_to_cpu(data), group=group)
        return gathered

    def skip_empty_batch(stock, self, sample, *args, **kwargs):
        is_empty = not isinstance(sample, torch.Tensor) and not sample
        return (0, 0, {}) if is_empty else stock(self, sample, *args, **kwargs)

    for task in tasks_with("valid_step"):
        replace(task, "valid_step", "validate-on-ranks")(skip_empty_batch)


INSTALLERS = (validate_on_several_ranks,)
