"""RelPosSelfAttention, with torch alone."""

import copy
import warnings

import pytest
import pythons
import torch
from loops import inputs, pads, scale_up
from torch import nn
from torch.nn.utils import prune

from fairseq_relpos.encodings import ENCODINGS, names_for
from fairseq_relpos.encodings.base import weights_of
from fairseq_relpos.nn import Cache, RelPosSelfAttention
from fairseq_relpos.positions import Positions
from fairseq_relpos.signature import SignatureMismatch

WIDTH, HEADS, LONGEST = 24, 3, 32
BIDIRECTIONAL = names_for(causal=False)


def attention(name, causal=False, **settings):
    module = RelPosSelfAttention(WIDTH, HEADS, name, LONGEST, causal, **settings)
    scale_up(module.position_encoding)
    return module.double().eval()


@pytest.fixture(autouse=True)
def without_warnings_of_the_input_part():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*positions to the input")
        yield


@pytest.mark.parametrize("name", BIDIRECTIONAL)
def test_output_and_weights_are_those_of_the_logits(name):
    module, x, padding = attention(name), inputs(), pads()
    q, k, v = (
        linear(x).view(2, 9, HEADS, -1).transpose(1, 2) for linear in (module.q_proj, module.k_proj, module.v_proj)
    )
    logits = module.position_encoding.logits(q, k, Positions.of(9, 9, padding))
    weights = logits.masked_fill(padding[:, None, None], -torch.inf).softmax(-1)
    wanted = module.out_proj((weights @ v).transpose(1, 2).flatten(2))
    out, found = module(x, key_padding_mask=padding, need_weights=True, average_attn_weights=False)
    torch.testing.assert_close(found, weights)
    torch.testing.assert_close(out, wanted)
    assert module(x)[1] is None
    assert module(x, need_weights=True)[1].shape == (2, 9, 9)


