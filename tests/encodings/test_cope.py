"""CoPE against its equation in loops; where it is refused."""

import math

import pytest
import torch
from loops import CASES, check_against_loops, random_qk
from small_models import transformer

from fairseq_relpos.attention import RelPosMultiheadAttention
from fairseq_relpos.encodings import Dims, build
from fairseq_relpos.positions import Positions

DIMS = Dims(embed_dim=12, num_heads=3, max_len=9, causal=True)


@pytest.mark.parametrize("lengths, padding", CASES)
@pytest.mark.parametrize("npos_max", [64, 3])
@pytest.mark.parametrize(
    "options", [{}, {"heads": "each"}, {"scale_gates": False}, {"scale_positions": True}], ids=lambda x: " ".join(x)
)
def test_cope_counts_what_its_query_lets_through(options, npos_max, lengths, padding):
    encoding = build("cope", DIMS, npos_max=npos_max, **options)
    divided = 2 if options.get("scale_gates", True) else 1
    position_divided = 2 if options.get("scale_positions") else 1

    def oracle(q, k, head, i, j, sentence):
        p = sum(torch.sigmoid(q[i] @ k[t] / divided) for t in range(j, i + 1))
        p = p if p <= npos_max - 1 else torch.tensor(npos_max - 1.0)
        table = encoding.e[:, 4 * head : 4 * head + 4] if options.get("heads") == "each" else encoding.e
        low, high = math.floor(p.detach()), math.ceil(p.detach())
        e_p = (p - low) * table[high] + (1 - p + low) * table[low]
        return q[i] @ k[j] / 2 + q[i] @ e_p / position_divided

    check_against_loops(encoding, oracle, *lengths, padding, whole=True)


def test_as_it_starts_it_is_no_position_at_all():
    q, k = random_qk(DIMS, 7, 7)
    logits = [build(name, DIMS).double().logits(q, k, Positions.of(7, 7)) for name in ("cope", "none")]
    assert torch.equal(*logits)


def stacks_with_positions(model):
    return {name.split(".")[0] for name, x in model.named_modules() if isinstance(x, RelPosMultiheadAttention)}


def test_transformer_cope_is_cope_in_the_decoder_and_stock_fairseq_in_the_encoder():
    model = transformer("transformer_cope")
    assert stacks_with_positions(model) == {"decoder"}
    assert (model.args.position_encoding, model.args.position_stacks) == ("cope", "decoder")
    stock = transformer("transformer").encoder.state_dict()
    torch.testing.assert_close(model.encoder.state_dict(), stock, rtol=0, atol=0)
    again = transformer("transformer_cope", **{k: v for k, v in vars(model.args).items() if k != "arch"})
    assert vars(again.args) == vars(model.args)


def test_an_encoding_named_for_the_encoder_joins_it():
    model = transformer("transformer_cope", position_encoding="encoder=t5")
    assert stacks_with_positions(model) == {"encoder", "decoder"}
    assert model.args.position_encoding == "encoder=t5,decoder=cope"
    model = transformer("transformer_t5", position_encoding="decoder=cope")
    assert model.args.position_encoding == "encoder=t5,decoder=cope"
