"""Language models for Hugging Face transformers, against fairseq's: logits, and the texts that both generate."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
import pythons
import torch
from fairseq.data import data_utils
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from refusals import assert_refused
from small_models import LANGUAGE_MODEL_SIZES, assert_trains, dictionary, language_model, moved, save, transformer
from vocabularies import LINES, VOCABULARIES, exported_tokenizer, ordinary_folder

pytest.importorskip("transformers", "5.4", reason='needs transformers 5.4: pip install "fairseq_relpos[hf]"')

import transformers  # noqa: E402

import fairseq_relpos.hf as hf  # noqa: E402
from fairseq_relpos.cli import main  # noqa: E402
from fairseq_relpos.encodings import names_for  # noqa: E402
from fairseq_relpos.exchange import language_model_to_transformers as to_transformers  # noqa: E402
from fairseq_relpos.exchange.export import export  # noqa: E402
from fairseq_relpos.exchange.trained_models import searched, translated_by_fairseq  # noqa: E402

TIED = {"share_decoder_input_output_embed": True}


def small(name, words=4, **settings):
    """A model with so few words that its texts end soon."""
    model = moved(language_model(f"transformer_lm_{name}", words=words, **TIED, **settings))
    return model, to_transformers.as_transformers(model, model.args, "</s>")


def saved(model, path, **settings):
    save(model, path, **{"task": "language_modeling", "criterion": "cross_entropy", "data": "elsewhere", **settings})
    return path


PROMPTS = [torch.tensor(row) for row in ([2, 4, 5, 6, 4], [2, 6], [2, 5, 5])]


def continued(model, **settings):
    """The output of ``generate`` after PROMPTS, which are padded to the left: lists of tokens without the first one."""
    prompts = data_utils.collate_tokens(PROMPTS, 1, left_pad=True)
    rows = model.generate(prompts, attention_mask=prompts.ne(1).long(), max_length=5 + 9, **settings).tolist()
    return [[token for token in row if token != 1][1:] for row in rows]


def continued_by_fairseq(model, beam, **settings):
    found = []
    for row in PROMPTS:
        prompt = row[None, 1:]
        how = {"prefix_tokens": prompt, "bos_token": 2}
        found += searched(model, {"src_tokens": prompt}, beam, prompt.size(1) + 8, how, **settings)
    return found


def begun(model, beam):
    return model.generate(num_beams=beam, early_stopping=beam > 1, max_length=12)[0, 1:].tolist()


@pytest.mark.slow
def test_every_causal_encoding_has_fairseqs_bits_and_texts():
    """Logits with pads on both sides and without; greedy search and five beams, from nothing and from prompts of
    different lengths. With a prompt the two searches normalise scores differently, so there nothing is normalised."""
    lengths = set()
    for name in names_for(causal=True):
        model, ours = small(name)
        for tokens in to_transformers.batches(model, 2, None, []):
            real = tokens.ne(1)
            with torch.no_grad():
                logits = ours(input_ids=tokens, attention_mask=real.long()).logits
                assert torch.equal(logits[real], model(tokens)[0][real]), name
        for beam in (1, 5):
            assert to_transformers.fairseq_texts(model, 2, beam, 10) == [begun(ours, beam)], (name, beam)
        found = continued(ours, num_beams=1, early_stopping=False)
        assert found == continued_by_fairseq(model, 1), name
        lengths |= {len(text) - len(prompt) for text, prompt in zip(found, PROMPTS)}
        assert continued(ours, length_penalty=0.0) == continued_by_fairseq(model, 5, normalize_scores=False), name
    assert len(lengths) > 2  # some texts end by themselves, others are ended


def test_length_penalties_and_other_lengths_keep_fairseqs_texts():
    model, ours = small("t5")
    for penalty in (0.0, 0.5, 2.0):
        for length in (3, 25):
            wanted = to_transformers.fairseq_texts(model, 2, 5, length, len_penalty=penalty)
            found = ours.generate(length_penalty=penalty, max_length=length + 2)
            assert wanted == [found[0, 1:].tolist()], (penalty, length)


def test_a_text_is_the_same_without_the_cache_and_in_two_pieces():
    _, ours = small("cope")
    assert continued(ours) == continued(ours, use_cache=False)
    tokens = torch.tensor([[2, 4, 5, 6, 4, 5, 5]])
    with torch.no_grad():
        whole = ours(tokens).logits
        first = ours(tokens[:, :3], use_cache=True)
        second = ours(tokens[:, 3:], past_key_values=first.past_key_values)
    torch.testing.assert_close(torch.cat([first.logits, second.logits], 1), whole)
    assert ours(tokens).past_key_values is None
    with pytest.raises(ValueError, match="DynamicCache: an encoding keeps more than keys and values"):
        ours(tokens, past_key_values=transformers.DynamicCache())


def test_the_loss_of_a_training_step_is_fairseqs():
    model, ours = small("shaw", dropout=0.0, attention_dropout=0.0)
    tokens = next(to_transformers.batches(model, 2, None, []))
    logits = model(tokens)[0][:, :-1]
    wanted = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    assert_trains(ours, tokens, tokens, wanted)
    ours.activation_checkpointing_enable()
    assert_trains(ours, tokens, tokens, wanted)


@pytest.mark.parametrize(
    "settings",
    [
        {"decoder_normalize_before": True, "no_decoder_final_norm": True, "activation_fn": "gelu", **TIED},
        {"decoder_normalize_before": True, "layernorm_embedding": True, "no_scale_embedding": True},
        {"decoder_input_dim": 16, "decoder_output_dim": 16, "position_layers": "2", **TIED},
        {"decoder_input_dim": 16, "decoder_output_dim": 8},
        {"position_encoding": "rope", "position_hparams": "layer.2.base=50", "attention_window": "3 1=none"},
        {"position_encoding": "shaw", "randomized_positions": 99},
    ],
)
def test_other_settings_come_along(settings, tmp_path):
    path = saved(moved(language_model("transformer_lm_deberta", **settings)), tmp_path / "a.pt")
    assert export(path, tmp_path / "a").difference == 0
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "a")
    assert (loaded.lm_head.weight is loaded.decoder.embed_tokens.weight) == (TIED.items() <= settings.items())


@pytest.mark.parametrize("learned", [False, True])
def test_stock_fairseqs_language_model_comes_along(learned, tmp_path):
    args = Namespace(**{**LANGUAGE_MODEL_SIZES, **TIED, "decoder_learned_pos": learned, "arch": "transformer_lm_gpt"})
    ARCH_CONFIG_REGISTRY["transformer_lm_gpt"](args)
    words = dictionary()
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    model = moved(ARCH_MODEL_REGISTRY["transformer_lm_gpt"].build_model(args, task))
    model.args = args
    result = export(saved(model, tmp_path / "a.pt"), tmp_path / "a")
    assert (result.model, result.difference) == ("RelPosDecoderForCausalLM", 0)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "a")
    assert loaded.config.position_encoding == ("learned" if learned else "sinusoidal")
    with torch.no_grad():
        tokens = torch.tensor([[2, 4, 5, 6]])
        assert torch.equal(loaded(tokens).logits, model(tokens)[0])


@pytest.mark.slow
def test_exported_models_write_and_translate_the_same_without_fairseq(tmp_path):
    model, _ = small("fire")
    export(saved(model, tmp_path / "a.pt"), tmp_path / "a")
    wanted = to_transformers.fairseq_texts(model, 2, 5, 20)
    translator = moved(transformer("transformer_fire", words=4))
    export(saved(translator, tmp_path / "b.pt", task="translation"), tmp_path / "b")
    source = torch.tensor([[4, 5, 6, 7, 2], [6, 5, 2, 1, 1]])
    translations = translated_by_fairseq(translator, source, 5, 20)
    program = f"""
