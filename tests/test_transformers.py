"""Models and tokenizers for Hugging Face transformers, against fairseq's."""

import codecs
import copy
import importlib
import inspect
import json
import os
import pickle
import random
import re
import shutil
import socket
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import pythons
import torch
from fairseq import checkpoint_utils
from fairseq.criterions.sentence_prediction import SentencePredictionConfig, SentencePredictionCriterion
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.optim.adam import FairseqAdam
from refusals import assert_refused
from small_models import moved, roberta, save, sentences, trained
from vocabularies import (
    LINES,
    ORDINARY,
    VOCABULARIES,
    exported_tokenizer,
    ordinary_folder,
    sentencepiece_folder,
    words_folder,
)

pytest.importorskip("transformers", "5.4", reason='needs transformers 5.4: pip install "fairseq_relpos[hf]"')

import transformers  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

import fairseq_relpos.hf as hf  # noqa: E402  before transformers: it hides a torchaudio that does not load
from fairseq_relpos.checkpoints.encoder_decoder import start_encoder_decoder
from fairseq_relpos.cli import main  # noqa: E402
from fairseq_relpos.criterions.span_prediction import SpanPredictionCriterion  # noqa: E402
from fairseq_relpos.encodings import names_for  # noqa: E402
from fairseq_relpos.exchange import from_transformers, to_transformers  # noqa: E402
from fairseq_relpos.exchange.export import export  # noqa: E402
from fairseq_relpos.exchange.from_transformers import import_hf  # noqa: E402
from fairseq_relpos.exchange.pieces import Pieces, settings_of  # noqa: E402
from fairseq_relpos.exchange.words import Words  # noqa: E402
from fairseq_relpos.finetuning.vocabulary import Vocabulary  # noqa: E402
from fairseq_relpos.hf import fast_tokenizer  # noqa: E402
from fairseq_relpos.tasks import span_head  # noqa: E402
from fairseq_relpos.version import install_package  # noqa: E402

PACKAGE = Path(__file__).parents[1]


MASKED_LM = to_transformers.Kind("AutoModelForMaskedLM")


def both_sides():
    return [sentences(), sentences(padding="left"), sentences(batch=1)]


def logits(model, tokens, **settings):
    with torch.no_grad():
        return model(input_ids=tokens, attention_mask=tokens.ne(1).long(), **settings).logits


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
    for name, hparams in [*((name, "") for name in names_for(False)), ("shaw", "values=true max_distance=4")]:
        model = moved(roberta(f"roberta_{name}", position_hparams=hparams))
        ours = to_transformers.as_transformers(model, model.args, MASKED_LM, None)
        for tokens in both_sides():
            real = tokens.ne(1)
            with torch.no_grad():
                assert torch.equal(logits(ours, tokens)[real], model(tokens)[0][real]), name


def test_exported_folders_load_with_fairseqs_bits(exported):
    tokens = sentences()
    for name, model in exported.models.items():
        loaded = transformers.AutoModelForMaskedLM.from_pretrained(exported.folder / name)
        with torch.no_grad():
            assert torch.equal(logits(loaded, tokens)[tokens.ne(1)], model(tokens)[0][tokens.ne(1)]), name


def test_learned_positions_become_transformers_own_roberta(exported):
    config = json.loads((exported.folder / "learned" / "config.json").read_text())
    assert config["architectures"] == ["RobertaForMaskedLM"] and config["max_position_embeddings"] == 34


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
        "attention_window": "3 every.2=none",
    }
    model = trained("roberta_learned", tmp_path / "a.pt", position_layers="2,3", **more, **settings)
    result = export(tmp_path / "a.pt", tmp_path / "a")
    assert (result.model, result.difference) == ("RelPosRobertaForMaskedLM", 0)
    loaded = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "a")
    assert loaded.config.activation_dropout == 0.1 and loaded.config.position_layers == "2,3"
    tied = loaded.lm_head.decoder.weight is loaded.roberta.embed_tokens.weight
    assert tied == (not model.args.untie_weights_roberta)


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


def parts_of(batch):
    """Two parts with unequally many labels."""
    return [{name: value[rows] for name, value in batch.items()} for rows in (slice(0, 2), slice(2, 3))]


@pytest.mark.parametrize("auto", ["AutoModelForMaskedLM", "AutoModelForTokenClassification"])
def test_accumulated_gradients_are_those_of_the_whole_batch(auto, exported):
    """The Trainer counts the labels of all parts, and trusts that the model divides by their number."""
    model = getattr(transformers, auto).from_pretrained(exported.folder / "shape").eval()
    tokens = sentences()
    labels = tokens.masked_fill(tokens.eq(1), -100)
    batch = {"input_ids": tokens, "labels": labels if "Masked" in auto else labels.clamp(max=1)}
    count = labels.ne(-100).sum()
    parts = sum(model(**part, num_items_in_batch=count).loss for part in parts_of(batch))
    torch.testing.assert_close(parts, model(**batch).loss)


