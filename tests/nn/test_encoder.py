"""RelPosEncoder, with torch alone."""

import copy

import pytest
import torch
from loops import inputs, pads, scale_up, scale_up_positions
from torch import nn

from fairseq_relpos.encodings import ENCODINGS, names_for
from fairseq_relpos.nn import Cache, RelPosEncoder
from fairseq_relpos.signature import SignatureMismatch

WIDTH, HEADS, LAYERS, LONGEST = 24, 3, 2, 32
BIDIRECTIONAL = names_for(causal=False)
# of each kind one: input, operands, shared bias, in each layer, projections of the layer
KINDS = ["learned", "sinusoidal", "bert_ad", "tupe_r", "kerple_log", "m4m", "deberta", "transformer_xl"]


def encoder(name="tupe_r", causal=False, seed=3, **settings):
    torch.manual_seed(seed)
    stack = RelPosEncoder(WIDTH, HEADS, LAYERS, name, LONGEST, causal, **{"ffn_dim": 48, **settings}).double()
    return scale_up_positions(stack).eval()


def take_weights(ours, stock, norms):
    """Gives the stack the weights of torch's."""
    state = ours.state_dict()
    for number, layer in enumerate(stock.layers):
        pairs = {"fc1": layer.linear1, "fc2": layer.linear2}
        pairs |= {name: getattr(layer, norm) for name, norm in norms.items()}
        attentions = {"self_attn": layer.self_attn, "encoder_attn": getattr(layer, "multihead_attn", None)}
        attentions = {name: attention for name, attention in attentions.items() if attention is not None}
        pairs |= {f"{name}.out_proj": attention.out_proj for name, attention in attentions.items()}
        for name, module in pairs.items():
            state |= {f"layers.{number}.{name}.{key}": value for key, value in module.state_dict().items()}
        for kind in ("weight", "bias"):
            for at, attention in attentions.items():
                for name, part in zip("qkv", getattr(attention, f"in_proj_{kind}").chunk(3)):
                    state[f"layers.{number}.{at}.{name}_proj.{kind}"] = part
    if stock.norm is not None:
        state |= {"layer_norm.weight": stock.norm.weight, "layer_norm.bias": stock.norm.bias}
    ours.load_state_dict(state)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_without_positions_it_is_torchs_transformer_encoder(norm_first, activation):
    layer = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 48, 0.0, activation, batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    last = nn.LayerNorm(WIDTH, dtype=torch.float64) if norm_first else None
    stock = nn.TransformerEncoder(layer, LAYERS, last, enable_nested_tensor=False)
    scale_up(stock, 0.3)
    ours = encoder("none", norm_first=norm_first, activation=activation)
    take_weights(ours, stock, {"self_attn_layer_norm": "norm1", "final_layer_norm": "norm2"})
    x, padding = inputs(), pads()
    wanted = stock(x, src_key_padding_mask=padding)
    torch.testing.assert_close(ours(x, padding)[~padding], wanted[~padding])


