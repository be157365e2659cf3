"""Shaw and LFHC against their equations in loops, and the public codes' numbers."""

import math

import pytest
from loops import LENGTHS, check_against_loops

from fairseq_relpos.encodings import Dims, build

DIMS = Dims(embed_dim=8, num_heads=2, max_len=9)
CAUSAL = Dims(embed_dim=8, num_heads=2, max_len=9, causal=True)


def clip(x, k):
    return max(-k, min(k, x))


def row_of_head(table, row, head, head_dim, shared):
    return table[row] if shared else table[row, head * head_dim : (head + 1) * head_dim]


@pytest.mark.parametrize("dims", [DIMS, CAUSAL])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("hparams", [{}, {"max_distance": 2}, {"heads": "each"}, {"scale_factor": 2}])
def test_shaw_adds_a_vector_to_the_key(hparams, lengths, dims):
    encoding = build("shaw", dims, **hparams)
    k, d = hparams.get("max_distance", 8), dims.head_dim
    s = 1 / math.sqrt(hparams.get("scale_factor", 1) * d)

    def oracle(q_i, k_j, head, i, j, sentence):
        a = row_of_head(encoding.table, clip(j - i, k) + k, head, d, "heads" not in hparams)
        return s * (q_i @ (k_j + a))

    check_against_loops(encoding, oracle, *lengths)


@pytest.mark.parametrize("layer", [1, 2, 5])
@pytest.mark.parametrize("rounding", ["away", "floor"])
@pytest.mark.parametrize("heads", ["each", "shared"])
def test_lfhc_is_coarser_in_higher_layers(layer, rounding, heads):
    dims = Dims(embed_dim=8, num_heads=2, max_len=9, layer=layer)
    encoding = build("lfhc", dims, max_distance=2, rounding=rounding, heads=heads)

    def oracle(q_i, k_j, head, i, j, sentence):
        x = i - j
        if rounding == "floor":
            coarse = math.floor(x / layer)
        else:
            coarse = int(math.copysign(math.ceil(abs(x) / layer), x))
        a = row_of_head(encoding.table, clip(coarse, 2) + 2, head, 4, heads == "shared")
        return q_i @ (k_j + a) / 2

    check_against_loops(encoding, oracle, 9, 9)