def test_the_trainer_divides_the_mean_of_a_head_for_texts():
    means = {hf.RelPosRobertaForSequenceClassification, hf.RelPosRobertaForQuestionAnswering}
    for model in (value for name, value in vars(hf).items() if isinstance(value, type) and "For" in name):
        takes_count = "num_items_in_batch" in inspect.signature(model.forward).parameters
        assert takes_count != (model in means) and getattr(model, "accepts_loss_kwargs", True) == takes_count


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


@pytest.mark.parametrize("name", ["tupe_r", "learned"])
def test_a_head_for_sentences_comes_along_with_the_names_of_its_classes(name, tmp_path):
    model = trained(f"roberta_{name}", tmp_path / "a.pt", head=True)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/labels.txt").write_text("bad\ngood\nmixed\n")
    (tmp_path / "data/dict.txt").write_text("".join(f"w{i} 1\n" for i in range(40)))
    result = export(tmp_path / "a.pt", tmp_path / "a", tmp_path / "data")
    assert result.model.endswith("ForSequenceClassification") and result.left_out == ["encoder.lm_head"]
    loaded = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "a")
    assert loaded.config.id2label == {0: "bad", 1: "good", 2: "mixed"}
    tokens = sentences()
    with torch.no_grad():
        assert torch.equal(logits(loaded, tokens), model(tokens, classification_head_name="mood")[0])
    import_hf(tmp_path / "a", tmp_path / "back")
    back = torch.load(tmp_path / "back/model.pt", weights_only=False)["model"]
    for key, weight in model.classification_heads["mood"].state_dict().items():
        assert torch.equal(back[f"classification_heads.sentence_classification_head.{key}"], weight), key


def with_span_head(path):
    model = trained("roberta_tupe_r", path)
    span_head.add_span_head(model, 24)
    save(model, path)
    return model


def test_a_head_for_answers_comes_along(tmp_path):
    model = with_span_head(tmp_path / "a.pt")
    assert export(tmp_path / "a.pt", tmp_path / "a").model == "RelPosRobertaForQuestionAnswering"
    loaded = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path / "a")
    tokens = sentences()
    with torch.no_grad():
        out = loaded(input_ids=tokens, attention_mask=tokens.ne(1).long())
        wanted = model(tokens)[tokens.ne(1)]
    assert torch.equal(torch.stack([out.start_logits, out.end_logits], -1)[tokens.ne(1)], wanted)


RATE = {"lr": 1e-3, "betas": (0.9, 0.98), "eps": 1e-6, "weight_decay": 0.01}


def losses_in_fairseq(model, criterion, sample):
    """The mean losses of a sample before and after a step of fairseq's Adam, whose gradients are clipped."""
    eps = 1e-6 * (1 - 0.98) ** 0.5  # in the first step torch's AdamW divides the other root by this
    settings = Namespace(
        **{"lr": [1e-3], "adam_betas": "(0.9, 0.98)", "adam_eps": eps, "weight_decay": 0.01},
        **{"use_old_adam": True, "fp16_adam_stats": False},
    )
    optimizer = FairseqAdam(settings, [parameter for parameter in model.parameters() if parameter.requires_grad])
    loss, size, _ = criterion(model, sample)
    optimizer.backward(loss)
    optimizer.multiply_grads(1 / size)
    optimizer.clip_grad_norm(1.0)
    optimizer.step()
    return torch.stack([loss, criterion(model, sample)[0]]).detach() / size


def losses_in_transformers(model, batch):
    """The same, as a script of transformers trains."""
    for name, parameter in model.named_parameters():  # a vector more than fairseq has
        parameter.requires_grad_("token_type_embeddings" not in name)
    optimizer = torch.optim.AdamW(model.parameters(), **RATE)
    loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return torch.stack([loss, model(**batch).loss]).detach()


def loaded_without_dropout(auto, folder):
    model = getattr(transformers, auto).from_pretrained(
        folder, hidden_dropout_prob=0, attention_probs_dropout_prob=0, classifier_dropout=0
    )
    return model.train()


@pytest.mark.parametrize("name", ["tupe_r", "learned"])
def test_a_step_of_fine_tuning_for_classes_is_fairseqs(name, tmp_path):
    model = trained(f"roberta_{name}", tmp_path / "a.pt", head=True)
    export(tmp_path / "a.pt", tmp_path / "a")
    settings = SentencePredictionConfig(classification_head_name="mood")
    criterion = SentencePredictionCriterion(settings, SimpleNamespace(label_dictionary=None))
    tokens, labels = sentences(), torch.tensor([2, 0, 1])
    sample = {"net_input": {"src_tokens": tokens, "src_lengths": None}, "target": labels, "ntokens": tokens.numel()}
    wanted = losses_in_fairseq(model, criterion, sample)  # its dropout is off, as after loading
    batch = {"input_ids": tokens, "attention_mask": tokens.ne(1).long(), "labels": labels}
    found = losses_in_transformers(loaded_without_dropout("AutoModelForSequenceClassification", tmp_path / "a"), batch)
    assert wanted[0] - wanted[1] > 0.01  # the step has done something
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