@pytest.mark.parametrize("name", BIDIRECTIONAL)
def test_what_stands_at_pads_and_how_many_there_are_changes_nothing(name):
    stack, x, padding = encoder(name), inputs(), pads()
    wanted = stack(x, padding)
    others = torch.where(padding[..., None], inputs(), x)
    torch.testing.assert_close(stack(others, padding)[~padding], wanted[~padding])
    torch.testing.assert_close(stack(x[1:, :6])[0], wanted[1, :6])


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_decoding_with_a_cache_is_the_full_pass(name, norm_first):
    stack = encoder(name, causal=True, norm_first=norm_first)
    x, padding = inputs(3, 11), pads(3, 11, left=norm_first)
    full = stack(x, padding)
    cache, found, start, order = Cache(), [], 0, torch.arange(3)
    for end in (4, 5, 8, 9, 10, 11):
        step = slice(start, end)
        found.append(stack(x[order, step], padding[order, step], cache=cache))
        if end == 8:  # as beam search
            order = torch.tensor([1, 2, 0])
            cache.reorder(order)
            found = [part[order] for part in found]
        start = end
    real = ~padding[order]
    torch.testing.assert_close(torch.cat(found, 1)[real], full[order][real], atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", ["t5", "rope", "path"])
def test_a_copied_cache_continues_the_same_prefix(name):
    stack, x, cache = encoder(name, causal=True), inputs(2, 6), Cache()
    stack(x[:, :4], cache=cache)
    for kept in (copy.deepcopy(cache), cache):
        found = [stack(part, cache=kept) for part in x[:, 4:].split(1, dim=1)]
        torch.testing.assert_close(torch.cat(found, 1), stack(x)[:, 4:], atol=1e-10, rtol=0)


def test_ids_of_one_row_are_those_of_every_sentence_of_a_cache():
    stack = encoder("rope", causal=True)
    x, ids, order, cache = inputs(3, 5), 2 * torch.arange(5)[None], torch.tensor([2, 0, 0]), Cache()
    stack(x[:, :4], position_ids=ids[:, :4], cache=cache)
    cache.reorder(order)
    found = stack(x[order, 4:], position_ids=ids[:, 4:], cache=cache)
    torch.testing.assert_close(found, stack(x[order], position_ids=ids)[:, 4:], atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", BIDIRECTIONAL)
def test_packed_documents_are_as_each_alone(name):
    stack, x = encoder(name), inputs(1, 12)
    documents = torch.tensor([[4] * 5 + [9] * 7])
    found = stack(x, document_ids=documents)[0]
    for part in (slice(0, 5), slice(5, 12)):
        torch.testing.assert_close(found[part], stack(x[:, part])[0], atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("how", ["checkpoint_activations", "unpad"])
def test_other_ways_to_run_the_layers_give_the_same_outputs_and_gradients(name, how):
    plain = encoder(name, dropout=0.0, attention_dropout=0.0).train()
    other = encoder(name, dropout=0.0, attention_dropout=0.0, **{how: True}).train()
    x, padding = inputs(), pads()
    if how == "checkpoint_activations":
        other(inputs(3, 5))  # another pass in between
    weights = inputs() * ~padding[..., None]
    results = []
    for stack in (plain, other):
        out = stack(x, padding)
        stack(inputs(1, 4))
        loss = (weights * out).sum()
        grads = torch.autograd.grad(loss, list(stack.parameters()), allow_unused=True)
        results.append([out[~padding], *(g for g in grads if g is not None)])
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted)


def test_hooks_of_a_layers_attention_are_called():
    stack, x, seen = encoder("t5"), inputs(), []
    for layer in stack.layers:
        layer.self_attn.register_forward_hook(lambda module, args, out: seen.append(out[0].transpose(0, 1)))
    stack(x)
    assert [out.shape for out in seen] == [x.shape] * LAYERS


def test_states_are_those_between_the_layers():
    stack, x, padding = encoder(norm_first=True, layernorm_embedding=True), inputs(), pads()
    states = stack.states(x, padding, need_weights=True)
    torch.testing.assert_close(states.output, stack(x, padding))
    assert len(states.hidden) == LAYERS + 1 and states.hidden[0].shape == x.shape
    torch.testing.assert_close(stack.layer_norm(states.hidden[-1]), states.output)
    assert [w.shape for w in states.weights] == [(2, HEADS, 9, 9)] * LAYERS
    assert states.weights[0][1, :, :, -3:].eq(0).all()
    assert stack.states(x).weights == [None, None]


@pytest.mark.parametrize("norm_first", [False, True])
def test_with_memory_dim_it_is_torchs_transformer_decoder_also_step_by_step(norm_first):
    layer = nn.TransformerDecoderLayer(
        WIDTH, HEADS, 48, 0.0, "relu", batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    last = nn.LayerNorm(WIDTH, dtype=torch.float64) if norm_first else None
    stock = nn.TransformerDecoder(layer, LAYERS, last).eval()
    scale_up(stock, 0.3)
    ours = encoder("none", causal=True, norm_first=norm_first, activation="relu", memory_dim=WIDTH)
    norms = {"self_attn_layer_norm": "norm1", "encoder_attn_layer_norm": "norm2", "final_layer_norm": "norm3"}
    take_weights(ours, stock, norms)
    x, memory, padding = inputs(), inputs(length=5), pads(length=5)
    future = torch.ones(9, 9, dtype=torch.bool).triu(1)
    wanted = stock(x, memory, tgt_mask=future, memory_key_padding_mask=padding)
    torch.testing.assert_close(ours(x, memory=memory, memory_key_padding_mask=padding), wanted)
    weights = ours.states(x, memory=memory, memory_key_padding_mask=padding, need_weights=True).memory_weights
    assert [w.shape for w in weights] == [(2, HEADS, 9, 5)] * LAYERS and weights[0][1, :, :, -3:].eq(0).all()
    cache = Cache()
    first = ours(x[:, :4], cache=cache, memory=memory, memory_key_padding_mask=padding)
    cache.reorder([1, 0])  # what the first step has kept of the memory changes places, too
    steps = [ours(x.flip(0)[:, i : i + 1], cache=cache).flip(0) for i in range(4, 9)]
    torch.testing.assert_close(torch.cat([first, *steps], 1), wanted)


def test_a_memory_of_another_size_is_kept_apart_from_the_stack():
    stack, x = encoder(causal=True, memory_dim=8), inputs()
    assert stack(x, memory=torch.randn(2, 5, 8, dtype=torch.float64)).shape == x.shape
    for given, what in {
        (2, 5, WIDTH): r"memory of shape \(2, 5, 24\): give \[batch, length, memory_dim\], \[2, length, 8\] here",
        (1, 5, 8): r"memory of shape \(1, 5, 8\)",
    }.items():
        with pytest.raises(ValueError, match=what):
            stack(x, memory=torch.randn(given, dtype=torch.float64))
    with pytest.raises(ValueError, match="give memory"):
        stack(x)
    with pytest.raises(ValueError, match="build them with memory_dim"):
        encoder()(x, memory=x)
    with pytest.raises(ValueError, match="unpad is for layers without memory_dim"):
        encoder(memory_dim=8, unpad=True)


@pytest.mark.parametrize("which", ["dropout", "attention_dropout"])
def test_where_all_is_dropped_in_training_no_memory_makes_a_difference(which):
    stack = encoder("none", causal=True, memory_dim=WIDTH, **{"dropout": 0.0, "attention_dropout": 0.0, which: 1.0})
    x, memories = inputs(), [inputs(length=5) for _ in range(2)]
    assert not torch.allclose(*(stack(x, memory=memory) for memory in memories))
    assert torch.equal(*(stack.train()(x, memory=memory) for memory in memories))


@pytest.mark.parametrize("name", ["none", "t5", "m4"])
def test_a_mask_of_the_caller_holds_in_every_layer_and_step(name):
    x, padding = inputs(), pads()
    far = (torch.arange(9) - torch.arange(9)[:, None]).abs() > 2
    added = torch.zeros(2 * HEADS, 9, 9, dtype=torch.float64).masked_fill(far, -torch.inf)
    for causal in (False, True):
        stack, wanted = encoder(name, causal), encoder(name, causal, window=2)(x, padding)
        for mask in (far, added):
            torch.testing.assert_close(stack(x, padding, mask)[~padding], wanted[~padding])
        assert not torch.allclose(stack(x, padding)[~padding], wanted[~padding])
    cache = Cache()
    steps = [stack(x[:, [t]], padding[:, [t]], far[[t], : t + 1], cache=cache) for t in range(9)]
    torch.testing.assert_close(torch.cat(steps, 1)[~padding], wanted[~padding])


def test_settings_reach_the_layers():
    stack = encoder(has_cls=False, backend="lean", layer_norm_eps=1e-3, layernorm_embedding=True, norm_first=True)
    assert not stack.reads_cls and {layer.self_attn.backend.name for layer in stack.layers} == {"lean"}
    norms = {name: x.eps for name, x in stack.named_modules() if isinstance(x, nn.LayerNorm)}
    assert norms.pop("embed_positions.layer_norm") == 1e-5  # the encoding's own
    assert len(norms) == 2 * LAYERS + 2 and set(norms.values()) == {1e-3}


def test_recomputed_layers_enter_nothing_into_a_cache_again():
    rates = {"dropout": 0.0, "attention_dropout": 0.0}
    stack, x, cache = encoder("rope", causal=True, checkpoint_activations=True, **rates).train(), inputs(), Cache()
    whole = stack(x)
    found = torch.cat([stack(part, cache=cache) for part in (x[:, :4], x[:, 4:])], 1)
    torch.testing.assert_close(found, whole)
    found.sum().backward()


@pytest.mark.parametrize("name", KINDS)
def test_copies_and_loaded_weights_compute_the_same(name, tmp_path):
    stack, x = encoder(name), inputs()
    torch.save(stack.state_dict(), tmp_path / "weights.pt")
    again = encoder(name, seed=4)
    again.load_state_dict(torch.load(tmp_path / "weights.pt"))
    for other in (copy.deepcopy(stack), again):
        assert torch.equal(other(x), stack(x))


@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_a_module_made_without_memory_gets_all_that_it_needs_from_its_weights(name):
    source = encoder(name, causal=name not in BIDIRECTIONAL).float()
    with torch.device("meta"):
        stack = RelPosEncoder(WIDTH, HEADS, LAYERS, name, LONGEST, causal=name not in BIDIRECTIONAL, ffn_dim=48).eval()
    stack.load_state_dict(source.state_dict(), assign=True)
    x = inputs().float()
    assert torch.equal(stack.to("cpu")(x), source(x))
    assert torch.equal(stack.double()(x.double()), source.double()(x.double()))


def test_a_module_made_without_memory_has_settings_of_single_layers():
    with torch.device("meta"):
        stack = RelPosEncoder(WIDTH, HEADS, LAYERS, "transformer_xl", hparams={"layer.2.clamp": 5})
    assert [layer.self_attn.position_encoding.clamp for layer in stack.layers][:2] == [None, 5]
    with torch.device("meta"), pytest.raises(ValueError, match="num_buckets of t5 cannot differ from layer to layer"):
        RelPosEncoder(WIDTH, HEADS, LAYERS, "t5", hparams={"layer.2.num_buckets": 8})


def test_weights_of_another_encoding_are_refused_also_where_they_fit():
    with pytest.raises(SignatureMismatch, match="pe:sinusoidal.*asked for .pe:alibi"):
        encoder("alibi").load_state_dict(encoder("sinusoidal").state_dict())
    with pytest.raises(SignatureMismatch, match="layers:first.*layers:all"):
        encoder("tupe_r").load_state_dict(encoder("tupe_r", position_layers="first").state_dict())
    encoder("tupe_r").load_state_dict(encoder("tupe_r", position_layers=f"1-{LAYERS}").state_dict())


@pytest.mark.slow
def test_torch_compile_gives_the_same_results_and_gradients():
    stack, x, padding = encoder("tupe_r"), inputs(), pads()
    compiled = torch.compile(stack, backend="aot_eager")
    wanted, found = stack(x, padding), compiled(x, padding)
    torch.testing.assert_close(found, wanted)
    parameters = list(stack.parameters())
    for a, b in zip(*(torch.autograd.grad(out.sum(), parameters, allow_unused=True) for out in (found, wanted))):
        assert a is b is None or torch.allclose(a, b)


WRONG = {
    "activation": ({"activation": "swoosh"}, "'swoosh' is not known: give gelu, relu"),
    "position_layers": ({"position_layers": "3"}, "position_layers '3' names no layer of 1 to 2"),
    "window": ({"window": 0}, "window 0: give a number of tokens, 1 or more"),
    "windows": ({"window": "4 3=none"}, "window '3' names no layer of 1 to 2"),
    "layer's hparams": ({"hparams": {"layer.3.cls": "first"}}, "layer.3.cls=first: '3' names no layer of 1 to 2"),
    "hparams": ({"hparams": {"rows": 3}}, "tupe_r has no rows; it accepts num_buckets"),
    "backend": ({"backend": "flash"}, "'flash' is not known"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_settings_are_one_line_that_says_what_is_accepted(case):
    settings, message = WRONG[case]
    with pytest.raises(ValueError, match=message) as error:
        encoder(**settings)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="num_layers=0: give 1 or more"):
        RelPosEncoder(WIDTH, HEADS, 0)


def test_pads_between_tokens_are_refused_unless_ids_say_where_the_tokens_are():
    module, x = encoder("rope", causal=True), inputs(2, 6)
    between = torch.tensor([[False, False, True, True, False, False], [True, True, False, False, False, True]])
    with pytest.raises(ValueError, match="pads between tokens.*position_ids"):
        module(x, between)
    ids = torch.tensor([[0, 1, 1, 1, 2, 3]])
    alone = module(x[:1, ~between[0]])
    torch.testing.assert_close(module(x[:1], between[:1], position_ids=ids)[:, ~between[0]], alone)
    cache = Cache()
    module(x[:, :3], torch.tensor([[False, False, True], [True, False, False]]), cache=cache)
    with pytest.raises(ValueError, match="pads between tokens.*position_ids"):  # the prompt was padded on the right
        module(x[:, 3:4], cache=cache)


def test_unpadded_pads_come_out_as_zero_after_the_last_norm_too():
    module = encoder("t5", norm_first=True, unpad=True)
    nn.init.constant_(module.layer_norm.bias, 0.7)
    padding = pads()
    assert module(inputs(), padding)[padding].eq(0).all()
