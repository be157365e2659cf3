"""Bounds of the cost of the fused kernels, counted in machine code for sm80 and sm90, without a GPU.

``compiled_kernels`` says what is counted, in bfloat16 with heads of 64 entries, T = S = 512 and dropout 0.1. The
bounds are what this version of Triton makes of the kernels, with 3 % more instructions and 8 more registers: if a
change of the kernels exceeds one, it made them slower. If it makes them much lighter, lower the bounds.
"""

from importlib.metadata import version
from importlib.util import find_spec

import pytest
from compiled_kernels import compiled

#: other versions make other machine code
TRITON = "3.7"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("triton") is None or not version("triton").startswith(TRITON + "."),
        reason=f"Triton {TRITON} is not installed (pip install triton), with which the bounds were taken",
    ),
]

#: of shared memory of a program on an A100 and on an H100
KIB = {80: 163, 90: 227}

#: products a tile without positions
PRODUCTS = {"forward": 2, "backward_queries": 3, "backward_keys": 4}
#: (capability, terms): kernel: products a tile, and at most so many instructions, registers and barriers a tile, and
#: instructions of a far tile
BOUNDS = {
    (80, "t5"): {
        "forward": (2, 684, 195, 2, 623),
        "backward_queries": (3, 341, 136, 10, 265),
        "backward_keys": (4, 996, 255, 5, 952),
    },
    (80, "bias"): {
        "forward": (2, 736, 175, 2, 0),
        "backward_queries": (3, 791, 240, 2, 0),
        "backward_keys": (4, 1021, 255, 5, 0),
        "backward_bias": (2, 770, 255, 4, 0),
    },
    (80, "shaw, k=16"): {
        "forward": (2, 445, 205, 13, 292),
        "backward_keys": (6, 551, 239, 13, 446),
        "backward_queries": (3, 650, 246, 14, 260),
        "backward_rows A": (2, 90, 104, 2, 0),
    },
    (80, "m4, k=32"): {
        "forward": (5, 590, 246, 17, 371),
        "backward_queries": (7, 676, 255, 14, 338),
        "backward_keys": (8, 856, 255, 16, 494),
        "backward_tables A": (1, 83, 80, 3, 0),
        "backward_tables C": (1, 83, 80, 3, 0),
    },
    (80, "m4"): {
        "forward": (5, 591, 234, 17, 0),
        "backward_queries": (7, 704, 255, 14, 0),
        "backward_keys": (8, 885, 255, 16, 0),
        "backward_tables A": (1, 89, 80, 3, 0),
        "backward_tables C": (1, 89, 80, 3, 0),
    },
    (90, "none"): {
        "forward": (None, 582, 136, 2, 0),
        "backward_queries": (None, 552, 171, 2, 0),
        "backward_keys": (None, 732, 237, 5, 0),
    },
    (90, "t5"): {
        "forward": (None, 637, 158, 2, 567),
        "backward_queries": (None, 1047, 255, 10, 620),
        "backward_keys": (None, 799, 255, 5, 744),
    },
    (90, "shaw, k=16"): {
        "forward": (None, 949, 212, 3, 622),
        "backward_keys": (None, 1144, 255, 9, 829),
        "backward_queries": (None, 1584, 255, 4, 632),
        "backward_rows A": (None, 121, 80, 2, 0),
    },
    (90, "m4, k=32"): {
        "forward": (None, 589, 227, 17, 368),
        "backward_queries": (None, 646, 255, 14, 337),
        "backward_keys": (None, 829, 255, 16, 473),
        "backward_tables A": (None, 79, 70, 3, 0),
        "backward_tables C": (None, 79, 70, 3, 0),
    },
    (90, "m4, k=32, 1,024 tokens"): {
        "forward": (None, 1500, 255, 17, 770),
        "backward_queries": (None, 2550, 255, 26, 880),
        "backward_keys": (None, 2850, 255, 32, 1190),
        "backward_tables A": (None, 110, 80, 3, 0),
        "backward_tables C": (None, 110, 80, 3, 0),
    },
    (90, "m4"): {
        "forward": (None, 593, 226, 17, 0),
        "backward_queries": (None, 682, 255, 14, 0),
        "backward_keys": (None, 860, 255, 16, 0),
        "backward_tables A": (None, 83, 78, 3, 0),
        "backward_tables C": (None, 83, 78, 3, 0),
    },
}
#: far tiles: instructions, times those of attention without positions in tiles of the same size
FAR = 1.15


@pytest.mark.parametrize("capability", [80, 90])
def test_no_kernel_exceeds_its_budget(tmp_path, capability):
    forms = [form for number, form in BOUNDS if number == capability]
    gpu = {"capability": capability, "kib": KIB[capability]}
    long = {"queries": 1024, "keys": 1024}
    cases = ({"form": form, **gpu, **(long if form.endswith("1,024 tokens") else {})} for form in forms)
    found = compiled(tmp_path, *cases)
    assert len(found) == sum(len(BOUNDS[capability, form]) for form in forms)
    content = {(x["kernel"], x["M"]): x["instructions"] for x in found if x["form"] == "none"}
    for kernel in found:
        products, *bounds, far_bound = BOUNDS[capability, kernel["form"]][kernel["kernel"]]
        far = kernel["far"] or {"instructions": 0, "local": 0}
        assert kernel["products"] == products, kernel
        assert kernel["shared"] <= KIB[capability] * 1024, kernel
        for name, bound in zip(("instructions", "registers", "barriers"), bounds, strict=True):
            assert kernel[name] <= bound, (name, bound, kernel)
        if kernel["form"].endswith("1,024 tokens"):
            # tiles of 64 with key rows lack registers, so they serve where few are near
            assert far["instructions"] <= far_bound and kernel["local"] <= 200 and far["local"] <= 10, kernel
        else:
            content_bound = FAR * content.get((kernel["kernel"], kernel["M"]), 1e9)
            assert far["instructions"] <= min(far_bound, content_bound), kernel
            assert kernel["local"] == far["local"] == 0, kernel  # registers suffice
        if kernel["far"] and capability == 80:
            assert far["products"] == PRODUCTS[kernel["kernel"]], kernel