def test_a_step_of_fine_tuning_for_answers_is_fairseqs(tmp_path):
    model = with_span_head(tmp_path / "a.pt")
    export(tmp_path / "a.pt", tmp_path / "a")
    tokens = torch.cat([sentences(batch=1), sentences(batch=1).roll(3, 1)])
    answers = torch.tensor([[3, 5], [0, 16]])
    sample = {
        **{"net_input": {"src_tokens": tokens, "src_lengths": None}, "allowed": torch.ones_like(tokens).bool()},
        **{"target": answers, "ntokens": tokens.numel()},
    }
    wanted = losses_in_fairseq(model, SpanPredictionCriterion(SimpleNamespace()), sample)
    batch = {"input_ids": tokens, "start_positions": answers[:, 0], "end_positions": answers[:, 1]}
    found = losses_in_transformers(loaded_without_dropout("AutoModelForQuestionAnswering", tmp_path / "a"), batch)
    assert wanted[0] - wanted[1] > 0.01
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


# vocabularies

#: runs of characters that SentencePiece does not know, accents of their own, symbols of the dictionary
UNKNOWN = [
    "\u4f60\u597d",
    "a \u4f60 \u4f60\u597d\u4f60b",
    "\U0001f600\U0001f600 dog",
    "e\u0301 a\u0308",
    "\uac00\u1112\u1161\u11ab",
]
UNKNOWN += ["madeupword0000", "the <0x41> \u2581", "<sep>fox \x00"]


@pytest.mark.parametrize("kind", VOCABULARIES)
def test_the_exported_tokenizer_gives_fairseqs_ids(kind, tmp_path):
    VOCABULARIES[kind](tmp_path / "data")
    words, tokenizer = exported_tokenizer(tmp_path / "data", tmp_path / "out")
    size = len(words.dictionary)
    assert words.fast is not None
    texts = [*words.texts(), *LINES[:3], "nobody likes the dog dogs", "Ärger  mit  Ümlauten", "of", "small <sep> of"]
    texts += ["<sep>", "fox<sep>>dog <sep>", "other northern people", "a mark \u2581"]
    texts += UNKNOWN[:3]
    texts += ["the madeupword0", "<sep>madeupword0<sep>", "a <0x41>"]  # names in the dictionary that are no pieces
    for text, ids in zip(texts, tokenizer(texts, verbose=False)["input_ids"]):
        assert ids == words.ids(text), text
    pair = tokenizer("of the", "a dog")["input_ids"]
    assert pair == [*words.ids("of the"), 2, *words.ids("a dog")[1:]]
    masked = tokenizer("The <mask> brown fox")["input_ids"]
    assert masked.count(tokenizer.mask_token_id) == 1 and tokenizer.mask_token_id == size - 1
    if kind != "bytes":  # which keeps the blank before it
        assert masked.index(size - 1) == len(words.ids("The")) - 1
    assert tokenizer.decode(tokenizer(LINES[0])["input_ids"], skip_special_tokens=True) == LINES[0]


def test_text_in_lower_case_gets_the_letters_of_python(tmp_path):
    words_folder(tmp_path / "data")
    symbols = Dictionary.load(str(tmp_path / "data/dict.txt")).symbols
    tokenizer, _ = fast_tokenizer.from_folder(tmp_path / "data", [*symbols, "<mask>"], lowercase=True)
    for text in ("ΟΔΟΣ ΣΑΣ Σ Σ. ΑΣ'Α ΑΣ' ΑΣ\u0301. ΑΣ3", "\u0130stanbul", "\u1e9e \ufb01 \u01c5"):
        assert tokenizer.normalizer.normalize_str(text) == text.lower()


def test_a_vocabulary_that_no_tokenizer_can_follow_is_refused(tmp_path):
    for kind in ("bpe", "gpt2"):
        folder = tmp_path / kind
        VOCABULARIES[kind](folder)
        kept = (folder / "dict.txt").read_text(encoding="utf-8").splitlines(keepends=True)[:-10]
        (folder / "dict.txt").write_text("".join(kept), encoding="utf-8")
        if kind == "gpt2":
            with pytest.raises(ValueError, match=r"pieces that are not in dict.txt"):
                Words(folder, len(kept) + 5, Path("a.pt"))
        for name, what in {"spm.model": "pieces of SentencePiece: give", "vocab.bpe": "byte-level BPE: give"}.items():
            if (folder / name).exists():
                (folder / name).unlink()
                with pytest.raises(ValueError, match=what):
                    Words(folder, len(kept) + 5, Path("a.pt"))


def ids_of_fairseq(folder):
    """What fairseq reads: SentencePiece's pieces by their names in dict.txt."""
    import sentencepiece

    words = Dictionary.load(str(folder / "dict.txt"))
    encode = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spm.model")).encode
    return lambda text: [0, *map(words.index, encode(text, out_type=str)), 2]


