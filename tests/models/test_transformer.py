"""transformer_NAME inside fairseq: what must stay stock, what must be the encoding's."""

import copy

import pytest
import torch
from fairseq.checkpoint_utils import load_ema_from_checkpoint
from fairseq.dataclass.configs import EMAConfig
from fairseq.models.ema.ema import EMA
from loops import scale_up
from small_models import GIVEN, KINDS, gradients, model_of, sentences, transformer, translation_batch

from fairseq_relpos.attention import RelPosMultiheadAttention
from fairseq_relpos.encodings import ENCODINGS
from fairseq_relpos.signature import SignatureMismatch

NAMES = sorted(ENCODINGS)


def loss_of(model, batch, seed=3):
    torch.manual_seed(seed)
    logits = model(*batch)[0].float()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[2].roll(-1, 1).flatten())


def test_each_stack_can_have_its_own_encoding_and_hyperparameters():
    model = transformer(
        "transformer_none",
        position_encoding="encoder=t5,decoder=alibi",
        position_hparams="encoder.num_buckets=8 decoder.form=trained",
    )
    encoder, decoder = model.encoder.layers[0].self_attn, model.decoder.layers[0].self_attn
    assert encoder.position_encoding.hparams["num_buckets"] == 8
    assert decoder.position_encoding.hparams == {"form": "trained"}
    assert model.args.position_encoding == "encoder=t5,decoder=alibi"
    model = transformer("transformer_rope", position_encoding="decoder=alibi")
    assert model.args.position_encoding == "encoder=rope,decoder=alibi"
    model = transformer("transformer_t5", position_hparams="num_buckets=16 decoder.num_buckets=8")
    assert model.encoder.embed_positions.rows.count == 16
    assert model.decoder.embed_positions.rows.count == 8


def test_a_stack_that_is_left_out_is_stock_fairseq():
    model = transformer("transformer_t5", position_stacks="decoder", encoder_learned_pos=True)
    stock = transformer("transformer", encoder_learned_pos=True)
    assert type(model.encoder.embed_positions) is type(stock.encoder.embed_positions)
    assert not isinstance(model.encoder.layers[0].self_attn, RelPosMultiheadAttention)
    assert isinstance(model.decoder.layers[0].self_attn, RelPosMultiheadAttention)
    rebuilt = transformer("transformer_t5", **{k: v for k, v in vars(model.args).items() if k != "arch"})
    rebuilt.load_state_dict(model.state_dict())


def test_a_table_of_another_length_is_refused_with_the_flag_that_it_depends_on():
    longer = transformer("transformer_shaw", max_source_positions=48)
    with pytest.raises(SignatureMismatch, match="max_distance:31.*max_distance:47.*--max-...-positions"):
        longer.load_state_dict(transformer("transformer_shaw").state_dict())


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_a_file_of_another_encoding_is_refused_and_the_stack_named(stack):
    source = transformer("transformer_none", position_encoding=f"{stack}=m4").state_dict()
    for settings in (
        {"position_encoding": f"{stack}=m4m"},
        {"position_encoding": f"{stack}=learned"},
        {"position_stacks": "decoder" if stack == "encoder" else "encoder"},
    ):
        with pytest.raises(SignatureMismatch, match=rf"checkpoint's {stack} was trained with \[pe:m4\|"):
            transformer("transformer_none", **settings).load_state_dict(copy.deepcopy(source))


def test_layerdrop_leaves_no_layer_without_its_encoding():
    for seed in range(5):
        model = transformer("transformer_t5", seed, encoder_layerdrop=0.9, decoder_layerdrop=0.9)
        for stack in (model.encoder, model.decoder):
            kinds = {type(stack.layers[number].self_attn) for number in range(2)}
            assert kinds == {RelPosMultiheadAttention}


