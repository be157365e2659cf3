"""Incremental decoding equals the full pass, for every encoding, and a step costs O(length)."""

import math

import pytest
import torch
from fairseq import search
from fairseq.sequence_generator import SequenceGenerator
from loops import scale_up_positions
from small_models import PRE_NORM, Anew, dictionary, transformer, translation_batch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from fairseq_relpos.encodings import ENCODINGS, base

NAMES = sorted(ENCODINGS)
WORDS = dictionary()
COPYING = {"copy_from_source": True}


def model_of(name, seed=1, **settings):
    """Evaluated, with positions that matter and outputs that vary."""
    model = transformer(f"transformer_{name}", seed, dropout=0.0, **settings).eval()
    for stack in (model.encoder, model.decoder):
        scale_up_positions(stack)
    with torch.no_grad():
        model.decoder.output_projection.weight.mul_(4)
    return model


@torch.no_grad()
@pytest.mark.parametrize(
    "settings",
    [{}, {**PRE_NORM, "attention_window": "3 decoder.2=5"}, COPYING],
    ids=["post-norm", "pre-norm and windows", "copying"],
)
@pytest.mark.parametrize("name", NAMES)
def test_every_step_equals_the_full_pass_with_left_padding_and_reordering(name, settings):
    model = model_of(name, **settings)
    encoded, decoder = model.encoder(*translation_batch()[:2]), model.decoder
    tokens = torch.randint(4, 40, (3, 12))
    tokens[:, 0] = 2
    state, outs = {}, []
    for step in range(1, 13):
        if step in (4, 9):  # beam search keeps some hypotheses twice and drops others
            order = torch.tensor([2, 0, 0, 1] if step == 4 else [1, 3, 0])
            decoder.reorder_incremental_state_scripting(state, order)
            encoded = model.encoder.reorder_encoder_out(encoded, order)
            tokens, outs = tokens[order], [out[order] for out in outs]
        outs.append(decoder(tokens[:, :step], encoder_out=encoded, incremental_state=state)[0])
    torch.testing.assert_close(torch.cat(outs, 1), decoder(tokens, encoder_out=encoded)[0], atol=1e-5, rtol=0)


def generated(models, strategy=None, prefix=None, **options):
    torch.manual_seed(7)
    source, lengths, _ = translation_batch()
    settings = {"beam_size": 4, "max_len_b": 14, **options}
    generator = SequenceGenerator(models, WORDS, search_strategy=strategy and strategy(), **settings)
    sample = {"net_input": {"src_tokens": source, "src_lengths": lengths}}
    return generator.generate(models, sample, prefix_tokens=prefix)


def assert_same_hypotheses(models, **options):
    found = generated(models, **options)
    expected = generated([Anew(model) for model in models], **options)
    for one, other in zip(found, expected, strict=True):
        assert [h["tokens"].tolist() for h in one] == [h["tokens"].tolist() for h in other]
        for h, g in zip(one, other):
            assert math.isclose(h["score"], g["score"], abs_tol=1e-4)
    tokens = [tuple(h["tokens"].tolist()) for sentence in found for h in sentence]
    assert len(set(tokens)) > len(tokens) // 2, "nothing to tell hypotheses apart"
    return found


def repeats(hypothesis, n):
    tokens = hypothesis["tokens"].tolist()
    ngrams = list(zip(*(tokens[start:] for start in range(n))))
    return len(set(ngrams)) < len(ngrams)


PREFIX = torch.tensor([[5, 6, 7], [8, 1, 1], [9, 10, 1]])
OPTIONS = {
    "prefix": {"prefix": PREFIX},
    "sampling": {"strategy": lambda: search.Sampling(WORDS, sampling_topk=10)},
    "diverse": {"strategy": lambda: search.DiverseBeamSearch(WORDS, 2, 0.5)},
    "no-repeat": {"no_repeat_ngram_size": 2},
    "copies": {"no_repeat_ngram_size": 3, "beam_size": 5, "len_penalty": 0.6, "max_len_b": 10},
}


@pytest.mark.parametrize("name", ["tupe_r", "t5", "m4m", "deberta", "transformer_xl", "abs_m4m"])
@pytest.mark.parametrize("option", OPTIONS)
def test_other_searches_find_what_full_recomputation_finds(name, option):
    settings = COPYING if option == "copies" else PRE_NORM
    found = assert_same_hypotheses([model_of(name, **settings)], **OPTIONS[option])
    if option == "prefix":
        for row, sentence in enumerate(found):
            wanted = [token for token in PREFIX[row].tolist() if token != WORDS.pad()]
            assert all(h["tokens"].tolist()[: len(wanted)] == wanted for h in sentence)
    if size := OPTIONS[option].get("no_repeat_ngram_size"):
        assert not any(repeats(hypothesis, size) for sentence in found for hypothesis in sentence)


