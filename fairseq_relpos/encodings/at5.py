"""AT5: a scalar bias with a learned bucket function (Wu et al. 2021)."""

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from ..positions import Positions
from ..rows import Clipped
from ..terms import Bias, at_pairs, full_precision, over_offsets, toeplitz
from .base import PositionEncoding, StackPart, normal_table, register
from .tables import unclipped

Activation = Literal["relu", "sigmoid", "tanh"]


class PerHeadMLP(nn.Module):
    """An MLP 1 -> h1 -> h2 -> 1 for each head; [H, R] -> [H, R]. Glorot weights, zero biases.

    N(0, 0.02) would give a bias of about 1e-6, that is, no positions at all.
    """

    def __init__(self, num_heads, hidden, activation, dropout):
        super().__init__()
        sizes = [1, *hidden, 1]
        self.weights = nn.ParameterList(glorot(num_heads, fan_in, fan_out) for fan_in, fan_out in zip(sizes, sizes[1:]))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(num_heads, fan_out)) for fan_out in sizes[1:])
        self.activation = {"relu": F.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh}[activation]
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_HR: torch.Tensor) -> torch.Tensor:
        x = x_HR[..., None]
        last = len(self.weights) - 1
        for step, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            x = x @ weight.to(x.dtype) + bias.to(x.dtype)[..., None, :]
            if step < last:
                x = self.dropout(self.activation(x))
        return x[..., 0]


def glorot(num_heads: int, fan_in: int, fan_out: int) -> nn.Parameter:
    limit = math.sqrt(6 / (fan_in + fan_out))
    return nn.Parameter(torch.empty(num_heads, fan_in, fan_out).uniform_(-limit, limit))


class AdaptiveBias(StackPart):
    """b_{h,l} = MLP_{h,side}(1 - exp(-relu(gamma_{h,side}) |l| / n)) over all offsets."""

    def __init__(self, dims, gamma_range, hidden, activation, mlp_dropout, length):
        super().__init__(dims)
        self.length = length
        # l = 0 belongs to the negative side; a causal stack has no other
        sides = ["negative"] if dims.causal else ["negative", "positive"]
        self.gamma = nn.ParameterDict(
            {s: nn.Parameter(torch.empty(dims.num_heads).uniform_(*gamma_range)) for s in sides}
        )
        self.mlp = nn.ModuleDict({s: PerHeadMLP(dims.num_heads, hidden, activation, mlp_dropout) for s in sides})

    def share(self, pos: Positions) -> Bias:
        if self.length != "input":
            return pos.remember(self, self.bias)
        if self.randomized is not None and self.training:
            raise ValueError("--randomized-positions: at5 with length=input reads distance / length, which they change")
        if pos.given:
            return self.by_document(pos)
        reach = pos.src_len - 1
        per_sentence = [self.bias_row(reach, max(n, 1)) for n in pos.real_lengths_B().tolist()]
        rows = Clipped(max(reach, 1))
        return Bias(
            bias=torch.stack(
                [toeplitz(over_offsets(row_HR, rows, pos.tgt_len, pos.src_len), pos.tgt_len) for row_HR in per_sentence]
            )
        )

    def by_document(self, pos: Positions) -> Bias:
        """The bias for length=input with given positions: n is the number of tokens of each document."""
        rows = Clipped(max(pos.span - 1, 1))
        lengths_BS = pos.real_lengths_B()[:, None] if pos.documents_BS is None else pos.document_lengths_BS()
        total = self.gamma["negative"].new_zeros(())
        for n in lengths_BS.unique().tolist():
            if n > 0:  # a document of pads alone
                bias = at_pairs(self.bias_row(pos.span - 1, n), rows(pos.offset_BTS()))
                total = total + bias * (lengths_BS == n)[:, None, -pos.tgt_len :, None]
        return Bias(bias=total)

    def bias(self, length: int) -> Bias:
        rows = Clipped(max(length - 1, 1))
        return Bias(rows=rows, bias_row=self.bias_row(length - 1, self.length))

    def bias_row(self, reach: int, n: Any) -> torch.Tensor:
        """The bias b [H, R] at the offsets -reach .. reach; reach is at least 1."""
        reach = max(reach, 1)
        device = self.gamma["negative"].device
        values = [self.side("negative", torch.arange(reach, -1, -1, device=device), n)]
        if self.dims.causal:
            values.append(values[0][:, -1:].expand(-1, reach))
        else:
            values.append(self.side("positive", torch.arange(1, reach + 1, device=device), n))
        return torch.cat(values, 1)

    def side(self, side: str, distance_R: torch.Tensor, n: Any) -> torch.Tensor:
        gamma_H = full_precision(self.gamma[side])
        ramp_HR = gamma_H.relu()[:, None] * (distance_R.to(gamma_H) / n)
        return self.mlp[side](1 - torch.exp(-ramp_HR))