@pytest.mark.parametrize("kind", ORDINARY)
def test_the_dictionary_of_fairseq_preprocess_gives_fairseqs_ids(kind, tmp_path):
    folder, out = tmp_path / "data", tmp_path / "out"
    ordinary_folder(folder, **ORDINARY[kind])
    words, tokenizer = exported_tokenizer(folder, out)
    size = len(words.dictionary)
    assert "in Python" in words.kind
    wanted = ids_of_fairseq(folder)
    texts = [*words.texts(), *LINES[:3], *UNKNOWN, "nobody likes the dog dogs", "\xc4rger  mit  \xdcmlauten"]
    assert any(3 in wanted(text) for text in texts)
    for text, ids in zip(texts, tokenizer(texts, verbose=False)["input_ids"]):
        assert ids == wanted(text), text
    pair = tokenizer("of the", "a dog", return_token_type_ids=True)
    assert pair["input_ids"] == [*wanted("of the"), 2, *wanted("a dog")[1:]] and not any(pair["token_type_ids"])
    masked = tokenizer("The <mask> brown fox")["input_ids"]
    assert masked == [*wanted("The")[:-1], size - 1, *wanted("brown fox")[1:]]
    assert len(tokenizer) == tokenizer.vocab_size == size


def test_a_tokenizer_in_python_is_saved_copied_and_decodes(tmp_path):
    ordinary_folder(tmp_path / "data")
    _, tokenizer = exported_tokenizer(tmp_path / "data", tmp_path / "a")
    tokenizer.save_pretrained(tmp_path / "b")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["spm.model", "tokenizer_config.json", "vocab.json"]
    for name in ("spm.model", "vocab.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    ids = tokenizer(LINES[0])["input_ids"]
    for other in (transformers.AutoTokenizer.from_pretrained(tmp_path / "b"), copy.deepcopy(tokenizer)):
        assert other(LINES[0])["input_ids"] == ids and other.model_max_length == 32
    assert pickle.loads(pickle.dumps(tokenizer))(LINES[0])["input_ids"] == ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == LINES[0]
    assert tokenizer.decode(tokenizer("The <mask> fox")["input_ids"]) == "<s> The<mask> fox</s>"
    assert tokenizer.add_tokens(["brandnew"]) == 1
    assert tokenizer("The brandnew fox")["input_ids"][-3:-1] != [3, 3] and len(tokenizer) == tokenizer.vocab_size + 1


def test_a_tokenizer_in_python_puts_text_in_lower_case_and_comes_back_with_it(tmp_path):
    ordinary_folder(tmp_path / "data")
    (tmp_path / "data/manifest.json").write_text('{"settings": {"lowercase": true}}')
    words, tokenizer = exported_tokenizer(tmp_path / "data", tmp_path / "out")
    wanted = ids_of_fairseq(tmp_path / "data")("\u03b1\u03c2 the fox")
    assert tokenizer("\u0391\u03a3 The FOX")["input_ids"] == wanted
    config = SimpleNamespace(values={"pad_token_id": 1})
    (tmp_path / "back").mkdir()
    Pieces.of(tmp_path / "out", "relpos_roberta", len(words.dictionary), config).write(tmp_path / "back")
    assert [0, *Vocabulary(tmp_path / "back").encode("\u0391\u03a3 The FOX").tolist()] == wanted


def test_a_dictionary_with_half_of_32000_pieces_gives_fairseqs_ids(tmp_path):
    letters = "abcdefghijklmnopqrstuvwxyz"
    pairs = [first + second for first in letters for second in letters]
    pieces = [*pairs, *(pair + letter for pair in pairs for letter in letters)]
    pieces += [first + second for first in pairs for second in pairs][: 32000 - len(pieces) - 27]
    proto = fast_tokenizer.sentencepiece_proto(os.devnull)
    proto.trainer_spec.model_type = proto.trainer_spec.BPE
    for special, kind in {"<unk>": 2, "<s>": 3, "</s>": 3}.items():
        proto.pieces.add(piece=special, score=0, type=kind)
    for number, piece in enumerate([*pieces, "\u2581", *letters]):
        proto.pieces.add(piece=piece, score=-number)
    (tmp_path / "spm.model").write_bytes(proto.SerializeToString())
    kept = [*pieces[::2], "\u2581", *letters[5:]]
    (tmp_path / "dict.txt").write_text("".join(f"{piece} 1\n" for piece in kept), encoding="utf-8")
    _, tokenizer = exported_tokenizer(tmp_path, tmp_path / "out")
    wanted = ids_of_fairseq(tmp_path)
    draw = random.Random(1)
    texts = ["".join(draw.choices(letters + "  \xe4", k=40)) for _ in range(200)]
    for text, ids in zip(texts, tokenizer(texts)["input_ids"]):
        assert ids == wanted(text), text
    assert 0.2 < sum(text.count(3) for text in map(wanted, texts)) / sum(map(len, map(wanted, texts))) < 0.8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tupe_r", "learned"])
def test_a_model_with_an_ordinary_dictionary_is_exported_fills_masks_trains_and_comes_back(name, tmp_path, capsys):
    pytest.importorskip("accelerate")
    trained(f"roberta_{name}", tmp_path / "a.pt")
    ordinary_folder(tmp_path / "data", nwords=42, padding_factor=4)  # with the size of the model
    out = tmp_path / "out"
    assert main(["export-hf", str(tmp_path / "a.pt"), str(out), "--data", str(tmp_path / "data")]) == 0
    assert re.search(r"in Python: \d+ of its \d+ pieces are not in dict.txt", capsys.readouterr().out)
    assert f"import fairseq_relpos.hf  # {install_package('hf')}\n" in (out / "README.md").read_text()
    answers = transformers.pipeline("fill-mask", model=str(out))("The <mask> fox")
    assert len(answers) == 5 and all(answer["sequence"].endswith(" fox") for answer in answers)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    model = transformers.AutoModelForMaskedLM.from_pretrained(out)
    settings = transformers.TrainingArguments(tmp_path / "run", max_steps=1, use_cpu=True, report_to=[])
    rows = [tokenizer("The quick fox")] * 8
    collator = transformers.DataCollatorForLanguageModeling(tokenizer)
    trainer = transformers.Trainer(model, settings, collator, rows, processing_class=tokenizer)
    assert trainer.train().training_loss > 0
    trainer.save_model(tmp_path / "tuned")
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "tuned")("The fox") == tokenizer("The fox")
    import_hf(out, tmp_path / "back")
    assert [0, *Vocabulary(tmp_path / "back").encode(UNKNOWN[0]).tolist()] == tokenizer(UNKNOWN[0])["input_ids"]


