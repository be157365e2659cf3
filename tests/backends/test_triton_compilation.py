"""The fused kernels compile for sm80, the oldest GPU that they serve, and sm90: no GPU is needed."""

from importlib.util import find_spec

import pytest
from compiled_kernels import compiled, variants

# not importorskip: how Triton is first imported decides whether this process interprets kernels
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed (pip install triton)"),
]

BY_TILE = {"forward", "backward_queries", "backward_keys"}


# each value of a column with some value of every other; the whole table is for no suite, and some of it is in
# test_triton_budget.py
@pytest.mark.parametrize(
    "capability, kib, dtype, width, form, padding, causal, queries",
    [
        (80, 99, "float32", 128, "everything", "padded", "full", 512),
        (80, 99, "float32", 128, "bias", "padded", "full", 512),
        (80, 99, "float32", 64, "product", "unpadded", "full", 512),
        (80, 99, "bfloat16", 128, "rows", "unpadded", "causal", 512),
        (80, 163, "bfloat16", 64, "gate", "padded", "full", 512),
        (80, 163, "float16", 64, "bias", "padded", "full", 1),
        (90, 227, "bfloat16", 64, "rows", "unpadded", "full", 512),
        (80, 163, "float16", 64, "everything", "padded", "causal", 512),
        (80, 163, "bfloat16", 64, "rows and a mask", "padded", "causal", 500),
    ],
)
def test_every_kernel_compiles_and_fits_into_shared_memory(
    tmp_path, capability, kib, dtype, width, form, padding, causal, queries
):
    case = {"form": form, "capability": capability, "kib": kib, "dtype": dtype, "width": width, "queries": queries}
    case["counted"] = False
    masks = {"padded": padding == "padded", "causal": causal == "causal"}
    shared = {found["kernel"]: found["shared"] for found in compiled(tmp_path, {**case, **masks})}
    assert shared.keys() >= {*BY_TILE, "backward_delta"}
    assert ("backward_bias" in shared) == (form in ("everything", "bias"))
    assert any(name.startswith("backward_tables") for name in shared) == (form != "bias")
    assert all(size <= kib * 1024 for size in shared.values()), shared


def test_a_kernel_is_compiled_as_often_as_there_are_tiles_and_masks_not_lengths(tmp_path):
    """A translation model has batches of any length and number of sentences. Tiles are of 16, 32 or 64 queries, full or
    not, those of 64 also with rests of multiples of 16; pads and the future are hidden or not."""
    lengths = (9, 16, 25, 32, 41, 48, 60, 63, 64, 80, 100, 128)
    cases = ({"form": form, "lengths": lengths, "batches": (1, 5, 16)} for form in ("bias_row", "bias", "m4"))
    by_offset, by_pair, tables = variants(tmp_path, *cases)
    once = {"backward_delta": 1}
    assert by_offset == dict.fromkeys(BY_TILE, 7 * 4) | once
    assert by_pair == dict.fromkeys((*BY_TILE, "backward_bias"), 7 * 4) | once
    # tiles of at most 32
    assert tables == dict.fromkeys((*BY_TILE, "backward_tables A", "backward_tables C"), 5 * 4) | once