class Adapted(nn.Module):
    """A projection with an addend, as adapters make of it."""

    def __init__(self, before):
        super().__init__()
        self.before, self.more = before, nn.Linear(before.in_features, before.out_features, bias=False).double()
        self.weight, self.bias = before.weight, before.bias

    def forward(self, x):
        return self.before(x) + self.more(x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_an_adapter_of_projections_that_an_encoding_shares_is_the_merged_model(dtype):
    settings = {"max_len": 20, "hparams": {"share_att_key": True}}
    adapted, merged = (RelPosSelfAttention(24, 2, "deberta", **settings).to(dtype).eval() for _ in range(2))
    merged.load_state_dict(adapted.state_dict())
    for name in ("q_proj", "k_proj"):
        setattr(adapted, name, Adapted(getattr(adapted, name)).to(dtype))
        getattr(merged, name).weight.data += getattr(adapted, name).more.weight
    x = inputs(2, 7).to(dtype)
    exact = {"atol": 0.05, "rtol": 0.05} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(adapted(x)[0], merged(x)[0], **exact)


@pytest.mark.parametrize("name", ["bert_ad", "dape", "deberta", "fire", "gcdf", "transformer_xl", "tupe_r"])
def test_an_adapter_of_an_encodings_own_projections_is_the_merged_model(name):
    adapted, merged, x = attention(name), attention(name), inputs()
    merged.load_state_dict(adapted.state_dict())
    linears = [(key, x) for key, x in adapted.position_encoding.named_modules() if type(x) is nn.Linear]
    for key, linear in linears:
        owner, _, last = key.rpartition(".")
        setattr(adapted.position_encoding.get_submodule(owner), last, adapter := Adapted(linear))
        merged.position_encoding.get_submodule(key).weight.data += adapter.more.weight
    assert linears
    torch.testing.assert_close(adapted(x)[0], merged(x)[0])


def test_an_adapter_of_shared_projections_computes_under_autocast():
    module = RelPosSelfAttention(24, 2, "deberta", hparams={"share_att_key": True}).eval()
    module.q_proj, x = Adapted(module.q_proj).float(), inputs().float()
    with torch.autocast("cpu", torch.bfloat16):
        found, _ = module(x)
    torch.testing.assert_close(found.float(), module(x)[0], atol=0.05, rtol=0.05)


class Quantised(nn.Module):
    """A projection without parameters, whose weight is a method, as in torch's own quantised layers."""

    def __init__(self, before):
        super().__init__()
        self.kept = before.weight.detach(), None if before.bias is None else before.bias.detach()

    def weight(self):
        return self.kept[0]

    def forward(self, x):
        return nn.functional.linear(x, *self.kept)


class Packed(torch.Tensor):
    """A weight of an nn.Linear with which nothing can be done but its product, as torchao's."""

    def __tensor_flatten__(self):
        return [], None

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (torch.Tensor.mT.__get__, torch.Tensor.chunk):
            raise NotImplementedError(func)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def packed(linear):
    weight = linear.weight.detach().as_subclass(Packed)
    del linear.weight
    linear.weight = weight
    return linear


@pytest.mark.parametrize("name", ["dape", "fire", "transformer_xl", "tupe_r"])
@pytest.mark.parametrize("quantised", [Quantised, packed])
def test_quantised_projections_of_an_encoding_compute(name, quantised):
    module, x = attention(name).float(), inputs().float()
    wanted, _ = module(x)
    for owner in list(module.position_encoding.modules()):
        for key, linear in list(owner.named_children()):
            if type(linear) is nn.Linear:
                setattr(owner, key, quantised(linear))
    torch.testing.assert_close(module(x)[0], wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["dape", "deberta", "fire", "transformer_xl", "tupe_r"])
def test_pruned_projections_of_an_encoding_are_read_as_they_are(name):
    def pruned(seed):
        torch.manual_seed(seed)
        module = attention(name)
        for part in module.position_encoding.modules():
            if type(part) is nn.Linear:
                prune.random_unstructured(part, "weight", 0.5)
        return module

    one, other, x = pruned(1), pruned(2), inputs()
    for _ in range(2):
        one(x)[0].sum().backward()
    other.load_state_dict(one.state_dict())
    torch.testing.assert_close(other(x), one(x))


def test_an_attention_is_told_the_number_of_its_layer():
    x, module = inputs(), attention("lfhc", layer=2)
    other = attention("lfhc")
    other.load_state_dict(module.state_dict())
    assert module.position_encoding.dims.layer == 2 and not torch.equal(module(x)[0], other(x)[0])


def test_hyperparameters_as_the_command_line_has_them_are_refused():
    with pytest.raises(ValueError, match="give a dict"):
        RelPosSelfAttention(WIDTH, HEADS, "shaw", hparams="max_distance=64")


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_weights_are_on_the_device_of_a_quantised_projection(dtype):
    linear = nn.Linear(3, 4, bias=False, device="meta")
    linear.weight = nn.Parameter(linear.weight.detach().to(dtype), requires_grad=False)
    linear.__class__ = type("Bytes", (nn.Linear,), {"forward": lambda self, x: x @ self.weight.to(x.dtype).mT})
    weight, _ = weights_of(linear, 3)
    assert (weight.shape, weight.dtype, weight.device.type) == ((4, 3), torch.float32, "meta")


def test_a_cache_keeps_the_numbers_of_documents():
    module, x = attention("t5", causal=True), inputs()
    documents = torch.tensor([[5] * 4 + [6] * 5, [1] * 7 + [2] * 2])
    full, _ = module(x, document_ids=documents)
    torch.testing.assert_close(full[0, 4:], module(x[:1, 4:])[0][0])
    cache = Cache()
    steps = [module(x[:, [t]], document_ids=documents[:, [t]], cache=cache)[0] for t in range(9)]
    torch.testing.assert_close(torch.cat(steps, 1), full)
    with pytest.raises(ValueError, match="document_ids are given for some steps of this generation only"):
        module(x[:, :1], cache=cache)


@pytest.mark.parametrize("name", ["tupe_r", "deberta", "m4m", "rope"])
def test_no_token_sees_a_later_one_in_causal_attention(name):
    module, x = attention(name, causal=True), inputs()
    changed = torch.cat([x[:, :6], inputs(length=3)], 1)
    torch.testing.assert_close(module(x)[0][:, :6], module(changed)[0][:, :6])
    hidden = torch.ones(9, 9, dtype=torch.bool).triu(1)
    bidirectional = attention(name)
    torch.testing.assert_close(bidirectional(x, is_causal=True)[0], bidirectional(x, attn_mask=hidden)[0])


@pytest.mark.parametrize("length", [9, 70])
@pytest.mark.parametrize("name", ["none", "t5", "shaw"])
def test_causal_attention_heeds_another_mask_too(name, length):
    module = RelPosSelfAttention(WIDTH, HEADS, name, 80, causal=True).eval()
    x = inputs(length=length).float()
    offset = torch.arange(length) - torch.arange(length)[:, None]
    window = offset.abs() > 4
    found, _ = module(x, attn_mask=window)
    changed = torch.cat([inputs(length=1).float(), x[:, 1:]], 1)
    torch.testing.assert_close(module(changed, attn_mask=window)[0][:, 5:], found[:, 5:])
    torch.testing.assert_close(module(x, attn_mask=window | (offset > 0))[0], found)
    assert not torch.allclose(module(x)[0], found)


@pytest.mark.parametrize("name", ["none", "t5", "shaw"])
def test_a_window_hides_what_a_mask_hides(name):
    modules = []
    for window in (2, None):
        torch.manual_seed(1)
        modules.append(attention(name, window=window))
    x, far = inputs(), (torch.arange(9) - torch.arange(9)[:, None]).abs() > 2
    torch.testing.assert_close(modules[0](x)[0], modules[1](x, attn_mask=far)[0])
    assert not torch.allclose(modules[0](x)[0], modules[1](x)[0])


def test_other_settings_are_as_they_are_asked_for():
    module = RelPosSelfAttention(WIDTH, HEADS, "tupe_r", has_cls=False, bias=False, backend="lean")
    assert not module.position_encoding.reads_cls and module.backend.name == "lean"
    assert not [key for key in module.state_dict() if key.endswith("_proj.bias")]


def test_is_causal_leaves_a_mask_beside_it_in_force():
    module, x = attention("t5"), inputs()
    window = (torch.arange(9) - torch.arange(9)[:, None]).abs() > 2
    found, _ = module(x, attn_mask=window, is_causal=True)
    hidden = window | torch.ones(9, 9, dtype=torch.bool).triu(1)
    torch.testing.assert_close(found, module(x, attn_mask=hidden)[0])
    assert not torch.allclose(found, module(x, is_causal=True)[0])


def test_a_cache_says_that_it_belongs_to_other_sentences():
    module, x, cache = attention("t5", causal=True), inputs(3, 2), Cache()
    module(x, cache=cache)
    with pytest.raises(ValueError, match="2 sentences, but this cache has 3: "):
        module(x[:2], cache=cache)
    cache.reorder(torch.tensor([2, 0]))
    assert module(x[:2], cache=cache)[0].shape == (2, 2, WIDTH)


@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_a_batch_without_sentences_comes_back_as_it_is(name):
    module, ids = attention(name, causal=name not in BIDIRECTIONAL), torch.zeros(0, 9, dtype=torch.long)
    for given in ({}, {"document_ids": ids}, {"position_ids": ids}):
        assert module(inputs(0), **given)[0].shape == (0, 9, WIDTH)


@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_nan_stays_in_its_sentence_and_is_no_error(name):
    module, x = attention(name, causal=name not in BIDIRECTIONAL), inputs()
    x[0, 3, 0] = torch.nan
    out, _ = module(x)
    assert out[0, 3:].isnan().all() and out[1].isfinite().all()


def transformer_encoder(**settings):
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 48, batch_first=True, dropout=0.0, dtype=torch.float64, **settings)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def take_weights(module, stock):
    """Copies the projections of an nn.MultiheadAttention."""
    state = module.state_dict()
    for name, weight, bias in zip("qkv", stock.in_proj_weight.chunk(3), stock.in_proj_bias.chunk(3)):
        state[f"{name}_proj.weight"], state[f"{name}_proj.bias"] = weight, bias
    state["out_proj.weight"], state["out_proj.bias"] = stock.out_proj.weight, stock.out_proj.bias
    module.load_state_dict(state)
    return module


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("how", ["plain", "padded", "causal"])
def test_it_takes_the_place_of_the_attention_in_torchs_transformer_encoder(how, training):
    stock = transformer_encoder().train(training)
    ours = copy.deepcopy(stock)
    for layer in ours.layers:
        none = RelPosSelfAttention(WIDTH, HEADS, "none", LONGEST).double()
        layer.self_attn = take_weights(none, layer.self_attn)
    ours.train(training)
    x = inputs(length=8)
    given = {
        "plain": {},
        "padded": {"src_key_padding_mask": pads(length=8)},
        "causal": {"mask": nn.Transformer.generate_square_subsequent_mask(8, dtype=torch.float64), "is_causal": True},
    }[how]
    real = ~pads(length=8) if how == "padded" else ...
    torch.testing.assert_close(ours(x, **given)[real], stock(x, **given)[real])
    for layer in ours.layers:
        layer.self_attn = attention("shaw")
    assert not torch.allclose(ours(x, **given), stock(x, **given))


