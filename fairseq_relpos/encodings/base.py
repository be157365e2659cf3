"""PositionEncoding, its two parts, Dims and the registry."""

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..positions import CurrentPass, Positions, random_positions
from ..tensors import outside_autocast
from ..terms import Bias, Terms, evaluate, full_precision
from .hparams import check_declared, convert, hyperparameters, python_name, to_text

#: name -> class of every encoding
ENCODINGS: dict[str, type["PositionEncoding"]] = {}

#: key in fairseq's incremental_state of what one generation keeps from step to step
MEMORY = "fairseq_relpos"

#: standard deviation of every table and projection, unless a docstring says otherwise
INIT_STD = 0.02


@dataclass(frozen=True)
class Dims:
    """The dimensions that an encoding is built for.

    max_len: the longest sequence in tokens (n). layer counts from 1. has_cls: whether the
    first token is a [CLS] (default: if the stack is not causal). padding_idx: fairseq's
    pad, whose row a learned table skips. randomized: positions in training are below this number.

    Examples:
        >>> Dims(64, 4, max_len=128).head_dim
        16
        >>> Dims(64, 4, max_len=128).has_cls, Dims(64, 4, max_len=128, causal=True).has_cls
        (True, False)
    """

    embed_dim: int
    num_heads: int
    max_len: int
    causal: bool = False
    layer: int = 1
    padding_idx: int = 1
    has_cls: bool | None = None
    randomized: int | None = None

    def __post_init__(self):
        for name in ("embed_dim", "num_heads", "max_len", "layer"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: a number of 1 or more is needed")
        if self.embed_dim % self.num_heads:
            raise ValueError(
                f"embedding dimension {self.embed_dim} cannot be divided into "
                f"{self.num_heads} attention heads: choose a number of heads that divides it"
            )
        if self.has_cls is None:
            object.__setattr__(self, "has_cls", not self.causal)

    @property
    def head_dim(self) -> int:
        return self.embed_dim // self.num_heads

    @property
    def span(self) -> int:
        """The number of positions that a table without clipping covers."""
        return max(self.max_len, self.randomized or 0)


class StackPart(nn.Module):
    """The part of an encoding that all layers of one encoder or decoder share.

    A fairseq stack calls it once per forward pass with the token ids, instead of its
    position embedding, and adds its result to the token embeddings.

    Examples:
        >>> encoding = build("sinusoidal", Dims(64, 4, max_len=128))
        >>> encoding.stack.embed(torch.tensor([[5, 6, 7]])).shape
        torch.Size([1, 3, 64])
    """

    #: longest sequence that has an absolute position of its own; None: any length
    hard_limit: int | None = None

    #: the option that sets the longest sequence; in a fairseq model it is a flag
    length_option = "max_len"

    #: in training, tokens get random positions below this number; None: their own. cls_at_0: [CLS] remains at 0
    randomized: int | None = None
    cls_at_0 = False

    def __init__(self, dims: Dims):
        super().__init__()
        self.dims = dims
        #: what fairseq asks a position embedding for
        self.max_positions = dims.max_len
        self.current_pass = CurrentPass()
        #: a ``SegmentMemory`` where the layers remember earlier segments
        self.segment_memory: Any = None
        #: a backend's once-per-pass work on a shared Bias: (bias, pos) -> bias
        self.prepare_bias: Callable[[Bias, Positions], Bias] | None = None
        #: the result where nothing is added; fairseq's encoders add it without a check, so there it is 0
        self.nothing_to_add = None if dims.causal else 0

    def embed(self, tokens_BT: torch.Tensor, pos: Positions | None = None) -> torch.Tensor | None:
        """The summand of the token embeddings, [B, T, E], or None. With the ``pos`` of a decoding step, that of
        the newest token alone, [B, 1, E]."""
        return None

    def share(self, pos: Positions) -> Any:
        """The values that all layers read, computed once per forward pass: a Bias, another object that the
        encoding's own ``terms`` understands, or None."""
        return None

    def lost_heads(self) -> list[int]:
        """The heads, from 1, whose position scores leave nothing but [CLS] to attend to. A training warns of them."""
        return []

    def forward(
        self, tokens_BT: torch.Tensor, incremental_state: dict[str, Any] | None = None, **unused: Any
    ) -> torch.Tensor | int | None:
        length = tokens_BT.size(1)
        decoding = incremental_state is not None
        padding_BS, segment = tokens_BT.eq(self.dims.padding_idx), None
        if self.segment_memory is not None and self.current_pass.place is not None and not decoding:
            segment = self.segment_memory.begin(self.current_pass.place, padding_BS, self.training)
            if segment is not None:
                padding_BS = segment.padding_BS
        given = self.current_pass.given
        if self.randomized is not None and self.training and not decoding:
            if any(ids is not None for ids in given.values()):
                raise ValueError("--randomized-positions: this batch has positions or documents of its own")
            given = {"position_ids": random_positions(padding_BS, self.randomized, self.cls_at_0)}
        pos = self.positions(
            1 if decoding else length,  # while decoding, the newest token is the only query
            padding_BS.size(1),
            padding_BS=padding_BS,
            # its own key: fairseq reorders its caches with the beam and leaves this alone
            memory=None if incremental_state is None else incremental_state.setdefault(MEMORY, {}),
            **given,
        )
        pos.segment = segment
        self.current_pass.positions = pos
        added = self.embed(tokens_BT, pos)
        return self.nothing_to_add if added is None else added

    def positions(self, tgt_len: int, src_len: int, **how: Any) -> Positions:
        """The Positions of one forward pass, with what its layers share. how: as in ``Positions.of``."""
        pos = Positions.of(tgt_len, src_len, **how)
        self.check_positions(pos)
        pos.shared = self.evaluate(pos)
        if isinstance(pos.shared, Bias) and self.prepare_bias is not None:
            pos.shared = self.prepare_bias(pos.shared, pos)
        return pos

    @property
    def joins_input(self) -> bool:
        """Whether this encoding adds something to the token embeddings."""
        return type(self).embed is not StackPart.embed

    @contextlib.contextmanager
    def given(
        self, position_ids: torch.Tensor | None = None, document_ids: torch.Tensor | None = None
    ) -> Iterator[None]:
        """Within this block, the stack's forward passes use these token positions and document numbers, [B, T]
        each, instead of the tokens' slots; see ``Positions``."""
        before = self.current_pass.given
        self.current_pass.given = {"position_ids": position_ids, "document_ids": document_ids}
        try:
            yield
        finally:
            self.current_pass.given = before

    def evaluate(self, pos: Positions) -> Any:
        """Calls ``share`` outside autocast: positions keep float32 in every mode."""
        with outside_autocast(pos.device.type if pos.device else "cpu"):
            shared = self.share(pos)
            offset_BTS = pos.moved_offset_BTS() if isinstance(shared, Bias) else None
            return shared if offset_BTS is None else shared.at_offsets(offset_BTS)

    def check_positions(self, pos: Positions) -> None:
        """Raises ValueError if a token has no absolute position."""
        if pos.given and self.hard_limit is not None and pos.span > self.hard_limit:
            raise ValueError(
                f"position id {pos.span - 1}, but this position encoding has {self.hard_limit} absolute "
                f"positions, 0 to {self.hard_limit - 1}: train with {self.length_option} {pos.span} or more, "
                "give smaller ids, or choose a relative encoding"
            )
        if self.hard_limit is not None and pos.span > self.hard_limit:  # not in a usual pass: it waits for the GPU
            self.check_length(int(pos.real_lengths_B().max()))

    def randomize(self, span: int, cls_at_0: bool = False) -> None:
        """In training, tokens get random positions below ``span``; cls_at_0: the first one of a sentence remains at 0.
        Raises ValueError where the absolute positions are fewer."""
        self.check_length(span)
        self.randomized, self.cls_at_0 = span, cls_at_0

    def check_length(self, length: int) -> None:
        """Raises ValueError for a sequence that is longer than the absolute positions."""
        if self.hard_limit is not None and length > self.hard_limit:
            raise ValueError(
                f"a sequence of {length} tokens, but this position encoding has "
                f"{self.hard_limit} absolute positions: train with {self.length_option} {length} or "
                "more, shorten the input, or choose a relative encoding"
            )


def at_given_positions(terms: Callable[..., Terms]) -> Callable[..., Terms]:
    """Decorates ``terms``: with given positions, its tables are read at the offset of each pair. An
    encoding declares tables over offsets and need not handle given positions itself."""

    @functools.wraps(terms)
    def read(self, q_BHTD, k_BHSD, pos):
        declared = terms(self, q_BHTD, k_BHSD, pos)
        offset_BTS = pos.moved_offset_BTS()
        return declared if offset_BTS is None else declared.at_offsets(offset_BTS)

    return read


def _outside_autocast(terms):
    @functools.wraps(terms)
    def in_full_precision(self, q_BHTD, k_BHSD, pos):
        with outside_autocast(q_BHTD.device.type):
            return terms(self, q_BHTD, k_BHSD, pos)

    return in_full_precision


class PositionEncoding(nn.Module):
    """The way in which one paper brings positions into e_ij.

    An encoding has two parts, because papers share different things between layers: the result
    of ``make_stack`` is built, evaluated and saved once per encoder or decoder; the module
    itself is the layer part. ``build`` joins the two into one self-contained encoding.

    A subclass defines ``__init__(dims, name: type = default, ...)`` (these are its
    hyperparameters), ``make_stack`` if layers share something, and ``terms`` unless the
    shared part is simply a Bias to be added to s q.k.

    Some methods add positions to the input (learned, sinusoidal, shape, bert_r, abs_m4m).
    ``logits`` does not include that part: add ``embed(tokens)`` to the token embeddings, from
    which q and k are projected. ``logits`` without it warns once.

    Examples:
        >>> from fairseq_relpos.positions import Positions
        >>> encoding = build("t5", Dims(64, 4, max_len=128))
        >>> q_BHTD, k_BHSD = torch.randn(2, 1, 4, 9, 16)
        >>> encoding.logits(q_BHTD, k_BHSD, Positions.of(9, 9)).shape
        torch.Size([1, 4, 9, 9])
    """

    name: str

    #: keys of the papers behind it in references.bib
    papers: tuple[str, ...] = ()

    #: "learned" or "sinusoidal" where this is fairseq's own position embedding: outputs and
    #: files are stock's, without a signature, in a stack that fairseq builds with it
    stock_positions: str | None = None

    #: why only a causal stack, such as a decoder, can have it; None: any stack can
    causal_only: str | None = None

    #: whether the number of a layer is part of its function
    counts_layers = False

    #: whether other positions of the same tokens, in the same order, can change its function
    reads_positions = True

    #: hyperparameters that a trained model may get anew for its evaluation: no weight depends on them, and the
    #: signature leaves them out
    free_in_evaluation: tuple[str, ...] = ()

    #: hyperparameters that the first checkpoints of this encoding do not name, with the values that they mean there; at
    #: these values the signature leaves them out
    added_later: dict[str, Any] = {}

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "logits" in vars(cls):
            raise ValueError(
                f"{cls.__name__} overrides logits, which attention never calls: declare the logit in `terms`, "
                "where a bias that depends on the content is Terms.bias [B, H, T, S]; "
                "see docs/adding-an-encoding.md"
            )
        if "terms" in vars(cls):
            cls.terms = _outside_autocast(at_given_positions(cls.terms))

    def __init__(self, dims: Dims):
        super().__init__()
        self.dims = dims
        #: s, which belongs to the paper: TUPE has 1/sqrt(2d), DeBERTa 1/sqrt(3d)
        self.scale = dims.head_dim**-0.5
        #: a joined encoding owns its stack part; in a model the fairseq stack does
        self.stack: StackPart | None = None
        #: True where the first token is treated as [CLS]
        self.reads_cls = False
        #: True moves the stack part into each layer
        self.per_layer = False
        #: the hyperparameters in force, with every default resolved
        self.hparams: dict[str, Any] = {}
        #: those that some layers of a stack have instead, layer.3,6.NAME -> value
        self.layer_hparams: dict[str, Any] = {}
        self._input_part_is_known = False

    def make_stack(self) -> StackPart:
        """Builds the part that all layers share."""
        return StackPart(self.dims)

    def use_content_projections(self, q_proj: nn.Linear, k_proj: nn.Linear) -> None:
        """Receives the layer's own W^Q and W^K, for a method that projects positions with them."""

    def resolve(self, **hparams: Any) -> None:
        """Records the values of defaults that depend on the dimensions."""
        self._resolved = hparams

    _resolved: dict[str, Any] = {}

    def embed(self, tokens_BT: torch.Tensor, pos: Positions | None = None) -> torch.Tensor | None:
        """The summand of the token embeddings, [B, T, E], or None. With ``pos``, that of its queries, whose
        positions may be given."""
        self._input_part_is_known = True
        assert self.stack is not None, "only a joined encoding, which ``build`` makes, has an input part"
        return self.stack.embed(tokens_BT) if pos is None else self.stack.embed(tokens_BT, pos)

    def shared(self, pos: Positions) -> Any:
        """The value of the stack part's ``share`` for this pass."""
        if pos.shared is None and self.stack is not None:
            self.stack.check_positions(pos)
            return self.stack.evaluate(pos)
        return pos.shared

    def terms(self, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, pos: Positions) -> Terms:
        """e_ij in the normal form. q, k: projected, unscaled, [B, H, T|S, D]."""
        return Terms.with_bias(q_BHTD, k_BHSD, self.scale, self.shared(pos))

    def logits(self, q_BHTD: torch.Tensor, k_BHSD: torch.Tensor, pos: Positions) -> torch.Tensor:
        """The logits e_BHTS: scaled, before masking, in float32 at least. What ``embed`` adds to the input
        reaches them only through q and k."""
        if self.stack is not None and self.stack.joins_input:
            self.warn_of_the_input_part()
        return evaluate(self.terms(q_BHTD, k_BHSD, pos))

    def warn_of_the_input_part(
        self,
        who: str = "these logits lack",
        advice: str = "add encoding.embed(tokens) to the token embeddings before q and k are projected",
    ) -> None:
        """Warns once that the logits lack the positions of the input, unless ``embed`` has been called."""
        if not self._input_part_is_known:
            self._input_part_is_known = True
            warnings.warn(f"{self.name} adds positions to the input, which {who}: {advice}", stacklevel=3)

    @property
    def signature(self) -> str:
        """The name and resolved hyperparameters, in the format of sacreBLEU's signatures. Dropout is left out:
        it changes training, not the function that a checkpoint holds; so are those that are free in evaluation, and
        those ``added_later`` at their first values."""
        left_out = {*self.free_in_evaluation, *(k for k, v in self.added_later.items() if self.hparams[k] == v)}
        signed = {k: v for k, v in self.hparams.items() if k not in left_out}
        signed |= {k: v for k, v in self.layer_hparams.items() if k.rpartition(".")[2] not in self.free_in_evaluation}
        parts = [f"{k}:{to_text(v)}" for k, v in signed.items() if "dropout" not in k]
        return "|".join([f"pe:{self.name}", *parts])


def register(name: str, *papers: str) -> Callable[[type["PositionEncoding"]], type["PositionEncoding"]]:
    """Class decorator: registers an encoding under this name. papers: keys in references.bib. The paper that
    proposes the method comes first, then the others that the docstring cites.

    Examples:
        >>> @register("content")
        ... class Content(PositionEncoding):
        ...     '''Attention without positions.'''
        >>> build("content", Dims(64, 4, max_len=128)).signature
        'pe:content'
    """

    def add(cls):
        if name in ENCODINGS:
            raise ValueError(f"position encoding {name!r} is registered twice")
        check_declared(cls)
        cls.name, cls.papers = name, papers
        ENCODINGS[name] = cls
        return cls

    return add


def build(name: str, dims: Dims, **hparams: Any) -> PositionEncoding:
    """Builds a self-contained encoding: layer part and stack part in one module.

    Examples:
        >>> build("t5", Dims(64, 4, max_len=128), num_buckets=16).signature
        'pe:t5|...num_buckets:16...'
    """
    encoding = build_layer_part(name, dims, **hparams)
    encoding.stack = encoding.make_stack()
    return encoding


def build_layer_part(name: str, dims: Dims, **hparams: Any) -> PositionEncoding:
    """Builds only the layer part. Hyperparameters may be values or their text forms.

    Examples:
        >>> build_layer_part("t5", Dims(64, 4, max_len=128)).stack is None
        True
    """
    cls = find(name)
    check_serves(name, dims.causal)
    accepted = hyperparameters(cls)
    unknown = sorted(set(hparams) - set(accepted))
    if unknown:
        raise ValueError(
            f"{name} has no {', '.join(unknown)}; it accepts "
            + (" ".join(f"{k}={to_text(p.default)}" for k, p in accepted.items()) or "none")
        )
    values = {k: p.default for k, p in accepted.items()}
    for key, value in hparams.items():
        values[key] = convert(name, key, value, accepted[key].annotation)
    try:
        encoding = cls(dims, **{python_name(cls, k): v for k, v in values.items()})
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    encoding.hparams = {**values, **encoding._resolved}
    return encoding


def find(name: str) -> type[PositionEncoding]:
    """The class of the encoding of this name; ValueError lists the known names.

    Examples:
        >>> find("rope").papers[0]
        'su2021roformer'
    """
    if name not in ENCODINGS:
        raise ValueError(f"unknown position encoding {name!r}; known: {' '.join(sorted(ENCODINGS))}")
    return ENCODINGS[name]


def names_for(causal: bool) -> list[str]:
    """The sorted names of the encodings that support such a stack.

    Examples:
        >>> sorted(set(names_for(causal=True)) - set(names_for(causal=False)))
        ['cope', 'fox', 'path']
    """
    return sorted(name for name, cls in ENCODINGS.items() if causal or cls.causal_only is None)


def check_serves(name: str, causal: bool) -> None:
    """Raises ValueError if the encoding does not support a stack of this kind.

    Examples:
        >>> check_serves("cope", causal=False)
        Traceback (most recent call last):
        ValueError: cope serves causal stacks alone, such as a decoder: ...
    """
    why = find(name).causal_only
    if why and not causal:
        raise ValueError(f"{name} serves causal stacks alone, such as a decoder: {why}")


class HasModelType(nn.Module):
    """A part without parameters whose numbers have the type of its model: ``.half()`` or ``.to(dtype)`` changes it."""

    model_dtype = torch.float32

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.model_dtype = torch.get_default_dtype()

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        self.model_dtype = fn(torch.empty(0, dtype=self.model_dtype, device="cpu")).dtype
        return super()._apply(fn, *args, **kwargs)


def normal_table(*shape: int) -> nn.Parameter:
    """A table with N(0, 0.02). A bare Parameter, because fairseq's BERT initialisation
    overwrites every Embedding and Linear that it finds."""
    return nn.Parameter(torch.empty(*shape).normal_(0, INIT_STD))


def weights_of(linear: nn.Module, inputs: int) -> tuple[torch.Tensor, Any]:
    """Returns W [outputs, inputs] and b [outputs] or None of a linear map, in float32 at least. Where an adapter,
    quantised weights or a hook apply other ones than ``linear.weight``, they are computed from the outputs."""
    # torchao leaves an nn.Linear and makes its weight a tensor that stands for others; torch.nn.utils.prune and
    # weight_norm make it anew in a hook before each call
    hooks = [hook for hook in linear._forward_pre_hooks.values() if hook.__module__ != "fairseq.modules.quant_noise"]
    # fairseq's noise changes the weight in place, once in each pass, in which the attention has called the module
    if type(linear) is nn.Linear and not (hooks or hasattr(linear.weight, "__tensor_flatten__")):
        bias = linear.bias
        return full_precision(linear.weight), None if bias is None else full_precision(bias)
    known = [*linear.parameters(), *linear.buffers(), torch.empty(0, device="cpu")]
    dtype = next(x.dtype for x in known if x.is_floating_point() and x.dtype.itemsize > 1)
    # far larger than b, beside which a type of few bits would round W
    size = 1024
    unit = torch.eye(inputs, dtype=dtype, device=known[0].device)
    outputs = full_precision(linear(torch.cat([torch.zeros_like(unit[:1]), size * unit])))
    return (outputs[1:] - outputs[0]).mT / size, outputs[0]
