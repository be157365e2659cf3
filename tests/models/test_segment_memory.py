"""The segment memory: against the authors' code, and against the full pass for every encoding."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from loops import scale_up_positions
from small_models import language_model

from fairseq_relpos.backends import BACKENDS
from fairseq_relpos.encodings import ENCODINGS
from fairseq_relpos.models.language_model import can_remember
from fairseq_relpos.segments import Place, SegmentMemory

GOLDEN = np.load(Path(__file__).parents[1] / "fixtures/golden/transformer_xl_memory.npz")
ABLE = can_remember()


def places(rows):
    """The places of the segments of streams that are read together, from their beginning."""
    step = 0
    while True:
        yield Place(0, step, (step > 0,) * rows)
        step += 1


def read(model, tokens_BT, length):
    """The model's features of a text that it reads in segments of this length."""
    parts = []
    for place, segment in zip(places(len(tokens_BT)), tokens_BT.split(length, 1)):
        parts.append(model(segment, place=place, features_only=True)[0])
    return torch.cat(parts, 1)


#: names of the golden weights -> those of a layer
OF_A_LAYER = {
    **{k: f"self_attn.{k}_proj.weight" for k in "qkv"},
    "r": "self_attn.position_encoding.w.weight",
    "o": "self_attn.out_proj.weight",
    **{
        f"{a}_{s}": f"{b}.{t}" for a, b in (("ff1", "fc1"), ("ff2", "fc2")) for s, t in (("w", "weight"), ("b", "bias"))
    },
    **{
        f"{a}_{s}": f"{b}.{t}"
        for a, b in (("ln1", "self_attn_layer_norm"), ("ln2", "final_layer_norm"))
        for s, t in (("g", "weight"), ("b", "bias"))
    },
}
SPECIAL = Dictionary().nspecial


def authors_model(case):
    """The model of a golden case with its weights. A token's id is higher by fairseq's special symbols, for one of
    theirs would be a pad."""
    at = dict(zip(GOLDEN["case_fields"].tolist(), GOLDEN[f"case_{case}"].tolist()))
    clamp = f"clamp={at['clamp_len']:.0f}" if at["clamp_len"] > 0 else ""
    model = language_model(
        "transformer_lm_transformer_xl",
        decoder_layers=3,
        decoder_normalize_before=bool(at["pre_lnorm"]),
        no_decoder_final_norm=True,
        share_decoder_input_output_embed=True,
        position_hparams=clamp,
        dropout=0.0,
        words=53 - 1,  # and <mask>
        **{f"decoder_{what}": 32 for what in ("embed_dim", "input_dim", "output_dim")},
        decoder_ffn_embed_dim=48,
        decoder_attention_heads=4,
    ).double()
    length = int(at["mem_len"])
    model.remember(SegmentMemory(length, length, bool(at["same_length"])))
    decoder = model.decoder
    weights = {"embed": decoder.embed_tokens.weight, "u": decoder.embed_positions.u, "v": decoder.embed_positions.v}
    for number, layer in enumerate(decoder.layers):
        weights |= {f"l{number}.{name}": layer.get_parameter(theirs) for name, theirs in OF_A_LAYER.items()}
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.zero_()
        for name, weight in weights.items():
            mine = weight[SPECIAL:] if name == "embed" else weight
            mine.copy_(torch.from_numpy(GOLDEN[f"w.{name}"]).double())
    model.train(bool(at["training"]))
    return model, weights, int(at["segment"])


@pytest.mark.parametrize("case", GOLDEN["cases"].tolist())
def test_hidden_states_and_gradients_are_those_of_the_authors_code(case):
    model, weights, segment = authors_model(case)
    tokens = torch.from_numpy(GOLDEN["tokens"]).long()[:, :-1] + SPECIAL
    hidden = read(model, tokens, segment)
    expected = torch.from_numpy(GOLDEN[f"hidden_{case}"]).double()
    torch.testing.assert_close(hidden[:, -expected.size(1) :], expected, atol=1e-6, rtol=1e-7)
    if not model.training:
        return
    (hidden * torch.from_numpy(GOLDEN["loss_weights"])).sum().backward()
    names = GOLDEN["weight_names"].tolist()
    norms = torch.tensor([weights[name].grad.norm().item() for name in names])
    torch.testing.assert_close(norms.double(), torch.from_numpy(GOLDEN[f"gradnorm_{case}"]).double(), rtol=1e-6, atol=0)
    for name in names:
        if f"grad_{case}/{name}" in GOLDEN:
            gradient = weights[name].grad[SPECIAL:] if name == "embed" else weights[name].grad
            theirs = torch.from_numpy(GOLDEN[f"grad_{case}/{name}"]).double()
            torch.testing.assert_close(gradient, theirs, atol=1e-6 * theirs.abs().max().item(), rtol=1e-6)


def model_of(name, memory=(64, 64), **settings):
    """In float64, with positions that matter."""
    settings = {"dropout": 0.0, "max_target_positions": 96, **settings}
    model = language_model(f"transformer_lm_{name}", **settings).double().eval()
    scale_up_positions(model.decoder)
    model.remember(SegmentMemory(*memory))
    return model


