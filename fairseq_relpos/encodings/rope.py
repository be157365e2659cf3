"""RoPE: queries and keys are rotated by their positions."""

import logging
import math
from typing import Any, Literal

import torch

from ..once import log_once
from ..positions import Positions
from ..tensors import kept
from ..terms import Terms
from .base import PositionEncoding, register

logger = logging.getLogger(__name__)

Scaling = Literal["none", "interpolation", "ntk", "yarn"]
Kind = Literal["partial", "proportional"]
#: YaRN: pairs that turn fewer times than the first within the trained length are interpolated, and those that turn
#: more often than the second stay as they are
YARN_TURNS = (1, 32)


@register("rope", "su2021roformer", "chen2023interpolation", "peng2024yarn", "barbero2025round")
class RoPE(PositionEncoding):
    """e_ij = (R_i q_i).(R_j k_j) / sqrt(d)   (Su et al. 2021, Eq. 14-16), which depends on
    positions only through j - i.

    R_p turns the pair (c, c + d/2) by the angle p base^(-2c/d). No parameters, any length.
    d must be even.

    With fraction p below 1, only p d dimensions are rotated. kind=partial: the first p d, as in a head of p d
    dimensions (Black et al. 2022, GPT-NeoX; Phi, GLM-4). kind=proportional: the p d/2 fastest pairs of the whole
    head keep their angle, and the others are not rotated (Barbero et al. 2025, p-RoPE; Gemma 4).
    p d must be even and at least 2.

    scaling and factor s (evaluated / trained length) extend a trained model to longer inputs. Both may change
    at evaluation, and so may trained_length, which only yarn needs: no weight depends on them.
    interpolation: angles p / s (Chen et al. 2023, Positional Interpolation). ntk: the base is
    base s^(d/(d-2)), so that the angle of the slowest pair is divided by s and that of the fastest is unchanged
    (NTK-aware scaling, Peng et al. 2024, Sec. 3.1). yarn: pairs that rotate 32 times or more within the trained length
    keep their angle, those that rotate less than once get 1/s of it, a ramp joins the two; and q and k are multiplied
    by 0.1 ln(s) + 1, the attention temperature (Peng et al. 2024, YaRN, Sec. 3.2 and 3.4).

    Paper and code: the pairs are (c, c + d/2), as in the codes; the paper pairs neighbours, a
    permutation of the head's dimensions. YaRN's ramp is linear in c, between whole numbers, as in the authors'
    code and in public models; its paper has a ramp that is linear in the number of turns.

    Cost: 2 (T + S) E.
    """

    free_in_evaluation = ("scaling", "factor", "trained_length")
    added_later = {"fraction": 1.0, "kind": "partial"}

    def __init__(
        self,
        dims,
        base: float = 10000.0,
        scaling: Scaling = "none",
        factor: float = 1.0,
        trained_length: int | None = None,
        fraction: float = 1.0,
        kind: Kind = "partial",
    ):
        super().__init__(dims)
        if dims.head_dim % 2:
            raise ValueError(f"a head of {dims.head_dim} dimensions cannot be split into pairs")
        if base <= 0:
            raise ValueError(f"base={base} must be positive")
        self.pairs = turning_pairs(dims.head_dim, fraction)
        #: dimensions among which the pairs are halves apart
        self.span = 2 * self.pairs if kind == "partial" else dims.head_dim
        refuse_what_cannot_scale(self.span, base, scaling, factor, trained_length)
        self.frequency = base, scaling, factor, trained_length if scaling == "yarn" else None
        if scaling != "none":
            log_once(
                logger,
                f"rope: angles are rescaled for longer inputs (scaling={scaling} factor={factor:g}); this is a change "
                "at evaluation, for which a checkpoint's weights need not be trained",
            )

    def terms(self, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, pos: Positions) -> Terms:
        # slots will do: padding to the left shifts query and key alike
        cos, sin = pos.remember(self, lambda length: self.rotation(length, k_BHSD.device))
        # [S, D/2] in order; [B, 1, S, D/2] where positions are given
        keys: Any = pos.key_BS()[:, None] if pos.given else slice(pos.src_len)
        queries = keys[..., pos.src_len - pos.tgt_len :] if pos.given else slice(pos.src_len - pos.tgt_len, pos.src_len)
        return Terms(rotate(q_BHTD, cos[queries], sin[queries]), rotate(k_BHSD, cos[keys], sin[keys]), self.scale)

    def rotation(self, length: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin for at least ``length`` positions. Rounding up keeps the number of tables small; they
        stay on the device."""
        return rotation(1 << (length - 1).bit_length(), self.span, self.pairs, self.frequency, device)


def turning_pairs(head_dim: int, fraction: float) -> int:
    """The number of pairs that turn. Raises ValueError where it is not a whole number from 1 to all."""
    turning = fraction * head_dim
    if not 0 < fraction <= 1 or abs(turning - round(turning)) > 1e-6 or round(turning) % 2:
        accepted = ", ".join(f"{2 * pairs / head_dim:g}" for pairs in range(1, head_dim // 2 + 1))
        raise ValueError(
            f"fraction={fraction:g} of a head of {head_dim} dimensions is not an even number of them: give {accepted}"
        )
    return round(turning) // 2


def refuse_what_cannot_scale(
    span: int, base: float, scaling: Scaling, factor: float, trained_length: int | None
) -> None:
    """Raises ValueError for hyperparameters that contradict one another, or that would change nothing."""
    if scaling == "none":
        if factor != 1:
            raise ValueError(f"factor={factor:g} changes nothing: add scaling=interpolation, ntk or yarn")
        return
    if factor <= 1:
        raise ValueError(
            f"scaling={scaling} with factor={factor:g}: give a factor above 1, the evaluated over the trained length"
        )
    if scaling == "ntk" and span == 2:
        raise ValueError("scaling=ntk needs 4 or more dimensions that turn; use interpolation")
    if scaling == "yarn" and (trained_length is None or trained_length < 1):
        raise ValueError(
            f"scaling=yarn with trained_length={trained_length}: give the length in tokens of the training's sequences"
        )
    if scaling == "yarn" and base <= 1:
        raise ValueError(f"scaling=yarn with base={base:g}: a base above 1 is needed")


@kept(maxsize=8)
def rotation(
    length: int, span: int, pairs: int, frequency: tuple[float, Scaling, float, int | None], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of every position and pair, [length, span/2], float64, times YaRN's factor of q and k."""
    _, scaling, factor, _ = frequency
    angles = frequencies(span, *frequency)
    angles[pairs:] = 0
    angle = torch.arange(length).double()[:, None] * angles
    size = 0.1 * math.log(factor) + 1 if scaling == "yarn" else 1.0
    return (size * angle.cos()).to(device), (size * angle.sin()).to(device)


def frequencies(span: int, base: float, scaling: Scaling, factor: float, trained_length: int | None) -> torch.Tensor:
    """The angle of each pair at position 1, [span/2], float64."""
    if scaling == "ntk":
        base *= factor ** (span / (span - 2))
    plain = base ** (-torch.arange(0, span, 2).double() / span)
    if scaling == "interpolation":
        return plain / factor
    if trained_length is None:
        return plain
    # the pairs that turn this often within the trained length, as real numbers
    slow, fast = (
        span * math.log(trained_length / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in YARN_TURNS
    )
    first, last = max(math.floor(fast), 0), min(math.ceil(slow), span - 1)
    width = max(last - first, 0.001)  # as the authors avoid a division by zero
    ramp = ((torch.arange(span // 2).double() - first) / width).clamp(0, 1)
    return plain * (1 - ramp) + plain / factor * ramp


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x with as many first dimensions rotated as cos and sin have angles for, in float32 at least. The result keeps
    that type, so that it is not rounded to half precision twice."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    wide, cos, sin = x.to(dtype), cos.to(dtype), sin.to(dtype)
    half = cos.size(-1)
    left, right = wide[..., :half], wide[..., half : 2 * half]
    # one new tensor: while decoding this is done to every key at every step
    out = wide[..., : 2 * half] * torch.cat([cos, cos], -1)
    out[..., :half].addcmul_(right, sin, value=-1)
    out[..., half:].addcmul_(left, sin)
    return out if 2 * half == x.size(-1) else torch.cat([out, wide[..., 2 * half :]], -1)
