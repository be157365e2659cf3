"""Settings that differ from layer to layer: hyperparameters, layers without positions, and windows of attention."""

import contextlib
from functools import partial

import pytest
import torch
from loops import scale_up
from small_models import language_model, roberta, sentences, stack_of, transformer, translation_batch

from fairseq_relpos.layer_numbers import parse_layers, parse_windows
from fairseq_relpos.nn import RelPosEncoder
from fairseq_relpos.signature import KEY, SignatureMismatch, to_bytes, to_text


def parts_of(stack):
    return [layer.self_attn.position_encoding for layer in stack.layers]


# --- which layers ---


@pytest.mark.parametrize(
    "text, numbers",
    [
        ("all", [1, 2, 3, 4, 5, 6]),
        ("first", [1]),
        ("2, 1", [1, 2]),
        ("1,4-5", [1, 4, 5]),
        ("every.3", [3, 6]),
        ("not.every.4", [1, 2, 3, 5, 6]),
        ("not.2-6", [1]),
    ],
)
def test_a_pattern_names_layers(text, numbers):
    assert parse_layers(text, 6) == numbers


def test_patterns_of_the_same_layers_have_one_signature_and_files_with_others_load():
    """Files from before the canonical form have the pattern as it was given."""
    signed = {
        text: stack_of(roberta("roberta_rope", position_layers=text)).embed_positions.signature.rpartition("|")[2]
        for text in ("all", "1-3", "1,2,3", "first", "not.2-3", "1,3", "not.every.2")
    }
    assert [*signed.values()] == ["layers:all"] * 3 + ["layers:first"] * 2 + ["layers:1,3"] * 2
    model = roberta("roberta_rope", position_layers="1,3")
    weights = model.state_dict()
    (key,) = (name for name in weights if name.endswith(KEY))
    for written, fits in (("not.every.2", True), ("1, 3", True), ("1-2", False), ("4", False), ("", False)):
        old = {**weights, key: to_bytes(to_text(weights[key]).replace("layers:1,3", f"layers:{written}"))}
        with contextlib.nullcontext() if fits else pytest.raises(SignatureMismatch, match="layers:1,3"):
            model.load_state_dict(old)


@pytest.mark.parametrize("text", ["", "0", "7", "5-7", "3-2", "every.0", "every.7", "every.", "not.all", "not.9", "x"])
def test_a_pattern_that_names_none_or_one_too_many_is_one_line(text):
    with pytest.raises(ValueError, match=r"^--position-layers .* of 1 to 6: give [^\n]*every\.N[^\n]*$"):
        parse_layers(text, 6)


def test_of_two_windows_for_a_layer_the_later_one_counts():
    assert parse_windows("128 every.3=none layer.5-6=9 3=2", 6) == [128, 128, 2, 128, 9, 9]
    assert parse_windows("128;every.2=none", 2) == parse_windows("128 every.2=none", 2) == [128, None]
    assert parse_windows(7, 2) == [7, 7] and parse_windows("", 2) == parse_windows(None, 2) == [None, None]


# --- hyperparameters ---


def test_layers_have_hyperparameters_of_their_own_which_are_saved_and_signed():
    model = roberta("roberta_rope", position_hparams="base=100 every.2.base=70 layer.3.fraction=0.5")
    assert [part.hparams["base"] for part in parts_of(stack_of(model))] == [100, 70, 100]
    assert [part.hparams["fraction"] for part in parts_of(stack_of(model))] == [1, 1, 0.5]
    saved = model.args.position_hparams
    assert saved.endswith(" layer.2.base=70 layer.3.fraction=0.5") and "base=100 " in saved
    again = roberta("roberta_rope", position_hparams=saved)
    again.load_state_dict(model.state_dict())
    assert again.args.position_hparams == saved
    tokens = sentences()
    assert torch.equal(again.eval()(tokens)[0], model.eval()(tokens)[0])
    with pytest.raises(SignatureMismatch, match=r"layer\.2\.base:70\|layer\.3\.fraction:0\.5\|layers:all\], asked for"):
        roberta("roberta_rope", position_hparams="base=100").load_state_dict(model.state_dict())


def test_they_compute_what_the_hyperparameter_says():
    """Two layers of one base, one of another: layer by layer the attention of a model that has it everywhere."""
    mixed = roberta("roberta_rope", position_hparams="layer.2.base=70")
    for number, base in enumerate((10000, 70, 10000)):
        plain = roberta("roberta_rope", position_hparams=f"base={base}")
        layers = []
        for model in (mixed, plain):
            stack = stack_of(model).eval()
            stack.embed_positions(sentences())
            x_TBE = torch.randn(17, 3, 24, generator=torch.Generator().manual_seed(1))
            layers.append(stack.layers[number].self_attn(x_TBE, x_TBE, x_TBE)[0])
        assert torch.equal(*layers)


def test_tables_may_have_another_size_in_each_layer():
    model = roberta("roberta_shaw", position_hparams="max_distance=3 layer.1,3.max_distance=5 2.max_distance=4")
    assert [part.rows.count for part in parts_of(stack_of(model))] == [11, 9, 11]
    assert model.args.position_hparams.endswith("layer.1,3.max_distance=5 layer.2.max_distance=4")


