"""--randomized-positions: random positions in training, the tokens' own in evaluation (Ruoss et al. 2023)."""

import pytest
import torch
from small_models import language_model, roberta, sentences

from fairseq_relpos.encodings import names_for
from fairseq_relpos.once import log_once
from fairseq_relpos.positions import random_positions

SPAN = 40
PADS = torch.tensor([[False] * 6, [False] * 4 + [True] * 2, [True] * 3 + [False] * 3])


def test_positions_of_a_sample_rise_and_every_choice_is_equally_likely():
    torch.manual_seed(0)
    seen = torch.zeros(3, 8)
    for _ in range(2000):
        ids = random_positions(PADS, 8)
        for row, (positions, pads) in enumerate(zip(ids, PADS)):
            real = positions[~pads]
            assert (real.diff() > 0).all() and real.min() >= 0 and real.max() < 8
            seen[row, real] += 1
    share = seen / 2000
    assert (share - torch.tensor([[6.0], [4.0], [3.0]]) / 8).abs().max() < 0.05


@pytest.mark.parametrize("name", ["learned", "sinusoidal", "t5", "tupe_r", "shaw", "rope", "fire"])
def test_training_is_at_random_positions_and_evaluation_at_the_tokens_own(name):
    settings = {"max_positions": SPAN, "dropout": 0, "attention_dropout": 0, "activation_dropout": 0}
    model, plain = (roberta(f"roberta_{name}", **settings, **more) for more in ({"randomized_positions": SPAN}, {}))
    plain.load_state_dict(model.state_dict())
    tokens = sentences()
    pads = tokens.eq(model.encoder.dictionary.pad())
    torch.manual_seed(3)
    out = model.train()(tokens)[0]
    torch.manual_seed(3)
    expected = plain.train()(tokens, position_ids=random_positions(pads, SPAN, first_at_0=name == "tupe_r"))[0]
    torch.testing.assert_close(out, expected)
    assert not torch.allclose(out, plain(tokens)[0], atol=1e-6)
    assert torch.equal(model.eval()(tokens)[0], plain.eval()(tokens)[0])


@pytest.mark.parametrize("name", ["tupe_r", "m4_reset"])
def test_cls_is_treated_apart_in_training_as_in_evaluation(name):
    model = roberta(f"roberta_{name}", max_positions=SPAN, randomized_positions=SPAN).train()
    tokens = sentences()
    for _ in range(5):
        model(tokens)
        cls_BS = model.encoder.sentence_encoder.embed_positions.current_pass.positions.cls_BS()
        assert torch.equal(cls_BS, tokens.eq(0))


def test_what_cannot_be_is_one_line():
    tokens = sentences()
    with pytest.raises(ValueError, match=f"--randomized-positions 2: a sample has {tokens.size(1)} tokens"):
        roberta("roberta_t5", randomized_positions=2).train()(tokens)
    with pytest.raises(ValueError, match="--randomized-positions 0"):
        roberta("roberta_t5", randomized_positions=0)
    with pytest.raises(ValueError, match="--randomized-positions: a sequence of 99 tokens.*--max-positions 99"):
        roberta("roberta_learned", randomized_positions=99)
    with pytest.raises(ValueError, match="--randomized-positions: at5 with length=input"):
        roberta("roberta_at5", randomized_positions=30, position_hparams="length=input").train()(tokens)
    with pytest.raises(ValueError, match="positions or documents of its own"):
        model = roberta("roberta_t5", randomized_positions=30).train()
        model(tokens, document_ids=torch.zeros_like(tokens))


@pytest.mark.parametrize("name", ["shaw", "m1", "m2", "m3", "m4", "m4m", "t5_nob", "at5"])
def test_tables_over_all_distances_cover_the_random_positions(name):
    model = roberta(f"roberta_{name}", max_positions=10, randomized_positions=SPAN)
    longer = roberta(f"roberta_{name}", max_positions=SPAN)
    longer.load_state_dict(model.state_dict())
    tokens = sentences()
    torch.testing.assert_close(model.eval()(tokens)[0], longer.eval()(tokens)[0])


@pytest.mark.parametrize("name", names_for(causal=True))
def test_a_stack_that_reads_no_positions_warns_once(name, caplog):
    log_once.cache_clear()
    model = language_model(f"transformer_lm_{name}", max_target_positions=SPAN, randomized_positions=SPAN).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():  # those of positions may be 0
            parameter.uniform_(0.1, 0.5)
            parameter.mul_(torch.rand_like(parameter))
        tokens = torch.arange(4, 10)[None]
        with model.decoder.embed_positions.given(torch.tensor([[0, 3, 9, 20, 31, 39]])):
            moved = model(tokens)[0]
        does_nothing = torch.allclose(moved, model(tokens)[0], rtol=0, atol=1e-6)
    warned = [record.message for record in caplog.records if "--randomized-positions does nothing" in record.message]
    assert len(warned) == does_nothing and does_nothing == (name in ("none", "cope", "fox", "path"))
