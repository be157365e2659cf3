"""A RoBERTa for Hugging Face transformers, against fairseq's: outputs, losses, settings, and what is refused."""

import copy
import importlib
import inspect
import json
from types import SimpleNamespace

import pytest
import pythons
import torch
from small_models import logits, moved, roberta, sentences, trained

pytest.importorskip("transformers", "5.4", reason='needs transformers 5.4: pip install "fairseq_relpos[hf]"')

import transformers  # noqa: E402

import fairseq_relpos.hf as hf  # noqa: E402  before transformers: it hides a torchaudio that does not load
from fairseq_relpos.encodings import names_for  # noqa: E402
from fairseq_relpos.exchange import to_transformers  # noqa: E402
from fairseq_relpos.exchange.export import export  # noqa: E402


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """fairseq's models of some encodings, and the folders that they are exported to."""
    folder = tmp_path_factory.mktemp("exported")
    models = {}
    for name in ("deberta", "learned", "shape", "tupe_r"):
        models[name] = trained(f"roberta_{name}", folder / f"{name}.pt")
        assert export(folder / f"{name}.pt", folder / name).difference == 0
    return SimpleNamespace(folder=folder, models=models)


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("__version__", "5.3.0", "needs transformers 5.4 or newer, this is 5.3.0"),
        ("utils.is_torch_available", lambda: False, "needs torch, and transformers 5.* does not use torch 2."),
    ],
)
def test_versions_that_do_not_fit_are_one_line(monkeypatch, name, value, message):
    monkeypatch.setattr(f"transformers.{name}", value)
    with pytest.raises(ImportError, match=message):
        importlib.reload(hf)


def test_logits_of_every_encoding_have_fairseqs_bits_with_pads_on_both_sides():
    masked_lm = to_transformers.Kind("AutoModelForMaskedLM")
    for name, hparams in [*((name, "") for name in names_for(False)), ("shaw", "values=true max_distance=4")]:
        model = moved(roberta(f"roberta_{name}", position_hparams=hparams))
        ours = to_transformers.as_transformers(model, model.args, masked_lm, None)
        for tokens in (sentences(), sentences(padding="left"), sentences(batch=1)):
            real = tokens.ne(1)
            with torch.no_grad():
                assert torch.equal(logits(ours, tokens)[real], model(tokens)[0][real]), name


def test_exported_folders_load_with_fairseqs_bits(exported):
    tokens = sentences()
    for name, model in exported.models.items():
        loaded = transformers.AutoModelForMaskedLM.from_pretrained(exported.folder / name)
        with torch.no_grad():
            assert torch.equal(logits(loaded, tokens)[tokens.ne(1)], model(tokens)[0][tokens.ne(1)]), name
        assert (type(loaded) is transformers.RobertaForMaskedLM) == (name == "learned")
    assert json.loads((exported.folder / "learned/config.json").read_text())["max_position_embeddings"] == 34


@pytest.mark.slow
def test_an_exported_model_loads_and_gives_the_same_without_fairseq(exported, tmp_path):
    tokens = sentences()
    with torch.no_grad():
        wanted = {name: exported.models[name](tokens)[0] for name in ("tupe_r", "deberta", "shape")}
    torch.save((tokens, wanted), tmp_path / "wanted.pt")
    program = f"""
import sys
sys.modules["fairseq"] = None
import fairseq_relpos.hf, torch
from transformers import AutoModelForMaskedLM
tokens, wanted = torch.load({str(tmp_path / "wanted.pt")!r})
for name, logits in wanted.items():
    model = AutoModelForMaskedLM.from_pretrained({str(exported.folder)!r} + "/" + name)
    with torch.no_grad():
        out = model(input_ids=tokens, attention_mask=tokens.ne(1).long()).logits
    assert torch.equal(out[tokens.ne(1)], logits[tokens.ne(1)]), name
assert not [name for name in sys.modules if name.startswith("fairseq.")]
"""
    pythons.output("-c", program, HF_HUB_OFFLINE="1")


@pytest.mark.parametrize("settings", [{"untie_weights_roberta": True}, {"encoder_normalize_before": True}])
def test_other_roberta_settings_come_along(settings, tmp_path):
    more = {
        "layernorm_embedding": False,
        "activation_fn": "relu",
        "no_scale_embedding": False,
        "activation_dropout": 0.1,
        "dropout": 0.3,
        "attention_dropout": 0.2,
        "attention_window": "3 every.2=none",
    }
    model = trained("roberta_learned", tmp_path / "a.pt", position_layers="2,3", **more, **settings)
    result = export(tmp_path / "a.pt", tmp_path / "a")
    assert (result.model, result.difference) == ("RelPosRobertaForMaskedLM", 0)
    loaded = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "a")
    rates = loaded.config.hidden_dropout_prob, loaded.config.attention_probs_dropout_prob
    assert (*rates, loaded.config.activation_dropout) == (0.3, 0.2, 0.1) and loaded.config.position_layers == "2,3"
    tied = loaded.lm_head.decoder.weight is loaded.roberta.embed_tokens.weight
    assert tied == (not model.args.untie_weights_roberta)