def test_pieces_of_words_are_not_taken_for_words(tmp_path):
    for lines, what in {"##ing 1\nwalk 1\n": "WordPiece", "walk@@ 1\ning 1\n": "subword-nmt"}.items():
        (tmp_path / "dict.txt").write_text(lines)
        with pytest.raises(ValueError, match=what):
            Words(tmp_path, 7, Path("a.pt"))


@pytest.fixture
def with_words(tmp_path):
    """A checkpoint of a model for the words w0 to w39, and the folder of its data."""
    trained("roberta_tupe_r", tmp_path / "a.pt")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/dict.txt").write_text("".join(f"w{i} 1\n" for i in range(40)))
    return tmp_path


def test_a_dictionary_that_is_not_the_trainings_is_refused(with_words, monkeypatch, capsys):
    monkeypatch.chdir(with_words)
    shutil.copytree("data", "elsewhere")  # the folder of the training, by its saved settings
    assert main(["export-hf", "a.pt", "right", "--data", "data"]) == 0
    words = Path("data/dict.txt").read_text().splitlines(keepends=True)
    Path("data/dict.txt").write_text("".join(reversed(words)))
    assert main(["export-hf", "a.pt", "wrong", "--data", "data"]) == 1
    assert "trained with the dictionary elsewhere/dict.txt" in capsys.readouterr().err and not Path("wrong").exists()


def test_the_command_exports_what_fills_a_mask_and_says_what_to_do(with_words, capsys, monkeypatch):
    def connect(*unused):
        raise AssertionError("something tries to reach a network")

    monkeypatch.setattr(socket.socket, "connect", connect)
    command = ["export-hf", str(with_words / "a.pt"), str(with_words / "out"), "--data", str(with_words / "data")]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "RelPosRobertaForMaskedLM" in printed and "differ from fairseq's by 0 " in printed
    card = (with_words / "out/README.md").read_text()
    assert "`tupe_r`" in card and "FILL IN" in card and "pe:tupe_r" in card
    fill = transformers.pipeline("fill-mask", model=str(with_words / "out"))
    answers = fill("w3 <mask> w5")
    assert len(answers) == 5 and all(answer["token_str"] for answer in answers)


def test_wrong_input_of_the_export_is_one_line_and_writes_nothing(with_words, capsys, monkeypatch):
    monkeypatch.chdir(with_words)
    trained("roberta_tupe_r", "heads.pt", head=True)
    state = torch.load("heads.pt", weights_only=False)
    state["model"].update({k.replace("mood", "other"): v for k, v in state["model"].items() if "mood" in k})
    torch.save(state, "heads.pt")
    trained("roberta_tupe_r", "mean.pt", head=True, pooling="mean")
    Path("small").mkdir()
    Path("small/dict.txt").write_text("w0 1\n")
    Path("there").mkdir()
    for arguments, what in {
        "none.pt out": "none.pt is no file",
        "a.pt there": "there is there already",
        "a.pt no/where": "there is no folder no",
        "a.pt out --data there": "no dict.txt in there",
        "a.pt out --data small": "make 6 words, a.pt has 45",
        "heads.pt out": "has the heads mood, other: choose one by --head",
        "heads.pt out --head third": "no classification head third",
        "mean.pt out": "its head reads by --pooling mean",
        "data/dict.txt out": "no checkpoint",
    }.items():
        assert_refused(["export-hf", *arguments.split()], what, capsys)


def test_an_export_that_differs_is_not_written(with_words, monkeypatch):
    as_it_is = to_transformers.as_transformers

    def moved(*arguments):
        model = as_it_is(*arguments)
        with torch.no_grad():
            model.roberta.encoder.layers[0].fc1.bias.add_(0.01)
        return model

    monkeypatch.setattr(to_transformers, "as_transformers", moved)
    with pytest.raises(ValueError, match="differ by .* from fairseq's"):
        export(with_words / "a.pt", with_words / "out")
    monkeypatch.undo()
    monkeypatch.setattr(Words, "ids", lambda *unused: [0, 2])
    with pytest.raises(ValueError, match="other ids"):
        export(with_words / "a.pt", with_words / "out", with_words / "data")
    assert sorted(path.name for path in with_words.iterdir()) == ["a.pt", "data"]


