"""The attention module in a fairseq decoder: a causal stack with a cache."""

import pytest
import torch
from fairseq.modules import MultiheadAttention, SinusoidalPositionalEmbedding
from small_models import decoder

from fairseq_relpos.encodings import ENCODINGS

TOKENS = torch.tensor([[2, 7, 8, 9, 10, 11], [2, 12, 13, 14, 15, 16], [2, 8, 7, 9, 5, 6]])


@torch.no_grad()
@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_decoding_step_by_step_equals_the_full_pass_also_after_reordering(name):
    stack = decoder(name)
    order = torch.tensor([2, 0, 0])
    state = {}
    for step in range(1, 4):
        last = stack(TOKENS[:, :step], incremental_state=state)[0]
    stack.reorder_incremental_state_scripting(state, order)
    reordered = TOKENS[order]
    for step in range(4, 7):
        last = stack(reordered[:, :step], incremental_state=state)[0]
        full = stack(reordered[:, :step])[0]
        torch.testing.assert_close(last[:, -1], full[:, -1], atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_no_query_sees_the_future(name):
    stack = decoder(name)
    changed = TOKENS.clone()
    changed[:, 4:] = 20
    before, after = stack(TOKENS)[0], stack(changed)[0]
    torch.testing.assert_close(before[:, :4], after[:, :4], atol=1e-6, rtol=1e-6)
    assert not torch.allclose(before[:, 4:], after[:, 4:])


def test_a_sinusoidal_decoder_is_stock_fairseqs():
    torch.manual_seed(1)
    ours = decoder("sinusoidal")
    torch.manual_seed(1)
    stock = decoder("none")
    stock.embed_positions = SinusoidalPositionalEmbedding(24, padding_idx=1, init_size=64)
    for layer in stock.layers:
        layer.self_attn.__class__ = MultiheadAttention
    torch.testing.assert_close(ours(TOKENS)[0], stock(TOKENS)[0], atol=1e-6, rtol=1e-5)
