"""More absolute positions for a trained table."""

from typing import Any

import torch
import torch.nn.functional as F

#: tables with a row for each absolute position: those of learned and TUPE
TABLES = (".embed_positions.weight", ".embed_positions.p")

#: how the new rows are made
WAYS = ("copy", "interpolate", "random")


def extend(table: torch.Tensor, fresh: torch.Tensor, positions: int, way: str) -> torch.Tensor:
    """Returns the trained ``table`` with the shape of ``fresh``, a new table for so many ``positions``.

    The row of position 0, which is always that of <s>, stays, and so do rows before it (TUPE's theta_1; its theta_2
    is made of the row of position 0). The others serve the new positions: ``copy`` repeats them from position 1 on,
    ``interpolate`` stretches them linearly over all positions, ``random`` leaves them and takes the new rows from
    ``fresh``.
    """
    first = len(fresh) - positions + 1
    fixed, moved = table[:first], table[first:]
    count = len(fresh) - first
    if way == "copy":
        moved = moved[torch.arange(count) % len(moved)]
    elif way == "interpolate":
        stretched = F.interpolate(moved.float().T[None], size=count, mode="linear", align_corners=True)
        moved = stretched[0].T.to(table.dtype)
    else:
        moved = torch.cat([moved, fresh[len(table) :].to(table.dtype)])
    return torch.cat([fixed, moved])


def extended_tables(weights: dict[str, torch.Tensor], model: Any, way: str, path: Any) -> dict[str, torch.Tensor]:
    """The position tables in ``weights`` that are shorter than those of ``model``, in their new length. Raises
    ValueError, one line, for a longer one."""
    own = model.state_dict()
    found = {}
    for key in own:
        if key.endswith(TABLES) and key in weights and own[key].shape[1:] == weights[key].shape[1:]:
            positions = model.get_submodule(key.rpartition(".")[0]).hard_limit
            more = len(own[key]) - len(weights[key])
            if more < 0:
                raise ValueError(
                    f"--max-positions {positions}: {path} has {positions - more} absolute positions already; give "
                    "more, or leave the flag out"
                )
            if more:
                found[key] = extend(weights[key], own[key], positions, way)
    return found