def test_a_layer_with_it_can_be_given_to_torchs_transformer_encoder():
    layer = nn.TransformerEncoderLayer(WIDTH, 2, batch_first=True, dtype=torch.float64)
    layer.self_attn = RelPosSelfAttention(WIDTH, 2, "shaw", LONGEST).double()
    with pytest.warns(UserWarning, match="self.use_nested_tensor is False"):
        model = nn.TransformerEncoder(layer, 2).eval()
    x, padding = inputs(), pads()
    with torch.no_grad():
        padded = model(x, src_key_padding_mask=padding)
        torch.testing.assert_close(padded[1, :6], model(x[1:, :6])[0])


def test_nested_tensors_are_refused():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 2, batch_first=True), 1).eval()
    model.layers[0].self_attn = RelPosSelfAttention(WIDTH, 2)
    x = torch.randn(2, 9, WIDTH)
    with torch.no_grad(), pytest.raises(RuntimeError, match="enable_nested_tensor=False, or .* use_nested_tensor = F"):
        model(x, src_key_padding_mask=pads())
    model.use_nested_tensor = False
    with torch.no_grad():
        assert model(x, src_key_padding_mask=pads()).shape == x.shape


def test_weights_of_another_encoding_are_refused_although_they_fit():
    with pytest.raises(SignatureMismatch, match="max_distance:64.*max_distance:128.*: build the module"):
        attention("t5").load_state_dict(attention("t5", hparams={"max_distance": 64}).state_dict())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["tupe_r", "m4m", "transformer_xl", "cope"])