@register("at5", "wu2021at5")
class AT5(PositionEncoding):
    """e_ij = q_i.k_j / sqrt(d) + MLP_{h,sign(l)}(1 - exp(-relu(gamma_{h,sign}) |l| / n)),
    l = j - i   (AT5 Eq. 17-20).

    gamma: (H) for each sign, U(gamma_min, gamma_max). MLP: 1-h1-h2-1 for each head and
    sign, Glorot, biases 0. One set for the stack; per_layer gives each layer its own.
    n: the configured maximum length in tokens; length=input takes each sentence's number of
    real tokens (refused in causal stacks, where a decoding step could not equal the full
    pass); an integer fixes it. A causal stack has no positive side. hidden: h1,h2 (the
    paper's sizes: 100,5 15,2 64,8 50,10 32,4). activation: of both hidden layers.
    mlp_dropout: after each, in training only.

    Paper and code: the code's n is the maximum length, the paper's that of the input
    (length=input). l = 0 belongs to the code's negative side, to the paper's positive one.

    Cost: the MLP at T + S offsets, H (T + S) h1 h2, and one bias [H, T, S], once a pass;
    H T S additions.
    """

    def __init__(
        self,
        dims,
        gamma_min: float = 1.0,
        gamma_max: float = 15.0,
        hidden: tuple = (32, 4),
        activation: Activation = "relu",
        mlp_dropout: float = 0.0,
        length: str = "max",
        per_layer: bool = False,
    ):
        super().__init__(dims)
        if length == "input" and dims.causal:
            raise ValueError("length=input cannot serve a decoder; use length=max there")
        if gamma_min > gamma_max:
            raise ValueError(f"gamma_min={gamma_min} exceeds gamma_max={gamma_max}")
        self.gamma_range = (gamma_min, gamma_max)
        self.mlp_options = (check_hidden(hidden), activation, check_dropout(mlp_dropout))
        self.length = length if length == "input" else positive_length(length, dims.span)
        self.per_layer = per_layer
        self.resolve(length=self.length)

    def make_stack(self) -> StackPart:
        return AdaptiveBias(self.dims, self.gamma_range, *self.mlp_options, self.length)


def positive_length(text: str | int, span: int) -> int:
    if text == "max":
        return span
    if not str(text).isdigit() or int(text) < 1:
        raise ValueError(f"length={text} is not max, input or a number of tokens")
    return int(text)


def check_hidden(hidden: tuple[int, ...]) -> tuple[int, ...]:
    if len(hidden) != 2 or min(hidden) < 1:
        raise ValueError(f"hidden={hidden}: two sizes of at least 1 are needed, such as 32,4")
    return hidden


def check_dropout(p: float) -> float:
    if not 0 <= p < 1:
        raise ValueError(f"mlp_dropout={p}: a probability from 0 to below 1 is needed")
    return p


class AdaptiveBiasWithoutBuckets(StackPart):
    """b_{h,l} = MLP_h(sigmoid(t_{h,l})), t (2k+1, H)."""

    def __init__(self, dims, rows, hidden, activation, mlp_dropout):
        super().__init__(dims)
        self.rows = rows
        self.t = normal_table(rows.count, dims.num_heads)
        self.mlp = PerHeadMLP(dims.num_heads, hidden, activation, mlp_dropout)

    def share(self, pos: Positions) -> Bias:
        return pos.remember(self, lambda length: self.bias())

    def bias(self) -> Bias:
        return Bias(rows=self.rows, bias_row=self.mlp(full_precision(self.t).mT.sigmoid()))


@register("at5_nob", "wu2021at5")
class AT5NoBuckets(PositionEncoding):
    """e_ij = q_i.k_j / sqrt(d) + MLP_h(sigmoid(t_{h, clip(j-i, -k, k)}))   (AT5's ablation
    "AT5-NoB").

    t: (2k+1, H), N(0, 0.02); one 1-h1-h2-1 MLP a head, as in at5. Shared by all layers.
    max_distance: k in tokens, default n - 1; longer sequences clamp. hidden, activation,
    mlp_dropout and per_layer as in at5.

    Paper and code: the code keeps the MLP's dropout at test time; here it is off.

    Cost: the MLP at 2k + 1 rows, H (2k + 1) h1 h2, and one bias [H, T, S], once a pass;
    H T S additions.
    """

    def __init__(
        self,
        dims,
        max_distance: int | None = None,
        hidden: tuple = (32, 4),
        activation: Activation = "relu",
        mlp_dropout: float = 0.0,
        per_layer: bool = False,
    ):
        super().__init__(dims)
        k = unclipped(dims, max_distance)
        self.rows = Clipped(k)
        self.mlp_options = (check_hidden(hidden), activation, check_dropout(mlp_dropout))
        self.per_layer = per_layer
        self.resolve(max_distance=k)

    def make_stack(self) -> StackPart:
        return AdaptiveBiasWithoutBuckets(self.dims, self.rows, *self.mlp_options)
