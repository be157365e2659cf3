"""``--optimizer torch_adamw``: Adam in one fused kernel, without NVIDIA's apex."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from omegaconf import II, OmegaConf


@dataclass
class TorchAdamWConfig(FairseqDataclass):
    # the names and defaults of fairseq's adam, so that one command serves both
    adam_betas: Any = field(default=(0.9, 0.999), metadata={"help": "betas for Adam optimizer"})
    adam_eps: float = field(default=1e-8, metadata={"help": "epsilon for Adam optimizer"})
    weight_decay: float = field(default=0.0, metadata={"help": "weight decay"})
    lr: list[float] = II("optimization.lr")


@register_optimizer("torch_adamw", dataclass=TorchAdamWConfig)
class TorchAdamW(FairseqOptimizer):
    """The updates of fairseq's adam, computed by torch's AdamW: fused where all parameters lie on
    GPUs, else foreach.

    Weight decay is decoupled, p <- p - lr * decay * p, as in AdamW and as in fairseq's adam.
    Checkpoints go from one to the other and back.
    """

    def __init__(self, cfg, params):
        super().__init__(cfg)
        params = list(params)
        how = "fused" if all(p.is_cuda for p in params) else "foreach"
        self._optimizer = FlatAdamW(params, **{how: True}, **self.optimizer_config)

    @property
    def supports_memory_efficient_fp16(self) -> bool:
        raise ValueError(
            "--optimizer torch_adamw with --memory-efficient-fp16 or --memory-efficient-bf16 would "
            "keep its averages in half precision: use --fp16 or --bf16, or --optimizer adam"
        )

    @property
    def optimizer_config(self) -> dict[str, Any]:
        lr, betas = self.cfg.lr, self.cfg.adam_betas
        if isinstance(betas, str):
            betas = [float(beta) for beta in betas.strip("()[] ").split(",")]
        elif OmegaConf.is_config(betas):
            betas = OmegaConf.to_container(betas)
        return {
            "lr": lr[0] if isinstance(lr, Sequence) else lr,
            "betas": tuple(betas),
            "eps": self.cfg.adam_eps,
            "weight_decay": self.cfg.weight_decay,
        }

    def load_state_dict(self, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None) -> None:
        # --zero-sharding hides the optimizer of this rank's parameters in another one
        mine: Any = getattr(self._optimizer, "optim", self._optimizer)
        # how it is computed belongs to the machine, not to the checkpoint
        here = {key: mine.param_groups[0][key] for key in ("fused", "foreach")}
        super().load_state_dict(steps_of_parameters(state_dict), {**here, **(optimizer_overrides or {})})
        for parameter, state in mine.state.items():
            # where the fused and the foreach kernel look for it
            device = parameter.device if here["fused"] else "cpu"
            state["step"] = torch.as_tensor(state["step"], dtype=torch.float32).to(device)
        mine.updates = max((int(state["step"]) for state in mine.state.values()), default=0)


def steps_of_parameters(state_dict: dict[str, Any]) -> dict[str, Any]:
    """Copies the step count of each group, where apex's Adam keeps it, to the group's parameters."""
    state = dict(state_dict["state"])
    for group in state_dict["param_groups"]:
        for index in set(group["params"]) & set(state):
            state[index] = {"step": group.get("step"), **state[index]}
    groups = [{key: value for key, value in group.items() if key != "step"} for group in state_dict["param_groups"]]
    return {**state_dict, "state": state, "param_groups": groups}


class FlatAdamW(torch.optim.AdamW):
    """AdamW with epsilon where fairseq has it: added to sqrt(v) before the bias of v is corrected, not after.
    All its operations are pointwise, so fairseq may give it one flat parameter."""

    supports_flat_params = True
    updates = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # torch's fused kernel skips overflows itself, and step() would count them
        self._step_supports_amp_scaling = False

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        self.updates += 1
        given = [group["eps"] for group in self.param_groups]
        for group, eps in zip(self.param_groups, given):
            group["eps"] = eps / math.sqrt(1 - group["betas"][1] ** self.updates)
        try:
            return super().step(closure)
        finally:
            for group, eps in zip(self.param_groups, given):
                group["eps"] = eps