def test_weights_of_another_encoding_are_refused(with_words):
    export(with_words / "a.pt", with_words / "out")
    config = with_words / "out/config.json"
    config.write_text(config.read_text().replace("num_buckets=32", "num_buckets=16"))
    with pytest.raises(ValueError, match="restore the config.json"):
        transformers.AutoModel.from_pretrained(with_words / "out")


# import

GOLDEN = PACKAGE / "tests/fixtures/golden/hf"


def read_by_fairseq(folder):
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(folder / "model.pt")], {"data": str(folder)})
    return model.eval()


def new_ids(folder, kind):
    """The new id of each old one."""
    config = from_transformers.Config(folder)
    order = Pieces.of(folder, kind, config.values["vocab_size"], config).order
    return torch.tensor(order).argsort()


@pytest.mark.parametrize(
    "name, arch",
    {
        "bert_relative_key_query": "roberta_m4",
        "deberta": "roberta_deberta",
        "deberta_v2": "roberta_deberta",
        "roberta_relative_key": "roberta_shaw",
    }.items(),
)
def test_models_with_relative_positions_are_imported_with_their_outputs_and_words(name, arch, tmp_path):
    source, out = GOLDEN / name, tmp_path / "out"
    imported = import_hf(source, out)
    assert (imported.args.arch, imported.fresh, imported.left_out) == (arch, [], [])
    model, golden = read_by_fairseq(out), np.load(source / "io.npz")
    ids = new_ids(source, json.loads((source / "config.json").read_text())["model_type"])
    for batch in ("b0", "b2"):
        if f"{batch}_input_ids" in golden:
            old = torch.from_numpy(golden[f"{batch}_input_ids"].astype(np.int64))
            real = old.ne(-1) if batch == "b2" else torch.from_numpy(golden["b0_attention_mask"] > 0)
            with torch.no_grad():
                states, scores = (model(ids[old].masked_fill(~real, 1), features_only=f)[0] for f in (True, False))
            what, ours = ("b0_last_hidden", states) if batch == "b0" else ("b2_logits", scores[..., ids])
            torch.testing.assert_close(ours[real], torch.from_numpy(golden[what])[real], rtol=0, atol=5e-5)
    words = Vocabulary(out)
    for text, old, real in zip(golden["texts"], golden["b0_input_ids"], golden["b0_attention_mask"]):
        wanted = ids[torch.from_numpy(old[real > 0].astype(np.int64))].tolist()
        found = [0, *words.encode(str(text)).tolist()]
        assert found[: len(wanted) - 1] == wanted[:-1]  # what is longer was cut there
    back = export(out / "model.pt", tmp_path / "back", out)
    assert back.difference == 0 and back.texts > 9


def test_settings_that_begin_with_a_byte_order_mark_are_read(tmp_path):
    given = (GOLDEN / "deberta" / "config.json").read_bytes()
    (tmp_path / "config.json").write_bytes(codecs.BOM_UTF8 + given)
    (tmp_path / "tokenizer_config.json").write_bytes(codecs.BOM_UTF8 + b'{"do_lower_case": true}')
    assert from_transformers.read(tmp_path / "config.json") == json.loads(given)
    assert settings_of(tmp_path) == {"do_lower_case": True}


SIZES = {
    **{"vocab_size": 120, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3},
    **{"intermediate_size": 48, "max_position_embeddings": 26},
}


def save_with_words(model, folder):
    """A folder of save_pretrained with a WordPiece vocabulary of 120 words."""
    moved(model).save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(115))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    return model


def xlm_roberta(folder):
    """A folder of XLM-R with its SentencePiece model alone."""
    sentencepiece_folder(folder, "unigram")
    (folder / "dict.txt").unlink()
    (folder / "spm.model").rename(folder / "sentencepiece.bpe.model")
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
    size = processor.get_piece_size() + 2
    config = transformers.XLMRobertaConfig(**SIZES | {"vocab_size": size}, layer_norm_eps=1e-5)
    model = moved(transformers.XLMRobertaForMaskedLM(config))
    model.save_pretrained(folder)
    return model, config