def test_half_precision_stays_near_full_precision(name, dtype):
    module = attention(name, causal=name not in BIDIRECTIONAL).float()
    x, padding = inputs().float(), pads()
    wanted, _ = module(x, key_padding_mask=padding)
    with torch.autocast("cpu", dtype):
        under_autocast, _ = module(x, key_padding_mask=padding)
    in_half, _ = copy.deepcopy(module).to(dtype)(x.to(dtype), key_padding_mask=padding)
    for found in (under_autocast, in_half):
        assert found.dtype == dtype
        torch.testing.assert_close(found.float(), wanted, atol=0.05 * wanted.abs().max().item(), rtol=0.05)


def test_an_encoding_of_the_input_warns_that_one_attention_lacks_it():
    with pytest.warns(
        UserWarning, match="learned adds positions to the input, which one attention lacks: use .*Encoder"
    ):
        attention("learned")(inputs())


@pytest.mark.parametrize("name", ["t5", "alibi", "tupe_r"])
def test_dropout_acts_in_training_alone(name):
    module, x = attention(name, dropout=0.5), inputs()
    assert torch.equal(module(x)[0], module(x)[0])
    module.train()
    assert not torch.equal(module(x)[0], module(x)[0])


WRONG = {
    "x": (lambda m: m(torch.zeros(2, 9, 8)), r"x of shape \(2, 9, 8\): give \[batch, length, 24\]"),
    "one sentence": (
        lambda m: m(inputs()[0], key_padding_mask=pads()[0]),
        r"x of shape \(9, 24\): give \[batch, length, 24\]",
    ),
    "no tokens": (lambda m: m(inputs()[:, :0]), r"x of shape \(2, 0, 24\): give \[batch, length, 24\]"),
    "key": (lambda m: m(inputs(), inputs()), "key is another tensor than query"),
    "mask of numbers": (lambda m: m(inputs(), key_padding_mask=pads().long()), "torch.int64: give booleans"),
    "mask of bytes": (lambda m: m(inputs(), key_padding_mask=pads().byte()), "torch.uint8: give booleans"),
    "mask of other floats": (lambda m: m(inputs(), key_padding_mask=pads().double()), "numbers beside 0 and -inf"),
    "mask's shape": (lambda m: m(inputs(), key_padding_mask=pads(length=8)), r"shape \(2, 8\): .* \(2, 9\) here"),
    "hidden": (
        lambda m: m(inputs(), attn_mask=torch.zeros(2, 9, 9)),
        r"\(2, 9, 9\): .* \(9, 9\), or .* \(6, 9, 9\) here",
    ),
    "hidden for each head": (lambda m: m(inputs(), attn_mask=torch.zeros(3, 9, 9)), r"attn_mask of shape \(3, 9, 9\)"),
    "hidden of numbers": (
        lambda m: m(inputs(), attn_mask=torch.ones(9, 9).long()),
        "torch.int64: give booleans, .* floats",
    ),
    "ids": (
        lambda m: m(inputs(), position_ids=torch.ones(3, 9).long()),
        r"position_ids of shape \(3, 9\): give .* \(2, 9\) here",
    ),
    "dropout": (lambda m: RelPosSelfAttention(24, 3, dropout=1.5), "dropout=1.5: give a number from 0 to 1"),
    "cache": (lambda m: m(inputs(), cache=Cache()), "build it with causal=True"),
    "too long": (lambda m: m(inputs(length=33)), "33 tokens, but this position encoding has 32 .* max_len 33"),
    "encoding": (lambda m: RelPosSelfAttention(24, 3, "t6"), "unknown position encoding 't6'; known: "),
    "hparams": (lambda m: RelPosSelfAttention(24, 3, "t5", hparams={"rows": 3}), "t5 has no rows; it accepts num"),
    "heads": (lambda m: RelPosSelfAttention(24, 5), "cannot be divided into 5 attention heads"),
    "backend": (lambda m: RelPosSelfAttention(24, 3, backend="flash"), "'flash' is not known; choose from auto"),
    "causal_only": (lambda m: RelPosSelfAttention(24, 3, "cope"), "cope serves causal stacks alone"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_calls_are_one_line_that_says_what_is_accepted(case):
    call, message = WRONG[case]
    with pytest.raises(ValueError, match=message) as error:
        call(attention("tupe_r"))
    assert "\n" not in str(error.value)


def test_an_additive_padding_mask_is_accepted():
    module, x = attention("tupe_r"), inputs()
    additive = torch.zeros(2, 9).masked_fill(pads(), -torch.inf)
    assert torch.equal(module(x, key_padding_mask=additive)[0], module(x, key_padding_mask=pads())[0])


def test_importing_it_imports_nothing_but_torch_and_the_standard_library():
    program = (
        "import sys, torch\n"
        "sys.modules['fairseq'] = sys.modules['numpy'] = None\n"
        "before = set(sys.modules)\n"
        "import fairseq_relpos.nn\n"
        "print(*{name.split('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)\n"
        "attention = fairseq_relpos.nn.RelPosSelfAttention(8, 2, 'tupe_r', 9)\n"
        "attention(torch.randn(2, 5, 8))[0].sum().backward()\n"
    )
    assert set(pythons.output("-c", program).split()) == {"fairseq_relpos"}
