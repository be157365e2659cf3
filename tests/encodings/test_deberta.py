"""DeBERTa's disentangled attention, and M4M's form of it, against Eq. 7 in loops."""

import math

import pytest
import torch
from loops import DIMS, LENGTHS, check_against_loops, clip

from fairseq_relpos.encodings import build
from fairseq_relpos.positions import Positions


def log_bucket(x, buckets, limit):
    middle = buckets // 2
    if abs(x) <= middle:
        return x
    distance = abs(x)
    far = math.log(distance / middle) / math.log((limit - 1) / middle) * (middle - 1)
    return int(math.copysign(middle + math.ceil(far), x))


def row(x, k, buckets=0):
    span = buckets or k
    x = log_bucket(x, buckets, k) if buckets else x
    return max(-span, min(span - 1, x)) + span


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(
    "hparams",
    [
        {},
        {"max_distance": 3},
        {"att": "c2p"},
        {"att": "p2c"},
        {"norm_table": True},
        {"p2c": "j-i"},
        {"max_distance": 8, "buckets": 4},
    ],
)
def test_content_meets_position_and_position_meets_content(hparams, lengths):
    encoding = build("deberta", DIMS, **hparams)
    d = DIMS.head_dim
    k, buckets = hparams.get("max_distance", 512), hparams.get("buckets", 0)
    terms = hparams.get("att", "c2p,p2c").split(",")

    def table(r):
        a = encoding.stack.a[r]
        if not hparams.get("norm_table"):
            return a
        norm = encoding.stack.layer_norm
        a = (a - a.mean()) / torch.sqrt(((a - a.mean()) ** 2).mean() + norm.eps)
        return a * norm.weight + norm.bias

    def oracle(q_i, k_j, head, i, j, sentence):
        here = slice(head * d, (head + 1) * d)
        e = q_i @ k_j
        if "c2p" in terms:
            e = e + q_i @ (encoding.w_r.weight[here] @ table(row(i - j, k, buckets)))
        if "p2c" in terms:
            x = j - i if hparams.get("p2c") == "j-i" else i - j
            w = encoding.w_t
            e = e + k_j @ (w.weight[here] @ table(row(x, k, buckets)) + w.bias[here])
        return e / math.sqrt((1 + len(terms)) * d)

    check_against_loops(encoding, oracle, *lengths)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_m4ms_form_has_one_small_table_for_all_heads(lengths):
    encoding = build("deberta", DIMS, variant="m4m")

    def oracle(q_i, k_j, head, i, j, sentence):
        a = encoding.a[clip(j - i, 8) + 8]
        parts = q_i @ k_j + q_i @ (encoding.w_r.weight @ a) + k_j @ (encoding.w_t.weight @ a)
        return parts / math.sqrt(12)

    check_against_loops(encoding, oracle, *lengths)


def test_shared_projections_are_the_layers_own():
    encoding = build("deberta", DIMS, share_att_key=True)
    q_proj, k_proj = torch.nn.Linear(8, 8).double(), torch.nn.Linear(8, 8).double()
    encoding.use_content_projections(q_proj, k_proj)
    assert [name for name, _ in encoding.named_parameters()] == ["stack.a"]

    def oracle(q_i, k_j, head, i, j, sentence):
        here = slice(head * 4, head * 4 + 4)
        a = encoding.stack.a[row(i - j, 512)]
        to_key = k_proj.weight[here] @ a + k_proj.bias[here]
        to_query = q_proj.weight[here] @ a + q_proj.bias[here]
        return (q_i @ k_j + q_i @ to_key + k_j @ to_query) / math.sqrt(12)

    check_against_loops(encoding, oracle, 7, 7)


@pytest.mark.parametrize("buckets, rows", [(0, 13), (8, 13), (4, 8)])
def test_no_more_rows_are_projected_than_a_sequence_reads(buckets, rows):
    encoding = build("deberta", DIMS, buckets=buckets)
    q, k = torch.randn(2, 1, 2, 7, DIMS.head_dim)
    terms = encoding.terms(q, k, Positions.of(7, 7))
    assert terms.A.size(1) == terms.C.size(1) == rows