def test_each_stack_has_layers_of_its_own():
    text = "layer.2.base=50 encoder.base=7 decoder.every.2.base=9"
    model = transformer("transformer_rope", position_hparams=text)
    bases = [[part.hparams["base"] for part in parts_of(stack)] for stack in (model.encoder, model.decoder)]
    assert bases == [[7, 50], [10000, 9]]
    again = transformer("transformer_rope", position_hparams=model.args.position_hparams)
    again.load_state_dict(model.state_dict())


def test_what_all_layers_share_may_be_another_in_each_where_each_has_its_own():
    model = roberta("roberta_t5", position_hparams="per_layer=True layer.2.num_buckets=8")
    assert [part.stack.b.size(0) for part in parts_of(stack_of(model))] == [32, 8, 32]


# --- windows ---


@pytest.mark.parametrize("name", ["none", "learned", "t5", "shaw", "m4", "tupe_r", "rope", "fox"])
@pytest.mark.parametrize("window", ["2", "3 every.2=1 3=none"])
def test_windows_of_the_layers_are_a_plain_mask_in_each(name, window):
    """The plain stack of the same weights, whose layers get the mask as any caller's."""
    causal = name == "fox"
    settings = {"causal": causal, "dropout": 0.0, "attention_dropout": 0.0, "ffn_dim": 48}
    torch.manual_seed(1)
    found = scale_up(RelPosEncoder(24, 3, 3, name, 32, window=window, **settings)).double()
    torch.manual_seed(1)
    plain = scale_up(RelPosEncoder(24, 3, 3, name, 32, **settings)).double()
    plain.load_state_dict({k: v for k, v in found.state_dict().items() if "version" not in k}, strict=False)
    x = torch.randn(2, 11, 24, dtype=torch.float64)
    padding = torch.zeros(2, 11, dtype=torch.bool)
    padding[1, 8:] = True
    for layer, width in zip(plain.layers, parse_windows(window, 3)):
        far = [[width is not None and abs(j - i) > width for j in range(11)] for i in range(11)]

        def masked(attend, far_TS, y, pos, pads, attn_mask, *more):
            return attend(y, pos, pads, far_TS, *more)

        layer.self_attn.forward = partial(masked, layer.self_attn.forward, torch.tensor(far))
    outputs = [stack(x, padding)[~padding] for stack in (found, plain)]
    torch.testing.assert_close(*outputs, atol=1e-10, rtol=0)
    parameters = [list(stack.parameters()) for stack in (found, plain)]
    gradients = [
        torch.autograd.grad(out.square().sum(), mine, allow_unused=True) for out, mine in zip(outputs, parameters)
    ]
    for one, other in zip(*gradients, strict=True):
        assert one is other is None or (one - other).abs().max() <= 1e-10 * max(1, other.abs().max())


def test_each_stack_of_a_translation_model_may_have_a_window():
    source, lengths, previous = translation_batch()
    for arch, text, widths in (
        ("transformer_t5", "3", [[3, 3], [3, 3]]),
        ("bart_rope", "3 decoder.every.2=none", [[3, 3], [3, None]]),
        ("transformer_shaw", "encoder.layer.1=2", [[2, None], [None, None]]),
    ):
        model = transformer(arch, attention_window=text)
        stacks = model.encoder, model.decoder
        assert [[layer.self_attn.window for layer in stack.layers] for stack in stacks] == widths
        model(source, lengths, previous)
    with pytest.raises(ValueError, match="--attention-window decoder=3: the decoder is not among --position-stacks"):
        transformer("transformer_t5", position_stacks="encoder", attention_window="decoder=3")
    for text in ("decoder", "encoder="):
        with pytest.raises(ValueError, match=f"--attention-window {text}: give a number"):
            transformer("transformer_t5", attention_window=text)


def test_a_language_model_and_both_parts_of_an_electra_have_it():
    stack = language_model("transformer_lm_rope", attention_window="3 every.2=1").decoder
    assert [layer.self_attn.window for layer in stack.layers] == [3, 1]
    model = roberta("electra_t5", attention_window="2", encoder_attention_heads=3)
    for part in (model.discriminator, model.generator):
        assert [layer.self_attn.window for layer in stack_of(part).layers] == [2, 2, 2]


def test_a_checkpoint_with_another_window_is_refused():
    model = roberta("roberta_t5", attention_window="4 1=none")
    assert model.args.attention_window == "4 1=none"
    roberta("roberta_t5", attention_window="2-3=4").load_state_dict(model.state_dict())
    # also where the positions are fairseq's own
    windowed = transformer("transformer_sinusoidal", attention_window="decoder=3;encoder=2")
    with pytest.raises(SignatureMismatch, match="window:[23]"):
        transformer("transformer_sinusoidal").load_state_dict(windowed.state_dict())
    with pytest.raises(SignatureMismatch, match=r"layers:all\|window:none,4,4\], asked for .*layers:all\]"):
        roberta("roberta_t5").load_state_dict(model.state_dict())
    with pytest.raises(SignatureMismatch, match=r"window:4\]"):
        model.load_state_dict(roberta("roberta_t5", attention_window="4").state_dict())


def test_a_window_that_hides_nothing_changes_no_bit():
    tokens = sentences()
    models = [roberta("roberta_none", attention_window=window) for window in ("", "16", "15")]
    whole, wide, narrower = (model.eval()(tokens)[0] for model in models)
    assert torch.equal(whole, wide) and not torch.equal(whole, narrower)