import sys
sys.modules["fairseq"] = None
import fairseq_relpos.hf
import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM
model = AutoModelForCausalLM.from_pretrained({str(tmp_path / "a")!r})
assert model.generate(max_length=22)[:, 1:].tolist() == {wanted}
model = AutoModelForSeq2SeqLM.from_pretrained({str(tmp_path / "b")!r})
rows = model.generate(torch.tensor({source.tolist()}), max_length=22).tolist()
assert [[token for token in row[1:] if token != 1] for row in rows] == {translations}
"""
    pythons.output("-c", program, HF_HUB_OFFLINE="1")


@pytest.mark.parametrize("kind", [*VOCABULARIES, "ordinary"])
def test_prompts_get_fairseqs_ids(kind, tmp_path):
    """Padded on the left, where ``generate`` needs the pads."""
    {**VOCABULARIES, "ordinary": ordinary_folder}[kind](tmp_path / "data")
    words, tokenizer = exported_tokenizer(tmp_path / "data", tmp_path / "out", start="</s>")
    texts = [*words.texts(), *LINES[:3], "of", *(["of \u4f60\u597d"] if kind == "ordinary" else [])]
    for text, row in zip(texts, tokenizer(texts, verbose=False, padding=True)["input_ids"]):
        wanted = words.ids(text)
        assert wanted[0] == 2 and 2 not in wanted[1:] and row == [1] * (len(row) - len(wanted)) + wanted, text


@pytest.fixture
def with_words(tmp_path):
    """A checkpoint of a model for the words w0 to w39 and <mask>, and the folder of its data."""
    saved(moved(language_model("transformer_lm_tupe_r", **TIED)), tmp_path / "a.pt")
    (tmp_path / "data").mkdir()
    lines = [f"w{i} 1\n" for i in range(40)]
    (tmp_path / "data/dict.txt").write_text("".join([*lines, "<mask> 1\n"]))
    return tmp_path


@pytest.mark.parametrize("add_bos", [False, True])
def test_the_command_exports_what_continues_a_text(add_bos, with_words, capsys):
    if add_bos:
        saved(moved(language_model("transformer_lm_tupe_r", **TIED)), with_words / "a.pt", add_bos_token=True)
    out = str(with_words / "out")
    assert main(["export-hf", str(with_words / "a.pt"), out, "--data", str(with_words / "data")]) == 0
    assert "RelPosDecoderForCausalLM" in capsys.readouterr().out
    card = (with_words / "out/README.md").read_text()
    assert "text-generation" in card and "AutoModelForCausalLM" in card and "pe:tupe_r" in card
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    begin = 0 if add_bos else 2
    assert tokenizer(["w3 w4", "w5"], padding=True)["input_ids"] == [[begin, 7, 8], [1, begin, 9]]
    write = transformers.pipeline("text-generation", model=out)
    (text,) = write("w3 w4", max_new_tokens=5)
    assert text["generated_text"].startswith("w3 w4") and len(text["generated_text"]) > 5
    ids = write.model.generate(**tokenizer("w3 w4", return_tensors="pt"), max_new_tokens=5)[0]
    assert len(ids) == 8 and tokenizer.decode(ids, skip_special_tokens=True).startswith("w3 w4 w")


def test_a_number_of_new_tokens_generates_without_a_warning(with_words, monkeypatch):
    export(with_words / "a.pt", with_words / "out", with_words / "data")
    warned = []
    monkeypatch.setattr(transformers.generation.utils.logger, "warning", warned.append)
    write = transformers.pipeline("text-generation", model=str(with_words / "out"))
    prompts = write.tokenizer(["w3 w4", "w5"], padding=True, return_tensors="pt")
    assert write.model.generate(**prompts, max_new_tokens=5).shape == (2, 8)
    assert write("w3 w4", max_new_tokens=5) and not warned


def test_what_cannot_be_exported_is_refused_by_name_and_nothing_is_written(with_words, capsys, monkeypatch):
    monkeypatch.chdir(with_words)
    adaptive = language_model("transformer_lm_t5", adaptive_softmax_cutoff="10,20", adaptive_softmax_dropout=0)
    saved(adaptive, "adaptive.pt")
    saved(language_model("transformer_lm_t5", quant_noise_scalar=0.1), "scalar.pt")
    scaled = language_model("transformer_lm_t5", scale_heads=True)
    saved(scaled, "scaled.pt")
    for arguments, what in {
        "adaptive.pt out": "trained with --adaptive-softmax-cutoff 10,20, which has no counterpart",
        "scaled.pt out": "trained with --scale-heads True",
        "scalar.pt out": "trained with --quant-noise-scalar 0.1",
        "a.pt out --head mood": "a language model, which has no classification heads",
    }.items():
        assert_refused(["export-hf", *arguments.split()], what, capsys)


def test_a_model_that_generates_other_texts_is_not_written(with_words, monkeypatch):
    monkeypatch.setattr(hf.decoder.ForcedEnd, "__call__", lambda self, ids, scores: scores)
    with pytest.raises(ValueError, match="the exported model generates .* with 1 beams, fairseq"):
        export(with_words / "a.pt", with_words / "out")
    assert sorted(path.name for path in with_words.iterdir()) == ["a.pt", "data"]