TOKENS = torch.randint(4, 40, (2, 23), generator=torch.Generator().manual_seed(3))
#: of a loss: the plain sum of what a LayerNorm returns has no gradient
WEIGHTS = torch.randn(2, 23, 24, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def test_every_encoding_that_adds_nothing_to_the_input_can_remember():
    refused = {"learned", "sinusoidal", "shape", "abs_m4m", "bert_r"}
    assert set(ABLE) == set(ENCODINGS) - refused
    for name in refused:
        with pytest.raises(ValueError, match=f"{name} adds positions to the input, .* can: alibi .* transformer_xl"):
            model_of(name)


@torch.no_grad()
@pytest.mark.parametrize("name", ABLE)
def test_segments_with_a_long_memory_equal_the_full_pass(name):
    for layers, normalize_before, window in ((1, True, ""), (3, False, "7 2=none"), (3, True, "")):
        how = {"decoder_normalize_before": normalize_before, "attention_window": window}
        model = model_of(name, decoder_layers=layers, **how)
        full = model(TOKENS, features_only=True)[0]
        torch.testing.assert_close(read(model, TOKENS, 5), full, atol=1e-12, rtol=0)
    assert not torch.allclose(model(TOKENS[:, 5:10], features_only=True)[0], full[:, 5:10]), "nothing was remembered"


@torch.no_grad()
def test_a_model_that_is_trained_with_layerdrop_remembers_in_evaluation():
    model = model_of("t5", memory=(0, 64), decoder_layerdrop=0.9)
    full = model(TOKENS, features_only=True)[0]
    torch.testing.assert_close(read(model, TOKENS, 5), full, atol=1e-12, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("name", ["transformer_xl", "t5", "tupe_r", "cope", "m3", "deberta", "rope"])
def test_every_backend_reads_the_memory(name):
    for backend in BACKENDS:
        try:
            model = model_of(name, attention_backend=backend)
        except ValueError:
            continue  # it does not serve this encoding at all
        model, full = model.float(), model_of(name, attention_backend="eager").float()
        full.load_state_dict(model.state_dict())
        for same_length in (False, True):
            memories = [SegmentMemory(9, 9, same_length) for _ in range(2)]
            for each, memory in zip((model, full), memories):
                each.remember(memory)
            torch.testing.assert_close(read(model, TOKENS, 5), read(full, TOKENS, 5), atol=2e-5, rtol=1e-4)


def gradients(model, tokens):
    hidden = read(model.train(), tokens, 5)
    (hidden * WEIGHTS).sum().backward()
    return {key: p.grad for key, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", ["transformer_xl", "t5", "tupe_r", "deberta"])
@pytest.mark.parametrize("normalize_before", [False, True])
def test_recomputed_layers_have_the_same_gradients(name, normalize_before):
    found = []
    for recompute in (False, True):
        model = model_of(name, decoder_normalize_before=normalize_before, checkpoint_activations=recompute)
        found.append(gradients(model, TOKENS))
    assert found[0].keys() == found[1].keys()
    for key, gradient in found[0].items():
        torch.testing.assert_close(found[1][key], gradient, atol=1e-12, rtol=1e-9, msg=key)


def test_states_are_remembered_without_gradient_and_weights_learn_from_them():
    model = model_of("t5", decoder_layers=1).train()
    embedded = []
    model.decoder.embed_tokens.register_forward_hook(lambda *call: embedded.append(call[2]) or call[2].retain_grad())
    hidden = read(model, TOKENS, 5)
    (hidden * WEIGHTS)[:, 5:10].sum().backward()
    assert embedded[0].grad is None or not embedded[0].grad.any()
    assert embedded[1].grad.any()
    of_keys = model.decoder.layers[0].self_attn.k_proj.weight.grad.clone()
    model.zero_grad()
    model.remember(SegmentMemory(0, 0))
    (read(model, TOKENS, 5) * WEIGHTS)[:, 5:10].sum().backward()
    assert not torch.allclose(of_keys, model.decoder.layers[0].self_attn.k_proj.weight.grad)


@torch.no_grad()
@pytest.mark.parametrize("name", ["transformer_xl", "tupe_r", "cope", "t5"])
def test_a_row_that_begins_a_text_remembers_nothing_and_the_others_do(name):
    model = model_of(name, memory=(8, 8))
    segments = TOKENS[:, :20].split(5, 1)
    # the first row's text begins again at the third segment
    for step, segment in enumerate(segments):
        both = model(segment, place=Place(0, step, (step not in (0, 2), step > 0)), features_only=True)[0]
    alone = model_of(name, memory=(8, 8))
    for step, segment in enumerate(segments[2:]):
        first = alone(segment[:1], place=Place(0, step, (step > 0,)), features_only=True)[0]
    second = read(alone, TOKENS[1:, :20], 5)[:, 15:]
    torch.testing.assert_close(both, torch.cat([first, second]), atol=1e-12, rtol=0)


@torch.no_grad()
def test_the_last_rows_may_end_before_the_others():
    model = model_of("t5")
    expected = read(model, TOKENS[:1, :15], 5)[:, 10:]
    segments = TOKENS[:, :15].split(5, 1)
    for step, segment in enumerate(segments):
        rows = 1 if step == 2 else 2
        found = model(segment[:rows], place=Place(0, step, (step > 0,) * rows), features_only=True)[0]
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


@torch.no_grad()
def test_a_batch_that_is_read_twice_counts_once():
    model = model_of("t5")
    expected = read(model, TOKENS, 5)
    parts = []
    for place, segment in zip(places(2), TOKENS.split(5, 1)):
        model(segment, place=place)
        parts.append(model(segment, place=place, features_only=True)[0])
    torch.testing.assert_close(torch.cat(parts, 1), expected, atol=1e-12, rtol=0)


@torch.no_grad()
def test_a_text_of_one_segment_leaves_nothing_to_the_next_text():
    model = model_of("t5")
    for tokens in (TOKENS, TOKENS[:1, :9]):
        found = model(tokens, place=Place(0, 0, (False,) * len(tokens)), features_only=True)[0]
        torch.testing.assert_close(found, model(tokens, features_only=True)[0], atol=1e-12, rtol=0)


@torch.no_grad()
def test_groups_of_streams_and_evaluations_do_not_disturb_one_another():
    model = model_of("t5")
    expected = [read(model, tokens, 5) for tokens in (TOKENS, TOKENS.flip(1))]
    found = [[], []]
    pairs = zip(places(2), TOKENS.split(5, 1), TOKENS.flip(1).split(5, 1))
    for place, *segments in pairs:
        model.train()
        for group, segment in enumerate(segments):
            mine = Place(2 * group, place.step, place.goes_on)
            found[group].append(model(segment, place=mine, features_only=True)[0])
        model.eval()
        model(segments[0], place=Place(0, 0, (False, False)))
    for group in (0, 1):
        torch.testing.assert_close(torch.cat(found[group], 1), expected[group], atol=1e-12, rtol=0)
    model.train()(TOKENS[:, :5], place=Place(0, 0, (False, False)))
    memory = model.decoder.embed_positions.segment_memory
    assert memory.last[False] == {}, "an evaluation's memory would stay on the device"


@torch.no_grad()
def test_a_memory_that_is_missing_is_empty_and_said_once(caplog):
    model = model_of("t5")
    with caplog.at_level("INFO"):
        for step in (7, 8):
            model(TOKENS[:, :5], place=Place(0, step, (True, True)))
    lines = [record.message for record in caplog.records if "segment memory is empty" in record.message]
    assert len(lines) == 1 and "the next 64 tokens of each stream see fewer tokens" in lines[0]
    left_out = model(TOKENS[:, 5:10], place=Place(0, 10, (True, True)), features_only=True)[0]
    assert torch.equal(left_out, model(TOKENS[:, 5:10], features_only=True)[0])


@torch.no_grad()
def test_copies_begin_empty_and_no_file_holds_the_memory():
    model = model_of("t5")
    before = set(model.state_dict())
    read(model, TOKENS, 5)
    assert set(model.state_dict()) == before
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        memory = other.decoder.embed_positions.segment_memory
        assert memory.last == {True: {}, False: {}} and memory.eval_length == 64
        torch.testing.assert_close(read(other, TOKENS, 5), read(model, TOKENS, 5), atol=1e-12, rtol=0)


@torch.no_grad()
def test_half_precision_keeps_half_precision():
    model = model_of("transformer_xl")
    expected = read(model, TOKENS, 5)
    model.bfloat16()
    found = read(model, TOKENS, 5)
    assert found.dtype == torch.bfloat16
    segment = model.decoder.embed_positions.segment_memory.last[False][0]
    assert {x.dtype for x in segment.past.values()} == {torch.bfloat16}
    torch.testing.assert_close(found.double(), expected, atol=0.15, rtol=0.1)


@torch.no_grad()
def test_generation_and_packed_documents_use_no_memory():
    model = model_of("t5")
    full = model(TOKENS)[0]
    read(model, TOKENS, 5)
    assert torch.equal(model(TOKENS)[0], full)
    state = {}
    for step in range(1, 24):
        one = model.decoder(TOKENS[:, :step], incremental_state=state)[0]
    torch.testing.assert_close(one[:, -1], full[:, -1], atol=1e-12, rtol=0)


def test_tables_have_room_for_memory_and_segment_of_the_training():
    settings = {"max_target_positions": None, "tokens_per_sample": 16, "memory_length": 8}
    model = language_model("transformer_lm_tupe_r", **settings)
    assert model.decoder.embed_positions.hard_limit == model.args.max_target_positions == 24
    settings["eval_memory_length"] = 24
    model = language_model("transformer_lm_shaw", **settings)
    assert model.args.position_hparams.startswith("max_distance=23 ")  # later rows would stay random
    assert model.decoder.embed_positions.segment_memory.eval_length == 24
    with pytest.raises(ValueError, match="--eval-memory-length 24 and --tokens-per-sample 16: tupe_r has 24 absolute"):
        language_model("transformer_lm_tupe_r", **settings)
