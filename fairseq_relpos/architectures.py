"""The architectures of each model family: which there are, and their sizes without fairseq."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from .encodings import ENCODINGS, Dims, check_serves, find


@dataclass(frozen=True)
class Size:
    """The size of fairseq's stock architecture with the same ending, for each of its stacks."""

    layers: int
    embed_dim: int
    heads: int
    #: those of the generator of an ELECTRA
    generator_heads: int = 0
    #: where the decoder has another number of layers than the encoder
    decoder_layers: int = 0

    def layers_of(self, stack: "Stack") -> int:
        return self.decoder_layers if stack.causal and self.decoder_layers else self.layers


@dataclass(frozen=True)
class Stack:
    """An encoder or a decoder of a model family."""

    causal: bool
    #: whether the input begins with [CLS]; None: if the stack is not causal
    has_cls: bool | None = None
    is_generator: bool = False


ENCODER_ALONE = [Stack(causal=False)]
ENCODER_TWICE = [Stack(causal=False), Stack(causal=False, is_generator=True)]
SEQUENCE_ENCODER = [Stack(causal=False, has_cls=False)]
DECODER_ALONE = [Stack(causal=True, has_cls=False)]
ENCODER_DECODER = [Stack(causal=False, has_cls=False), Stack(causal=True, has_cls=False)]
BOTH_WAYS = [Stack(causal=False, has_cls=False), Stack(causal=False, has_cls=False)]
BASE, BIG = Size(6, 512, 8), Size(6, 1024, 16)

#: name of the family -> its stacks, and its sizes by the ending of the architecture's name. ``models`` registers these
#: endings; those of roberta and electra it lists itself
FAMILIES = {
    "roberta": (ENCODER_ALONE, {"": Size(12, 768, 12), "_large": Size(24, 1024, 16)}),
    "electra": (
        ENCODER_TWICE,
        {"": Size(12, 768, 12, 4), "_small": Size(12, 256, 4, 1), "_large": Size(24, 1024, 16, 4)},
    ),
    "transformer": (
        ENCODER_DECODER,
        {"": BASE, "_iwslt_de_en": Size(6, 512, 4), "_wmt_en_de": BASE, "_wmt_en_de_big": BIG},
    ),
    "transformer_align": (ENCODER_DECODER, {"": BASE, "_wmt_en_de_big": BIG}),
    "nonautoregressive_transformer": (BOTH_WAYS, {"": BASE, "_wmt_en_de": BASE}),
    "cmlm_transformer": (BOTH_WAYS, {"": BASE, "_wmt_en_de": BASE}),
    "levenshtein_transformer": (
        BOTH_WAYS,
        {"": BASE, "_wmt_en_de": BASE, "_vaswani_wmt_en_de_big": BIG, "_wmt_en_de_big": BIG},
    ),
    "s2t_transformer": (
        ENCODER_DECODER,
        {
            "": Size(12, 512, 8, decoder_layers=6),
            "_xs": Size(6, 256, 4, decoder_layers=3),
            "_s": Size(12, 256, 4, decoder_layers=6),
            "_sp": Size(16, 256, 4, decoder_layers=6),
            "_m": Size(12, 512, 8, decoder_layers=6),
            "_mp": Size(16, 512, 8, decoder_layers=6),
            "_l": Size(12, 1024, 16, decoder_layers=6),
            "_lp": Size(16, 1024, 16, decoder_layers=6),
        },
    ),
    "bart": (ENCODER_DECODER, {"": Size(6, 768, 12), "_base": Size(6, 768, 12), "_large": Size(12, 1024, 16)}),
    "transformer_lm": (
        DECODER_ALONE,
        {
            "": Size(6, 512, 8),
            "_big": Size(12, 1024, 16),
            "_gbw": Size(12, 512, 16),
            "_baevski_gbw": Size(12, 512, 16),
            "_wiki103": Size(16, 1024, 8),
            "_baevski_wiki103": Size(16, 1024, 8),
            "_gpt": Size(12, 768, 12),
            "_gpt2_tiny": Size(2, 64, 1),
            "_gpt2_small": Size(24, 1024, 16),
            "_gpt2_medium": Size(36, 1280, 20),
            "_gpt2_big": Size(48, 1600, 25),
            "_gpt3_small": Size(12, 768, 12),
            "_gpt3_medium": Size(24, 1024, 16),
            "_gpt3_large": Size(24, 1536, 16),
            "_gpt3_xl": Size(24, 2048, 32),
            "_gpt3_2_7": Size(32, 2560, 32),
            "_gpt3_6_7": Size(32, 4096, 32),
            "_gpt3_13": Size(40, 5120, 40),
            "_gpt3_175": Size(96, 12288, 96),
        },
    ),
    "sequence_encoder": (SEQUENCE_ENCODER, {"": Size(1, 256, 8)}),
}


def endings_of(family: str) -> list[str]:
    """Returns how the names of its architectures end: for transformer "", _iwslt_de_en, ..."""
    _, sizes = FAMILIES[family]
    return list(sizes)


def serving(name: str, stacks: Sequence[Stack]) -> list[Stack]:
    """Returns the stacks that can have the encoding, all of them for an unknown name."""
    causal_only = name in ENCODINGS and find(name).causal_only
    return [stack for stack in stacks if stack.causal or not causal_only]


def architectures_of(name: str) -> list[str]:
    """Returns the architectures of an encoding: roberta_NAME, roberta_NAME_large, transformer_NAME, ..."""
    return [
        f"{family}_{name}{ending}"
        for family, (stacks, sizes) in FAMILIES.items()
        if serving(name, stacks)
        for ending in sizes
    ]


def find_architecture(arch: str) -> tuple[str, list[Stack], Size]:
    """Returns the encoding of an architecture (roberta_tupe_r_large -> tupe_r), the stacks that have it, their size."""
    for family, (stacks, sizes) in FAMILIES.items():
        for ending, size in sizes.items():
            name = arch.removeprefix(f"{family}_").removesuffix(ending)
            if arch == f"{family}_{name}{ending}" and name in ENCODINGS:
                mine = serving(name, stacks)
                if not mine:
                    check_serves(name, causal=False)
                return name, mine, size
    near = difflib.get_close_matches(arch, [known for name in ENCODINGS for known in architectures_of(name)], 5)
    raise ValueError(
        f"--arch {arch} is not known: {'the nearest: ' + ', '.join(near) if near else 'none is like it'}; "
        "`fairseq-relpos list` has the encodings, `fairseq-relpos show t5` the architectures of one"
    )


def bert_base(name: str) -> Dims:
    """Returns the dimensions of BERT-base, in a stack that can have the encoding."""
    return dims_of(*of_bert_base(name), max_len=512)


def of_bert_base(name: str) -> tuple[Stack, Size]:
    stacks, sizes = FAMILIES["roberta"]
    return (serving(name, stacks) or [Stack(causal=True)])[0], sizes[""]


def dims_of(stack: Stack, size: Size, max_len: int) -> Dims:
    heads = size.generator_heads if stack.is_generator else size.heads
    width = size.embed_dim // size.heads * heads
    return Dims(width, heads, max_len, causal=stack.causal, has_cls=stack.has_cls)