@pytest.mark.parametrize("family", ["transformer", "transformer_lm", "roberta"])
@torch.no_grad()
def test_a_model_keeps_some_of_its_trained_layers_and_is_rebuilt_from_its_settings(family):
    trained = scale_up(model_of(f"{family}_shaw", encoder_layers=3, decoder_layers=3)).eval()
    stacks = [name for name in ("encoder", "decoder") if hasattr(trained, name)]
    keep = {f"{stack}_layers_to_keep": "0,2" for stack in stacks}
    pruned = model_of(f"{family}_shaw", seed=2, encoder_layers=3, decoder_layers=3, **keep).eval()
    pruned.load_state_dict(copy.deepcopy(trained.state_dict()), model_cfg=pruned.args)
    saved = {name: value for name, value in vars(pruned.args).items() if name not in GIVEN}
    rebuilt = model_of(seed=3, **saved).eval()
    rebuilt.load_state_dict(pruned.state_dict())
    for name in stacks:
        stack = getattr(trained, name)
        stack = getattr(stack, "sentence_encoder", stack)
        del stack.layers[1]
        stack.num_layers = 2
    batch = translation_batch() if family == "transformer" else (sentences(),)
    for model in (pruned, rebuilt):
        assert torch.equal(model(*batch)[0], trained(*batch)[0])


def test_layers_that_are_kept_from_the_first_on_have_the_numbers_of_the_training():
    model = model_of("transformer_lfhc", encoder_layers_to_keep="1,0", decoder_layers_to_keep="0", position_layers="1")
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (2, 1)


def test_cls_first_unties_the_first_real_token_of_a_source():
    """Sources have no [CLS] of their own; the user may say that the first token is one."""
    plain = transformer("transformer_tupe_a")
    first = transformer("transformer_tupe_a", position_hparams="encoder.cls=first").eval()
    assert plain.encoder.embed_positions.untied is False
    batch = translation_batch()
    before = first(*batch)[0]
    part = first.encoder.embed_positions
    assert part.untied and part.extra == 1
    part.p.data[0] += 3  # theta_1 and theta_2 of the reset
    assert not torch.allclose(before, first(*batch)[0])
    with pytest.raises(ValueError, match="cls"):
        transformer("transformer_t5", position_hparams="cls=first")


@torch.no_grad()
@pytest.mark.parametrize("name", NAMES)
def test_the_side_of_the_padding_changes_no_translation(name):
    settings = {"position_hparams": "encoder.cls=first"} if name in ("tupe_a", "m4_reset") else {}
    model = transformer(f"transformer_{name}", **settings).eval()
    for stack in (model.encoder, model.decoder):
        scale_up(stack.embed_positions)
    source, lengths, previous = translation_batch()
    right = torch.full_like(source, 1)
    for row, sentence in enumerate(source):
        right[row, : lengths[row]] = sentence[sentence.ne(1)]
    left, right = model(source, lengths, previous)[0], model(right, lengths, previous)[0]
    torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("layerdrop", [0.0, 0.5])
def test_checkpointed_and_offloaded_activations_give_the_same_gradients(name, layerdrop):
    """Also with two forward passes before the backward, of different lengths."""
    results = []
    source, lengths, previous = translation_batch()
    for how in ({}, {"checkpoint_activations": True}, {"offload_activations": True}):
        model = transformer(
            f"transformer_{name}", encoder_layerdrop=layerdrop, decoder_layerdrop=layerdrop, dropout=0.1, **how
        ).train()
        shorter = (source[:2, 3:], lengths[:2], previous[:2, :5])
        (loss_of(model, (source, lengths, previous)) + loss_of(model, shorter)).backward()
        results.append(gradients(model))
    for recomputed in results[1:]:
        for key, grad in results[0].items():
            if grad is None:  # a dropped layer
                assert recomputed[key] is None, key
            else:
                torch.testing.assert_close(recomputed[key], grad, atol=1e-7, rtol=1e-5)