def test_tables_for_random_positions_come_along(tmp_path):
    trained("roberta_shaw", tmp_path / "a.pt", max_positions=16, randomized_positions=40)
    assert export(tmp_path / "a.pt", tmp_path / "a").difference == 0


@pytest.mark.parametrize("kind", [hf.RelPosRobertaConfig, hf.RelPosDecoderConfig])
def test_dropout_of_the_config_is_that_of_every_layer(kind):
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2, "activation_dropout": 0.3}
    sizes = {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
    config = kind(**sizes, **rates, **({"memory_size": 24} if kind is hf.RelPosDecoderConfig else {}))
    model = transformers.AutoModel.from_config(config)
    stack = model.encoder if kind is hf.RelPosRobertaConfig else model.stack
    assert stack.dropout == 0.1
    for layer in stack.layers:
        assert (layer.dropout, layer.activation_dropout) == (0.1, 0.3)
        assert {x.dropout for x in (layer.self_attn, layer.encoder_attn) if x is not None} == {0.2}


@pytest.mark.parametrize("own, of_the_head", [(None, 0.1), (0.4, 0.4), (0.0, 0.0)])
def test_heads_have_the_dropout_of_the_model_or_one_of_their_own(own, of_the_head):
    config = hf.RelPosRobertaConfig(vocab_size=50, hidden_size=24, num_attention_heads=3, classifier_dropout=own)
    for auto in ("SequenceClassification", "TokenClassification"):
        model = getattr(transformers, f"AutoModelFor{auto}").from_config(config)
        assert [x.p for x in model.modules() if isinstance(x, torch.nn.Dropout)] == [of_the_head]


def test_half_of_a_training_step_is_fairseqs(exported):
    """Loss and gradients of one step, also with recomputed activations and without pads."""
    tokens, model = sentences(), copy.deepcopy(exported.models["tupe_r"])
    real = tokens.ne(1)
    theirs = torch.nn.functional.cross_entropy(model(tokens)[0][real], tokens[real])
    theirs.backward()
    wanted = dict(model.named_parameters())["encoder.sentence_encoder.embed_positions.p"].grad
    for settings in ({}, {"unpad": True, "sparse_prediction": True}, "recompute"):
        more = {} if settings == "recompute" else settings
        loaded = transformers.AutoModelForMaskedLM.from_pretrained(
            exported.folder / "tupe_r", hidden_dropout_prob=0, attention_probs_dropout_prob=0, **more
        ).train()
        if settings == "recompute":
            loaded.activation_checkpointing_enable()
        labels = tokens.masked_fill(~real, -100)
        loss = loaded(input_ids=tokens, attention_mask=real.long(), labels=labels).loss
        loss.backward()
        torch.testing.assert_close(loss, theirs, rtol=0, atol=1e-5)
        torch.testing.assert_close(loaded.roberta.encoder.embed_positions.p.grad, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("auto", ["AutoModelForMaskedLM", "AutoModelForTokenClassification"])
def test_accumulated_gradients_are_those_of_the_whole_batch(auto, exported):
    """The Trainer counts the labels of all parts, and trusts that the model divides by their number."""
    model = getattr(transformers, auto).from_pretrained(exported.folder / "shape").eval()
    tokens = sentences()
    labels = tokens.masked_fill(tokens.eq(1), -100)
    batch = {"input_ids": tokens, "labels": labels if "Masked" in auto else labels.clamp(max=1)}
    count = labels.ne(-100).sum()
    unequal = [{name: value[rows] for name, value in batch.items()} for rows in (slice(0, 2), slice(2, 3))]
    parts = sum(model(**part, num_items_in_batch=count).loss for part in unequal)
    torch.testing.assert_close(parts, model(**batch).loss)


def test_the_trainer_divides_the_mean_of_a_head_for_texts():
    means = {hf.RelPosRobertaForSequenceClassification, hf.RelPosRobertaForQuestionAnswering}
    for model in (value for name, value in vars(hf).items() if isinstance(value, type) and "For" in name):
        takes_count = "num_items_in_batch" in inspect.signature(model.forward).parameters
        assert takes_count != (model in means) and getattr(model, "accepts_loss_kwargs", True) == takes_count


def test_the_trainer_knows_what_the_models_read():
    """It passes on the arguments that a forward names, and shifts smoothed labels of models that it knows by name."""
    for name in dir(hf):
        if "For" in name and "Transformer" not in name:
            read = inspect.signature(getattr(hf, name).forward).parameters
            assert "document_ids" in read and ("position_ids" in read) == name.startswith("RelPosRoberta"), name
    shifted = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    assert "RelPosDecoderForCausalLM" in shifted.values()


def test_what_a_model_does_not_have_is_refused_where_it_is_asked_for(exported):
    model = transformers.AutoModelForMaskedLM.from_pretrained(exported.folder / "shape").eval()
    tokens = sentences()
    for name, value in {"head_mask": torch.zeros(3, 3), "attention_masks": tokens, "max_length_q": 7}.items():
        with pytest.raises(TypeError, match=f"this model has no {name}"):
            model(tokens, **{name: value})
    model(tokens, head_mask=None, use_cache=False)
    for mask, what in {
        (tokens.ne(1).float() - 1) * 1e9: "numbers beside 0 and 1",
        tokens[:, :5]: r"\(3, 17\) is needed",
        torch.ones(3, 17, 17): r"\(3, 17\) is needed",
    }.items():
        with pytest.raises(ValueError, match=what):
            model(tokens, attention_mask=mask)


def test_positions_for_one_text_serve_a_batch_with_pads(exported):
    model = transformers.AutoModelForMaskedLM.from_pretrained(exported.folder / "tupe_r").eval()
    tokens = sentences()
    found = logits(model, tokens, position_ids=torch.arange(17)[None])
    assert torch.equal(found[tokens.ne(1)], logits(model, tokens)[tokens.ne(1)])


@pytest.mark.parametrize("kind", [hf.RelPosRobertaModel, hf.RelPosDecoderModel])
def test_pads_between_tokens_need_positions(kind):
    model = kind(kind.config_class(vocab_size=9, hidden_size=8, num_attention_heads=2, num_hidden_layers=1)).eval()
    tokens, mask = torch.tensor([[4, 5, 6, 7], [4, 5, 6, 7]]), torch.tensor([[1, 1, 1, 0], [0, 1, 0, 1]])
    with pytest.raises(ValueError, match="pads between tokens.*position_ids"):
        model(tokens, mask)
    assert model(tokens, mask, position_ids=torch.arange(4).expand(2, 4)).last_hidden_state.isfinite().all()
    assert model(tokens[:1], mask[:1]).last_hidden_state.isfinite().all()


def test_a_trace_takes_pads_or_refuses_its_example(exported):
    model = transformers.AutoModelForMaskedLM.from_pretrained(exported.folder / "tupe_r", return_dict=False).eval()
    tokens, other = sentences(), sentences()[[1, 2, 0]]
    with torch.no_grad():
        found = torch.jit.trace(model, (tokens, tokens.ne(1).long()))(other, other.ne(1).long())[0]
        torch.testing.assert_close(found[other.ne(1)], model(other)[0][other.ne(1)])
        with pytest.raises(ValueError, match="this example has no pads"):
            torch.jit.trace(model, (tokens[:1], torch.ones_like(tokens[:1])))


def test_torch_compile_takes_an_exported_model(exported):
    loaded = transformers.AutoModelForMaskedLM.from_pretrained(exported.folder / "shape", num_hidden_layers=1).eval()
    tokens = sentences(batch=1)
    wanted = logits(loaded, tokens)
    compiled = torch.compile(loaded, backend="eager")
    torch.testing.assert_close(logits(compiled, tokens), wanted)


def test_hidden_states_and_attention_come_out_where_they_are_asked_for(exported):
    loaded = transformers.AutoModel.from_pretrained(exported.folder / "deberta").eval()
    tokens = sentences()
    out = loaded(tokens, output_hidden_states=True, output_attentions=True)
    assert len(out.hidden_states) == 4 and torch.equal(out.hidden_states[-1], out.last_hidden_state)
    weights = out.attentions[0][0]
    assert len(out.attentions) == 3 and torch.allclose(weights.sum(-1), torch.ones(3, 17))


def test_an_encoding_of_a_new_model_begins_with_its_own_weights():
    config = hf.RelPosRobertaConfig(
        **{"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3},
        **{"intermediate_size": 48, "position_encoding": "m3", "position_hparams": "init=ones"},
    )
    model = transformers.AutoModelForTokenClassification.from_config(config)
    table = model.roberta.encoder.layers[0].self_attn.position_encoding.table
    assert torch.equal(table, torch.ones_like(table))
    out = model(sentences(), labels=torch.zeros(3, 17, dtype=torch.long))
    assert out.logits.shape == (3, 17, 2) and torch.isfinite(out.loss)
