"""One vector for a sequence."""

import torch

#: the last real vector, the mean or the maximum of all real ones, or the first one
POOLING = ("last", "mean", "max", "cls")


def pool(kind: str, vectors_BTE: torch.Tensor, lengths_B: torch.Tensor) -> torch.Tensor:
    """Returns one of POOLING [B, E]. Pads stand at the right."""
    if kind == "cls":
        return vectors_BTE[:, 0]
    device = vectors_BTE.device
    if kind == "last":
        return vectors_BTE[torch.arange(len(lengths_B), device=device), lengths_B - 1]
    real_BT1 = (torch.arange(vectors_BTE.size(1), device=device) < lengths_B[:, None])[..., None]
    if kind == "max":
        return vectors_BTE.masked_fill(~real_BT1, -torch.inf).amax(1)
    return (vectors_BTE * real_BT1).sum(1) / lengths_B[:, None]