def test_offloading_saves_a_layers_input_outside_and_a_stock_stack_recomputes_too(monkeypatch):
    from torch.autograd import graph

    saved = []
    monkeypatch.setattr(
        "fairseq_relpos.layers.checkpointing.save_on_cpu",
        lambda: graph.saved_tensors_hooks(lambda tensor: saved.append(tensor.shape) or tensor, lambda tensor: tensor),
    )
    model = transformer("transformer_t5", offload_activations=True, position_stacks="decoder").train()
    loss_of(model, translation_batch()).backward()
    assert saved.count((7, 3, 24)) >= 2  # x of both decoder layers
    stock = transformer("transformer_t5", position_stacks="decoder").train()
    loss_of(stock, translation_batch()).backward()
    for key, grad in gradients(stock).items():
        torch.testing.assert_close(gradients(model)[key], grad, atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_stays_near_the_full_one(name):
    model = transformer(f"transformer_{name}").eval()
    expected = model(*translation_batch())[0]
    model = model.half()
    model.load_state_dict(copy.deepcopy(model.state_dict()))  # the signature survives
    found = model(*translation_batch())[0]
    assert found.dtype == torch.float16 and found.isfinite().all()
    assert (found.float() - expected).abs().max() / expected.abs().max() < 0.01


@pytest.mark.parametrize("name", KINDS)
def test_bf16_training_stays_finite_and_learns(name):
    """As fairseq's --bf16: the model in bf16, the optimizer on float32 copies."""
    model = transformer(f"transformer_{name}", encoder_layers=1, decoder_layers=1, dropout=0.0)
    model = model.bfloat16().train()
    parameters = list(model.parameters())
    masters = [p.detach().float().requires_grad_() for p in parameters]
    optimizer = torch.optim.Adam(masters, lr=0.01)
    losses = []
    for _ in range(100):
        loss = loss_of(model, translation_batch())
        loss.backward()
        for master, p in zip(masters, parameters):
            master.grad, p.grad = p.grad.float(), None
        torch.nn.utils.clip_grad_norm_(masters, 1.0, error_if_nonfinite=True)
        optimizer.step()
        with torch.no_grad():
            for master, p in zip(masters, parameters):
                p.copy_(master)
        losses.append(loss.item())
    assert all(p.isfinite().all() for p in masters)
    assert losses[-1] < 0.2 * losses[0]


@pytest.mark.parametrize("stack, flag", [("source", "--max-source-positions"), ("target", "--max-target-positions")])
def test_positions_that_end_are_named_with_the_flag_of_their_stack(stack, flag):
    trained = transformer("transformer_learned").state_dict()
    longer = transformer("transformer_learned", **{f"max_{stack}_positions": 48})
    message = f"positions end at 32, 48 are asked for .*use {flag} 32 and no longer input; train one"
    with pytest.raises(ValueError, match=message):
        longer.load_state_dict(trained, model_cfg=longer.args)
    model = transformer("transformer_learned")
    long = torch.full((1, 33), 5)
    tokens = (long, torch.tensor([33]), long[:, :4]) if stack == "source" else (long[:, :4], torch.tensor([4]), long)
    with pytest.raises(ValueError, match=f"33 tokens.*32 absolute positions: train with {flag} 33"):
        model(*tokens)


@pytest.mark.parametrize("arch", ["transformer", "transformer_rope"])
@pytest.mark.parametrize("fp32", [False, True])
def test_averaged_weights_keep_the_norm_after_the_last_layer(arch, fp32, tmp_path):
    settings = {"encoder_normalize_before": True, "decoder_normalize_before": True}
    model = transformer(arch, **settings).eval()
    ema = EMA(model, EMAConfig(ema_decay=0.5, ema_fp32=fp32))
    before = copy.deepcopy(dict(model.named_parameters()))
    for _ in range(2):
        for parameter in model.parameters():
            parameter.data.add_(1.0)
        ema.step(model)
    averaged = ema.get_model()
    for name, parameter in averaged.named_parameters():
        torch.testing.assert_close(parameter, before.pop(name) + 1.25)
    assert not before
    torch.save({"model": model.state_dict(), "extra_state": {"ema": averaged.state_dict()}}, tmp_path / "ema.pt")
    loaded = transformer(arch, seed=2, **settings).eval()
    loaded.load_state_dict(load_ema_from_checkpoint(str(tmp_path / "ema.pt"))["model"])
    batch = translation_batch()
    assert torch.equal(loaded(*batch)[0], averaged(*batch)[0])
