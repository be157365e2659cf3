"""Encodings that leave the logits alone, against s q.k in loops."""

import pytest
from loops import LENGTHS, check_against_loops

from fairseq_relpos.encodings import Dims, build


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("name", ["none", "learned", "sinusoidal", "shape"])
def test_attention_sees_content_only(name, lengths, causal):
    def oracle(q_i, k_j, head, i, j, sentence):
        return q_i @ k_j / 2

    check_against_loops(build(name, Dims(8, 2, 9, causal=causal)), oracle, *lengths)