@pytest.mark.parametrize("kind", ["bert", "roberta", "roberta_untied", "xlm-roberta"])
def test_transformers_own_models_are_imported_and_go_back(kind, tmp_path):
    if kind == "bert":
        config = transformers.BertConfig(**SIZES)
        model = save_with_words(transformers.BertForMaskedLM(config), tmp_path / "a")
    elif kind == "xlm-roberta":
        model, config = xlm_roberta(tmp_path / "a")
    else:
        config = transformers.RobertaConfig(**SIZES, layer_norm_eps=1e-5, tie_word_embeddings=kind == "roberta")
        model = transformers.RobertaForMaskedLM(config)
        words_folder(tmp_path / "words")
        dictionary = Dictionary.load(str(tmp_path / "words/dict.txt"))
        symbols = [*dictionary.symbols, *(f"madeupword{i}" for i in range(119 - len(dictionary))), "<mask>"]
        moved(model).save_pretrained(tmp_path / "a")
        for name, text in fast_tokenizer.files_of(fast_tokenizer.words(symbols), 24).items():
            (tmp_path / "a" / name).write_text(text, encoding="utf-8")
    imported = import_hf(tmp_path / "a", tmp_path / "out")
    assert imported.args.arch == "roberta_learned" and getattr(imported.args, "layer_norm_eps", 1e-5) == (
        config.layer_norm_eps
    )
    assert imported.args.untie_weights_roberta == (kind == "roberta_untied")
    ids = new_ids(tmp_path / "a", kind.split("_")[0])
    old = torch.randint(5, config.vocab_size - 1, (3, 9))
    with torch.no_grad():
        ours = read_by_fairseq(tmp_path / "out")(ids[old])[0][..., ids]
    torch.testing.assert_close(ours, logits(model, old), rtol=0, atol=5e-5)
    assert export(tmp_path / "out/model.pt", tmp_path / "back", tmp_path / "out").difference < 1e-5
    back = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "back")
    torch.testing.assert_close(logits(back, ids[old])[..., ids], logits(model, old), rtol=0, atol=5e-5)


def save_a_bart(folder):
    config = transformers.BartConfig(
        **{"vocab_size": 60, "d_model": 24, "encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 48},
        **{"decoder_ffn_dim": 40, "encoder_attention_heads": 3, "decoder_attention_heads": 2},
        **{"max_position_embeddings": 20},
    )
    model = moved(transformers.BartForConditionalGeneration(config))
    model.save_pretrained(folder)
    symbols = ["<s>", "<pad>", "</s>", "<unk>", *(f"w{i}" for i in range(55)), "<mask>"]
    for name, text in fast_tokenizer.files_of(fast_tokenizer.words(symbols), 20).items():
        (folder / name).write_text(text, encoding="utf-8")
    return model


def test_a_bart_becomes_a_translation_model(tmp_path):
    model = save_a_bart(tmp_path / "a")
    assert main(["import-hf", str(tmp_path / "a"), str(tmp_path / "out")]) == 0
    source, previous = torch.randint(4, 59, (2, 7)), torch.randint(4, 59, (2, 5))
    state = torch.load(tmp_path / "out/model.pt", weights_only=False)
    words = Dictionary.load(str(tmp_path / "out/dict.txt"))
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    ours = ARCH_MODEL_REGISTRY["transformer_learned"].build_model(state["cfg"]["model"], task).eval()
    ours.load_state_dict(state["model"])
    with torch.no_grad():
        wanted = model(input_ids=source, decoder_input_ids=previous).logits
        found = ours(source, torch.full((2,), 7), previous)[0]
    torch.testing.assert_close(found, wanted, rtol=0, atol=5e-5)
    # and from there bart_NAME, with all that fits
    for arch, table in (("bart_learned", {}), ("bart_t5", {"encoder.embed_positions.b", "decoder.embed_positions.b"})):
        done = start_encoder_decoder(tmp_path / "out/model.pt", tmp_path / f"{arch}.pt", arch)
        assert set(done.fresh) == set(table)
    state = torch.load(tmp_path / "bart_learned.pt", weights_only=False)
    bart = ARCH_MODEL_REGISTRY["bart_learned"].build_model(state["cfg"]["model"], task).eval()
    bart.load_state_dict(state["model"])
    assert torch.equal(bart(source, torch.full((2,), 7), previous)[0], found)


def test_fine_tuning_starts_from_an_import_with_its_own_eps(tmp_path, capsys):
    save_with_words(transformers.BertForMaskedLM(transformers.BertConfig(**SIZES)), tmp_path / "a")
    assert main(["import-hf", str(tmp_path / "a"), str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "--arch roberta_learned" in printed and "--layer-norm-eps 1e-12" in printed
    model = read_by_fairseq(tmp_path / "out")
    assert {module.eps for module in model.modules() if isinstance(module, torch.nn.LayerNorm)} == {1e-12}


def change(folder, **settings):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **settings}))


class Hostile:
    def __reduce__(self):
        return os.system, ("touch HACKED",)


def bin_of(content):
    def put(folder):
        (folder / "model.safetensors").unlink()
        torch.save(content, folder / "pytorch_model.bin")

    return put


def with_weights(edit):
    def put(folder):
        weights = load_file(folder / "model.safetensors")
        edit(weights)
        save_file(weights, folder / "model.safetensors")

    return put