def test_torchscript_compiles_the_search_of_a_stock_transformer():
    model = transformer("transformer", encoder_layers=1, decoder_layers=1).eval()
    torch.jit.script(SequenceGenerator([model], WORDS, beam_size=2, no_repeat_ngram_size=2, max_len_b=6))


@pytest.mark.parametrize("names", [("t5", "m4m"), ("tupe_a", "transformer_xl"), ("learned", "alibi")])
def test_ensembles_of_different_encodings(names):
    models = [model_of(name, seed) for seed, name in enumerate(names)]
    assert_same_hypotheses(models)
    assert_same_hypotheses([models[0], model_of(names[0], seed=5, **COPYING)])


LIMITED = [name for name in NAMES if model_of(name).decoder.embed_positions.hard_limit]


@torch.no_grad()
@pytest.mark.parametrize("name", sorted(set(NAMES) - set(LIMITED)))
def test_a_relative_encoding_decodes_beyond_the_lengths_it_was_trained_for(name):
    """max_target_positions, which fairseq stops at, can be raised for a trained model."""
    trained = model_of(name)
    settings = {"position_hparams": trained.args.position_hparams, "max_target_positions": 100}
    model = transformer(f"transformer_{name}", seed=2, **settings).eval()
    model.load_state_dict(trained.state_dict())
    source, lengths, _ = translation_batch()
    encoded, state = model.encoder(source, lengths), {}
    tokens = torch.randint(4, 40, (3, 70))
    for step in range(1, 71):
        one = model.decoder(tokens[:, :step], encoder_out=encoded, incremental_state=state)[0]
    full = model.decoder(tokens, encoder_out=encoded)[0]
    assert full.isfinite().all()
    torch.testing.assert_close(one[:, -1], full[:, -1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", LIMITED)
def test_an_absolute_encoding_stops_at_its_last_position(name):
    """As fairseq does with max_target_positions: outputs end there; more is an error."""
    model = model_of(name)
    longest = generated([model], max_len_b=500, beam_size=2, min_len=31)
    assert {len(h["tokens"]) for sentence in longest for h in sentence} == {32}
    encoded = model.encoder(*translation_batch()[:2])
    with pytest.raises(ValueError, match="a sequence of 33 tokens, but this position encoding"):
        model.decoder(torch.full((3, 33), 5), encoder_out=encoded, incremental_state={})


class Shapes(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else [out]:
            if torch.is_tensor(tensor):
                self.seen.append((str(function), tuple(tensor.shape)))
        return out


@torch.no_grad()
@pytest.mark.parametrize("name", NAMES)
def test_a_step_costs_as_much_as_there_are_keys_and_projects_nothing_twice(name):
    """At step 70 no tensor has two lengths in it, a product meets 70 columns, and what does
    not change (W R, a W, p U, tables of functions) was computed before."""
    length = 70
    settings = {"max_target_positions": 90, "attention_backend": "eager"}
    # 32 hidden units are few beside the 64 dimensions of a usual head, here it has 8
    small = {"dape": {"position_hparams": "hidden=4"}}
    flops = {}
    for kind in ("none", name):
        model = model_of(kind, **settings, **small.get(kind, {}))
        source, lengths, _ = translation_batch()
        encoded, state = model.encoder(source, lengths), {}
        tokens = torch.randint(4, 40, (3, length))
        for step in range(1, length):
            model.decoder(tokens[:, :step], encoder_out=encoded, incremental_state=state)
        with Shapes() as shapes, FlopCounterMode(display=False) as counter:
            model.decoder(tokens, encoder_out=encoded, incremental_state=state)
        flops[kind] = counter.get_total_flops()
        assert not [s for s in shapes.seen if sum(size >= length for size in s[1]) > 1]
    assert flops[name] < 1.5 * flops["none"]


@torch.no_grad()
def test_what_a_generation_remembers_dies_with_it():
    model = model_of("transformer_xl")
    encoded = model.encoder(*translation_batch()[:2])
    tokens = torch.randint(4, 40, (3, 4))
    state = {}
    before = model.decoder(tokens[:, :1], encoder_out=encoded, incremental_state=state)[0]
    assert set(state[base.MEMORY]) == {layer.self_attn.position_encoding for layer in model.decoder.layers}
    for layer in model.decoder.layers:
        layer.self_attn.position_encoding.w.weight.mul_(-2)
        layer.self_attn.position_encoding.w.weight.add_(0.3)
    state = {}
    for step in range(1, 5):
        one = model.decoder(tokens[:, :step], encoder_out=encoded, incremental_state=state)[0]
    full = model.decoder(tokens, encoder_out=encoded)[0]
    torch.testing.assert_close(one[:, -1], full[:, -1], atol=1e-5, rtol=0)
    assert before.isfinite().all()
