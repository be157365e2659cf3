"""The memory of decoding from step to step, and the positions of one pass with or without it."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..encodings import StackPart
from ..positions import Positions
from ..self_attention import joined_padding


class Cache:
    """The memory of one generation from step to step. One cache serves a whole model: each module finds its own part.

    Give a new one to the first step of a generation, and the same one to each later step, with the new tokens alone. A
    module that a model applies several times in a pass needs a cache for each.

    Examples:
        >>> decoder = RelPosEncoder(16, 2, 3, "alibi", causal=True).eval()
        >>> x, cache = torch.randn(1, 4, 16), Cache()
        >>> steps = [decoder(part, cache=cache) for part in x.split(1, dim=1)]
        >>> torch.allclose(torch.cat(steps, 1), decoder(x), atol=1e-5)
        True
    """

    def __init__(self) -> None:
        self._parts: dict[nn.Module, dict[str, Any]] = {}
        self._sentences: int | None = None
        #: what does not change while the sequence grows, such as projected tables; the same for all sentences
        self.memory: dict = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> "Cache":
        """A copy for the same modules, as for several continuations of one prefix."""
        other = type(self)()
        other._sentences, other.memory = self._sentences, dict(self.memory)
        other._parts = {module: dict(part) for module, part in self._parts.items()}  # a step never changes a tensor
        return other

    def of(self, module: nn.Module) -> dict[str, Any]:
        """The part of this module. Each tensor in it has one row for each sentence."""
        return self._parts.setdefault(module, {})

    def expect(self, sentences: int) -> None:
        """ValueError where a step has another number of sentences than the earlier ones."""
        if self._sentences not in (None, sentences):
            raise ValueError(
                f"{sentences} sentences, but this cache has {self._sentences}: give each generation its own Cache, "
                "and call its reorder(order) where sentences leave or change places"
            )
        self._sentences = sentences

    def reorder(self, order_B: Tensor) -> None:
        """Makes sentence order_B[i] the i-th one, as beam search does after each step."""
        self._sentences = None if self._sentences is None else len(order_B)
        for part in self._parts.values():
            for key, value in part.items():
                if torch.is_tensor(value):
                    part[key] = value.index_select(0, torch.as_tensor(order_B, device=value.device))


def checked_hparams(hparams: dict[str, Any] | None) -> dict[str, Any]:
    """ValueError where they are the text that the command line takes."""
    if isinstance(hparams, str):
        raise ValueError(f"hparams={hparams!r}: give a dict, such as {{'max_distance': 64}}")
    return hparams or {}


def check_input(x_BTE: Tensor, embed_dim: int) -> None:
    """ValueError where x is no batch of embeddings."""
    if x_BTE.dim() != 3 or x_BTE.size(2) != embed_dim or not x_BTE.size(1):
        raise ValueError(f"x of shape {tuple(x_BTE.shape)}: give [batch, length, {embed_dim}]")


def as_padding(mask: Tensor | None, x_BTE: Tensor) -> Tensor | None:
    """The mask as booleans [B, T], True at pads. Additive masks of 0 and -inf, into which torch's TransformerEncoder
    turns boolean ones, are accepted, too."""
    if mask is None:
        return None
    if mask.shape != x_BTE.shape[:2]:
        wanted = tuple(x_BTE.shape[:2])
        raise ValueError(f"key_padding_mask of shape {tuple(mask.shape)}: give [batch, length], {wanted} here")
    if mask.dtype == torch.bool:
        return mask
    if mask.is_floating_point():
        padding = mask.isneginf()
        if not (padding | mask.eq(0)).all():
            raise ValueError("key_padding_mask has numbers beside 0 and -inf: give booleans, True at pads")
        return padding
    raise ValueError(
        f"key_padding_mask of type {mask.dtype}: give booleans, True at pads (where 1 means a real token, mask == 0)"
    )


def check_attn_mask(mask: Tensor | None, batch: int, heads: int, length: int, keys: int) -> None:
    """ValueError where the mask could not be meant: torch would spread another shape over sentences or heads, and
    add integers to the logits."""
    if mask is None:
        return
    each, all_heads = (length, keys), (batch * heads, length, keys)
    if mask.shape not in (each, all_heads):
        raise ValueError(
            f"attn_mask of shape {tuple(mask.shape)}: give [length, keys], {each}, or [batch * heads, length, keys], "
            f"{all_heads} here"
        )
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise ValueError(
            f"attn_mask of type {mask.dtype}: give booleans, True where a query may not see a key, or floats to add to "
            "the logits"
        )


def positions_of_pass(
    stack_part: StackPart,
    x_BTE: Tensor,
    padding_BT: Tensor | None,
    attn_mask: Tensor | None,
    position_ids: Tensor | None,
    document_ids: Tensor | None,
    cache: Cache | None,
    owner: nn.Module,
) -> tuple[Positions, Tensor | None]:
    """The positions of this pass, and the pads among all its keys [B, S]. In a decoding step, x, the pads and the
    ids are those of the new tokens; the cache has the earlier ones. Masks and ids are checked first."""
    batch, length, _ = x_BTE.shape
    ids = {"position_ids": position_ids, "document_ids": document_ids}
    for name, given in ids.items():
        if given is not None and (given.dim() != 2 or given.size(0) not in (1, batch)):
            raise ValueError(f"{name} of shape {tuple(given.shape)}: give [batch, length], {(batch, length)} here")
        if given is not None and (padding_BT is not None or cache is not None):
            ids[name] = given.expand(batch, *given.shape[1:])  # pads and the rows of a cache are those of each sentence
    heads = stack_part.dims.num_heads
    if cache is None:
        check_attn_mask(attn_mask, batch, heads, length, length)
        refuse_pads_between(padding_BT, ids)
        return stack_part.positions(length, length, padding_BS=padding_BT, device=x_BTE.device, **ids), padding_BT
    if not stack_part.dims.causal:
        raise ValueError("a cache serves attention in which no token sees a later one: build it with causal=True")
    kept = cache.of(owner)
    seen = kept.get("length", 0)
    cache.expect(batch)
    check_attn_mask(attn_mask, batch, heads, length, seen + length)
    padding_BS = joined_padding(kept.get("padding_BS"), padding_BT, seen, length, x_BTE)
    ids = {name: _joined_ids(name, kept.get(name), given, seen) for name, given in ids.items()}
    refuse_pads_between(padding_BS, ids)
    pos = stack_part.positions(
        length, seen + length, padding_BS=padding_BS, device=x_BTE.device, memory=cache.memory, **ids
    )
    kept.update(length=seen + length, padding_BS=padding_BS, **ids)
    return pos, padding_BS


def refuse_pads_between(padding_BS: Tensor | None, ids: Mapping[str, Tensor | None]) -> None:
    """ValueError for pads between the tokens of a text, unless ids say where the tokens are."""
    if padding_BS is None or any(given is not None for given in ids.values()):
        return
    begins_BS = ~padding_BS & F.pad(padding_BS, (1, 0), value=True)[:, :-1]  # a token without one before it
    if (begins_BS.sum(1) > 1).any():
        raise ValueError(
            "pads between tokens would count as distance: put the pads to the left or right of a text, "
            "or give position_ids (torch.arange(T)[None] counts the pads)"
        )


def _joined_ids(name, before_BS, now_BT, seen):
    if seen and (before_BS is None) != (now_BT is None):
        raise ValueError(f"{name} are given for some steps of this generation only: give them for all, or for none")
    return now_BT if before_BS is None else torch.cat([before_BS, now_BT], 1)