WORDS = "bert.embeddings.word_embeddings.weight"
BIAS = "bert.encoder.layer.1.output.dense.bias"
DISTANCES = "bert.encoder.layer.0.attention.self.distance_embedding.weight"
WRONG = {
    "no config.json": lambda a: (a / "config.json").unlink(),
    "config.json is no JSON": lambda a: (a / "config.json").write_text("{"),
    "model_type is 't5'": lambda a: change(a, model_type="t5"),
    "position_embedding_type is 'rotary'": lambda a: change(a, position_embedding_type="rotary"),
    "hidden_act is 'mish'": lambda a: change(a, hidden_act="mish"),
    "config.json has no hidden_size": lambda a: change(a, hidden_size=None),
    "promises a model of": lambda a: change(a, hidden_size=999),
    "have no bert.encoder.layer.2.attention": lambda a: change(a, num_hidden_layers=5),
    "the weights have bert.encoder.layer.1.attention": lambda a: change(a, num_hidden_layers=1),
    "are not tied, but the weights have no": lambda a: change(a, tie_word_embeddings=False),
    "are tied, but": with_weights(lambda w: w.update({"cls.predictions.decoder.weight": w[WORDS] + 1})),
    f"have no {BIAS}": with_weights(lambda w: w.pop(BIAS)),
    "contradicts itself": with_weights(lambda w: w.update({BIAS: torch.zeros(7)})),
    "no model.safetensors or pytorch_model.bin": lambda a: (a / "model.safetensors").unlink(),
    "is damaged or no safetensors file": lambda a: (a / "model.safetensors").write_bytes(b"none"),
    "contains posix.system, which could run any code: not read": bin_of({WORDS: Hostile()}),
    "has something else than weights": bin_of([1, 2]),
    "no tokenizer in": lambda a: (a / "vocab.txt").unlink(),
    "the model has 120 embeddings": lambda a: (a / "vocab.txt").write_text("[PAD]\n" + (a / "vocab.txt").read_text()),
    "has no [MASK], which fairseq needs": lambda a: (a / "vocab.txt").write_text(
        (a / "vocab.txt").read_text().replace("[MASK]\n", "")
    ),
    f"the weights have {DISTANCES}, but not for a bert": with_weights(
        lambda w: w.update({DISTANCES: torch.zeros(51, 8)})
    ),
    "quantized weights are not served": lambda a: change(a, quantization_config={"bits": 8}),
    "word_embeddings.weight is of type torch.int32": with_weights(lambda w: w.update({WORDS: w[WORDS].int()})),
    "pad_token_id is 7 in config.json": lambda a: change(a, pad_token_id=7),
    "fc1.weight is [48, 24] in it and [49, 24] here": lambda a: change(a, intermediate_size=49),
    "absolute positions end at 26, 27 are asked for": lambda a: change(a, max_position_embeddings=27),
}


def test_wrong_input_of_the_import_is_one_line_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_with_words(transformers.BertForMaskedLM(transformers.BertConfig(**SIZES)), tmp_path / "good")
    for what, spoil in WRONG.items():
        shutil.copytree("good", "a")
        spoil(tmp_path / "a")
        assert_refused(["import-hf", "a", "out"], what, capsys)
        shutil.rmtree("a")
    Path("out").mkdir()
    assert_refused(["import-hf", "good", "out"], "out is there already", capsys)


@pytest.mark.parametrize(
    "kind, settings, what",
    [
        ("bart", {"encoder_layers": 5}, "no weight for encoder.layers.2"),
        ("bart", {"d_model": 10**9}, "promises a model of"),
        ("ours", {"num_hidden_layers": 10**9}, "promises a model of"),
        ("bart", {"decoder_ffn_dim": 41}, "fc1.weight is [40, 24] in it and [41, 24] here"),
        ("bart", {"max_position_embeddings": 21}, "absolute positions end at 20, 21 are asked for"),
        ("ours", {"num_hidden_layers": 1}, "it has besides encoder.sentence_encoder.layers.1"),
        ("ours", {"max_position_embeddings": 5}, "absolute positions end at"),
        ("ours", {"position_hparams": "num_buckets=8"}, "use the same --arch and --position-"),
        ("deberta", {"position_biased_input": True}, "position_biased_input is True"),
        ("deberta", {"relative_attention": False}, "relative_attention is not true"),
        ("deberta", {"pos_att_type": ["c2p", "p2p"]}, "pos_att_type is ['c2p', 'p2p']"),
        ("deberta", {"norm_rel_ebd": "batch"}, "norm_rel_ebd is 'batch'"),
        ("deberta", {"position_buckets": 9}, "embed_positions.a is [16, 32] in it and [18, 32] here"),
    ],
)
def test_settings_that_an_import_cannot_follow_are_refused_by_name(kind, settings, what, with_words, tmp_path):
    if kind == "bart":
        save_a_bart(tmp_path / "a")
    elif kind == "ours":
        export(with_words / "a.pt", tmp_path / "a", with_words / "data")
    else:
        shutil.copytree(GOLDEN / "deberta_v2", tmp_path / "a")
    change(tmp_path / "a", **settings)
    with pytest.raises(ValueError, match=re.escape(what)):
        import_hf(tmp_path / "a", tmp_path / "out")


def test_an_exported_folder_comes_back(with_words):
    export(with_words / "a.pt", with_words / "out", with_words / "data")
    assert import_hf(with_words / "out", with_words / "back").args.arch == "roberta_tupe_r"
    before = torch.load(with_words / "a.pt", weights_only=False)["model"]
    after = read_by_fairseq(with_words / "back").state_dict()
    assert all(torch.equal(tensor, before[key]) for key, tensor in after.items())
