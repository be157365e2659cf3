"""Encoder-decoder models for Hugging Face transformers, against fairseq's: logits, and what both translate."""

from pathlib import Path

import pytest
import sentencepiece
import torch
from fairseq.data import Dictionary
from refusals import assert_refused
from small_models import assert_trains, moved, save, transformer, translation_batch
from vocabularies import LINES, sentencepiece_folder, translation_folder

pytest.importorskip("transformers", "5.4", reason='needs transformers 5.4: pip install "fairseq_relpos[hf]"')

import transformers  # noqa: E402

import fairseq_relpos.hf as hf  # noqa: E402
from fairseq_relpos.cli import main  # noqa: E402
from fairseq_relpos.encodings import ENCODINGS  # noqa: E402
from fairseq_relpos.exchange import encoder_decoder_to_transformers as to_transformers  # noqa: E402
from fairseq_relpos.exchange.export import export  # noqa: E402
from fairseq_relpos.hf import fast_tokenizer  # noqa: E402

PACKAGE = Path(__file__).parents[2]

SHARED = {"share_all_embeddings": True}


def small(name, words=4, **settings):
    """A model with so few words that its translations end soon."""
    model = moved(transformer(f"transformer_{name}", words=words, **{**SHARED, **settings}))
    return model, to_transformers.as_transformers(model, model.args)


def saved(model, path, **settings):
    task = {"task": "translation", "source_lang": "en", "target_lang": "de", "data": "elsewhere"}
    save(model, path, **task, criterion="cross_entropy", **settings)
    return path


def logits(model, source, previous):
    with torch.no_grad():
        return model(source, decoder_input_ids=previous).logits


def translations(ours, model, source, length, **settings):
    """By ``generate`` and by fairseq's search, with one beam and with five. settings: of generate, and penalties."""
    for beam in (1, 5):
        how = {"num_beams": beam, "early_stopping": beam > 1, "max_length": length + 2}
        wanted = to_transformers.translated_by_fairseq(model, source, beam, length, **settings)
        yield to_transformers.translated(ours, source, **how), wanted


@pytest.mark.slow
def test_every_encoding_has_fairseqs_bits_and_translations():
    """Logits with pads on both sides and without; greedy search and five beams, of sources of different lengths."""
    lengths = set()
    for name in ENCODINGS:
        model, ours = small(name)
        for source, previous in to_transformers.batches(model, None):
            real = previous.ne(1)
            with torch.no_grad():
                wanted = model(source, source.ne(1).sum(1), previous)[0]
            assert torch.equal(logits(ours, source, previous)[real], wanted[real]), name
        for found, wanted in translations(ours, model, source, 8):
            assert found == wanted, name
            lengths |= set(map(len, found))
    assert len(lengths) > 4  # some translations end by themselves, others are ended


def test_length_penalties_and_other_lengths_keep_fairseqs_translations():
    model, ours = small("t5")
    source = translation_batch()[0].clamp(max=8)
    for penalty in (0.0, 0.5, 2.0):
        for length in (3, 25):
            wanted = to_transformers.translated_by_fairseq(model, source, 5, length, len_penalty=penalty)
            assert to_transformers.translated(ours, source, length_penalty=penalty, max_length=length + 2) == wanted


def test_a_translation_is_the_same_without_the_cache_and_from_the_encoders_output():
    _, ours = small("cope")
    source = translation_batch()[0].clamp(max=8)
    wanted = to_transformers.translated(ours, source)
    assert to_transformers.translated(ours, source, use_cache=False) == wanted
    mask = source.ne(1).long()
    output = ours.get_encoder()(source, mask)
    rows = ours.generate(encoder_outputs=output, attention_mask=mask).tolist()
    assert [[token for token in row[1:] if token != 1] for row in rows] == wanted
    with pytest.raises(ValueError, match="DynamicCache: an encoding keeps more than keys and values"):
        ours(source, decoder_input_ids=source, past_key_values=transformers.DynamicCache())


def test_hidden_states_and_attention_come_out_where_they_are_asked_for():
    _, ours = small("t5", decoder_layers=3)
    source, _, previous = translation_batch()
    with torch.no_grad():
        out = ours(source.clamp(max=8), decoder_input_ids=previous.clamp(max=8), output_attentions=True)
        more = ours(source.clamp(max=8), decoder_input_ids=previous.clamp(max=8), output_hidden_states=True)
    assert [len(x) for x in (out.encoder_attentions, out.decoder_attentions, out.cross_attentions)] == [2, 3, 3]
    assert out.cross_attentions[0].shape == (3, 3, 7, 9) and out.cross_attentions[0][1, :, :, :3].eq(0).all()
    assert len(more.encoder_hidden_states) == 3 and len(more.decoder_hidden_states) == 4
    assert more.cross_attentions is None and more.encoder_last_hidden_state.shape == (3, 9, 24)


def test_the_loss_of_a_training_step_is_fairseqs():
    model, ours = small("shaw", words=40, dropout=0.0, attention_dropout=0.0)
    source, lengths, previous = translation_batch()
    target = torch.cat([previous[:, 1:], torch.full((3, 1), 2)], 1)
    target[2, 4:] = torch.tensor([2, 1, 1])
    predicted = model(source, lengths, previous)[0]
    wanted = torch.nn.functional.cross_entropy(predicted.flatten(0, 1), target.flatten(), ignore_index=1)
    labels = target.masked_fill(target == 1, -100)
    assert torch.equal(ours.prepare_decoder_input_ids_from_labels(labels)[:2], previous[:2])
    assert_trains(ours, source, labels, wanted)
    ours.gradient_checkpointing_enable()
    assert_trains(ours, source, labels, wanted)


@pytest.mark.parametrize(
    "settings",
    [
        {"encoder_normalize_before": True, "decoder_normalize_before": True, "layernorm_embedding": True},
        {"decoder_embed_dim": 36, "decoder_ffn_embed_dim": 40, "decoder_layers": 3, "target_words": 30},
        {"share_decoder_input_output_embed": True, "target_words": 30, "activation_fn": "gelu"},
        {"position_encoding": "shaw", "position_hparams": "values=true max_distance=4", **SHARED},
        {
            "position_encoding": "encoder=t5,decoder=shaw",
            "position_hparams": "encoder.num_buckets=8 decoder.layer.2.max_distance=4",
            "attention_window": "4 decoder.1=none",
            **SHARED,
        },
        {"position_stacks": "encoder", "position_layers": "2", "decoder_output_dim": 16, "decoder_learned_pos": True},
        {"position_stacks": "decoder", "no_token_positional_embeddings": True, "no_scale_embedding": True},
    ],
)
def test_other_settings_come_along(settings, tmp_path):
    rates = {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.1}
    path = saved(moved(transformer("transformer_deberta", **rates, **settings)), tmp_path / "a.pt")
    assert export(path, tmp_path / "a").difference == 0
    loaded = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "a")
    for config in (loaded.config.encoder, loaded.config.decoder):
        theirs = config.hidden_dropout_prob, config.attention_probs_dropout_prob, config.activation_dropout
        assert theirs == tuple(rates.values())
    source, target = (loaded.encoder.embed_tokens.weight, loaded.decoder.decoder.embed_tokens.weight)
    assert (source is target) == (SHARED.items() <= settings.items())
    tied = SHARED.items() <= settings.items() or settings.get("share_decoder_input_output_embed", False)
    assert (loaded.get_output_embeddings().weight is target) == tied


@pytest.mark.parametrize("learned", [False, True])
def test_stock_fairseqs_transformer_comes_along(learned, tmp_path):
    model = moved(transformer("transformer", encoder_learned_pos=learned, decoder_learned_pos=learned))
    result = export(saved(model, tmp_path / "a.pt"), tmp_path / "a")
    assert result.model == "RelPosTransformerForConditionalGeneration" and result.difference < 1e-5
    config = transformers.AutoConfig.from_pretrained(tmp_path / "a")
    assert config.encoder.position_encoding == ("learned" if learned else "sinusoidal")


def test_a_bart_comes_along_with_its_vocabulary_and_without_its_heads(tmp_path):
    sentencepiece_folder(tmp_path / "data", "bpe")
    words = len(Dictionary.load(str(tmp_path / "data/dict.txt"))) - 4
    longest = {"max_source_positions": 80, "max_target_positions": 80}
    for arch in ("bart_base", "bart_t5"):
        model = moved(transformer(arch, words=words, **SHARED, **longest))
        model.register_classification_head("mood", num_classes=3)
        save(model, tmp_path / "a.pt", task="denoising", criterion="cross_entropy", data="elsewhere")
        result = export(tmp_path / "a.pt", tmp_path / arch, tmp_path / "data")
        assert result.difference == 0 and result.texts > 9
        assert len(result.left_out) == 4 and all("mood" in name for name in result.left_out)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / arch)
    ids = tokenizer(LINES[0])["input_ids"]
    assert (ids[0], ids[-1]) == (0, 2) and tokenizer.decode(ids, skip_special_tokens=True) == LINES[0]


def test_a_folder_that_is_loaded_and_saved_keeps_its_bytes(tmp_path):
    export(saved(moved(transformer("transformer_t5")), tmp_path / "a.pt"), tmp_path / "a")
    transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "a").save_pretrained(tmp_path / "b")
    for path in (tmp_path / "b").iterdir():
        assert path.read_bytes() == (tmp_path / "a" / path.name).read_bytes(), path.name


def test_new_words_enter_both_stacks_and_are_saved(tmp_path):
    source, _, previous = translation_batch()
    for settings in ({}, {"share_all_embeddings": False}):
        _, ours = small("t5", words=40, **settings)
        before = logits(ours, source, previous)
        ours.resize_token_embeddings(48)
        assert torch.equal(logits(ours, source, previous)[..., :45], before)
        ours.save_pretrained(tmp_path / "a")
        loaded = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "a")
        assert torch.equal(logits(loaded, source, previous), logits(ours, source, previous))
    _, ours = small("t5", words=40, share_all_embeddings=False, target_words=30)
    with pytest.raises(ValueError, match="vocabularies of their own, of 45 and 35 words"):
        ours.resize_token_embeddings(48)


def with_sizes(sizes, path, **settings):
    """A checkpoint of a model for so many words of source and target, special ones included."""
    words, target_words = (size - 5 for size in sizes)
    return saved(moved(transformer("transformer_tupe_r", words=words, target_words=target_words, **settings)), path)


@pytest.mark.parametrize("joined", [True, False])
def test_the_command_exports_a_translator_with_its_sentencepiece(joined, tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(PACKAGE / "examples/common"))
    sizes = translation_folder(tmp_path / "data", joined)
    longest = {"max_source_positions": 80, "max_target_positions": 80}
    with_sizes(sizes, tmp_path / "a.pt", share_all_embeddings=joined, **longest)
    out = str(tmp_path / "out")
    assert main(["export-hf", str(tmp_path / "a.pt"), out, "--data", str(tmp_path / "data")]) == 0
    printed = capsys.readouterr().out
    assert "RelPosTransformerForConditionalGeneration" in printed and "each character" in printed
    card = (tmp_path / "out/README.md").read_text()
    assert "AutoModelForSeq2SeqLM" in card and "pe:tupe_r" in card and "pipeline_tag: translation" in card
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    batch = tokenizer(LINES[:2], text_target=LINES[1:3], padding=True, return_tensors="pt")
    for key, language, lines in (("input_ids", "en", LINES[:2]), ("labels", "de", LINES[1:3])):
        words = Dictionary.load(str(tmp_path / f"data/dict.{language}.txt"))
        for row, line in zip(batch[key], lines):
            text = "".join(words[token] for token in row if token not in (1, 2)).replace("\u2581", " ").strip()
            assert text == line and words.unk() not in row
    assert tokenizer.decode(batch["labels"][0], skip_special_tokens=True) == LINES[1]
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(out)
    rows = model.generate(batch["input_ids"], attention_mask=batch["attention_mask"], max_new_tokens=5)
    assert rows.shape == (2, 6) and all(isinstance(text, str) for text in tokenizer.batch_decode(rows))
    assert model(**batch).loss > 0


@pytest.mark.parametrize("joined", [True, False])
def test_a_translator_without_the_recipes_reads_what_a_dictionary_lacks_as_fairseq(joined, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(PACKAGE / "examples/common"))
    sizes = translation_folder(tmp_path / "data", joined, recipes=False)
    with_sizes(sizes, tmp_path / "a.pt", share_all_embeddings=joined)
    told = export(tmp_path / "a.pt", tmp_path / "out", tmp_path / "data").tokenizer
    assert told.startswith("SentencePiece") and "lacks is one <unk>" in told and "each character" not in told
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    encode = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "data/spm.model")).encode
    texts = [*LINES[:3], "\u4f60\u597d", "a \u4f60 \u4f60\u597d\u4f60b", "\U0001f600\U0001f600 dog", "", "madeupword0"]
    for language, given in {"en": "text", "de": "text_target"}.items():
        index = Dictionary.load(str(tmp_path / f"data/dict.{language}.txt")).index
        for text, ids in zip(texts, tokenizer(**{given: texts})["input_ids"]):
            assert ids == [*map(index, encode(text, out_type=str)), 2], text


@pytest.mark.parametrize("kind", ["SentencePiece", "words"])
def test_text_that_was_changed_before_is_changed_likewise_or_the_card_says_so(kind, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(PACKAGE / "examples/common"))
    data = tmp_path / "data"
    sizes, text = [45, 45], "W3 w4"
    if kind == "SentencePiece":
        sizes, text = translation_folder(data, joined=True), LINES[0]
        for path in [*data.glob("*.bin"), *data.glob("*.idx")]:  # whose text has capitals
            path.unlink()
    else:
        data.mkdir()
        for language in ("en", "de"):
            (data / f"dict.{language}.txt").write_text("".join(f"w{i} 1\n" for i in range(40)) + "<mask> 1\n")
    (data / "manifest.json").write_text('{"settings": {"lowercase": true, "moses_tokens": true}}')
    with_sizes(sizes, tmp_path / "a.pt")
    export(tmp_path / "a.pt", tmp_path / "out", data)
    assert "tokens of Moses" in (tmp_path / "out/README.md").read_text()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    tokenizer.save_pretrained(tmp_path / "again")
    for place in ("out", "again"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / place)
        for ids in (tokenizer([text], text_target=[text])[key][0] for key in ("input_ids", "labels")):
            assert ids == tokenizer([text.lower()])["input_ids"][0] and ids.count(3) < len(ids) - 1


@pytest.mark.parametrize("joined", [True, False])
def test_words_of_two_dictionaries_become_two_tokenizers(joined, tmp_path):
    (tmp_path / "data").mkdir()
    for language, count in {"en": 40, "de": 40 if joined else 30}.items():
        lines = "".join(f"w{i} 1\n" for i in range(count))
        (tmp_path / f"data/dict.{language}.txt").write_text(lines if joined else lines.replace("w", language[0]))
    with_sizes([45, 45] if joined else [45, 35], tmp_path / "a.pt")
    (tmp_path / "data/dict.en.txt").open("a").write("<mask> 1\n")
    (tmp_path / "data/dict.de.txt").open("a").write("<mask> 1\n")
    assert export(tmp_path / "a.pt", tmp_path / "out", tmp_path / "data").texts > 20
    source = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert source(["w3 w4" if joined else "e3 e4"])["input_ids"] == [[7, 8, 2]]
    assert (tmp_path / "out/target").exists() != joined
    if not joined:
        target = transformers.AutoTokenizer.from_pretrained(tmp_path / "out/target")
        assert target("d3 e4")["input_ids"] == [7, 3, 2] and target.decode([7, 2], skip_special_tokens=True) == "d3"


def test_a_dictionary_without_mask_gets_no_token_beyond_the_embeddings():
    tokenizer = fast_tokenizer.words(["<s>", "<pad>", "</s>", "<unk>", "a"])
    assert "mask_token" not in fast_tokenizer.files_of(tokenizer, 9)["tokenizer_config.json"]


def test_a_new_translator_has_no_cls_in_its_sources():
    assert hf.RelPosTransformerConfig(encoder={"position_encoding": "tupe_r"}).encoder.has_cls is False


def test_a_training_that_was_not_told_its_languages_has_those_of_its_data(tmp_path):
    data, checkpoint = tmp_path / "data", tmp_path / "a.pt"
    data.mkdir()
    for language in ("en", "de"):
        (data / f"dict.{language}.txt").write_text("".join(f"{language}{i} 1\n" for i in range(41)))
    told = {"source_lang": None, "target_lang": None}  # as fairseq saves it
    save(moved(transformer("transformer_tupe_r", words=40)), checkpoint, task="translation", data="elsewhere", **told)
    with pytest.raises(ValueError, match="does not say its languages"):
        export(checkpoint, tmp_path / "out", data)
    assert not (tmp_path / "out").exists()
    (data / "train.en-de.en.idx").touch()
    export(checkpoint, tmp_path / "out", data)
    for place, text in {"out": "en3 en4", "out/target": "de3 de4"}.items():
        assert transformers.AutoTokenizer.from_pretrained(tmp_path / place)(text)["input_ids"] == [7, 8, 2]


def test_what_cannot_be_exported_is_refused_by_name_and_nothing_is_written(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(transformer("transformer_t5"), "a.pt")
    saved(transformer("transformer_t5", scale_heads=True), "scaled.pt")
    saved(transformer("transformer_t5", copy_from_source=True), "copying.pt")
    aligned = transformer("transformer_t5")
    saved(aligned, "aligned.pt", arch="transformer_align")
    for folder in ("none", "one", "small", "pieces", "damaged"):
        Path(folder).mkdir()
    lines = [f"w{i} 1\n" for i in range(40)] + ["<mask> 1\n"]
    for language in ("en", "de"):
        Path(f"small/dict.{language}.txt").write_text("w0 1\n")
        Path(f"pieces/dict.{language}.txt").write_text("".join(f"\u2581{line}" for line in lines))
        Path(f"damaged/dict.{language}.txt").write_text("".join(lines))
    Path("one/dict.en.txt").write_text("".join(lines))
    Path("damaged/spm.model").write_text("no model")
    for arguments, what in {
        "scaled.pt out": "trained with --scale-heads True",
        "copying.pt out": "trained with --copy-from-source True",
        "aligned.pt out": "has the architecture transformer_align, which export-hf does not serve",
        "a.pt out --head mood": "an encoder-decoder model, which has no classification heads",
        "a.pt out --data none": "no dict.en.txt in none",
        "a.pt out --data one": "no dict.de.txt in one",
        "a.pt out --data small": "dict.en.txt makes 5 words, a.pt has 45",
        "a.pt out --data pieces": "dict.en.txt has pieces of SentencePiece: give the folder that has spm.model",
        "a.pt out --data damaged": "spm.model is no SentencePiece model",
    }.items():
        assert_refused(["export-hf", *arguments.split()], what, capsys)


def test_a_model_that_translates_otherwise_is_not_written(tmp_path, monkeypatch):
    saved(moved(transformer("transformer_t5")), tmp_path / "a.pt")
    monkeypatch.setattr(hf.decoder.ForcedEnd, "__call__", lambda self, ids, scores: scores)
    with pytest.raises(ValueError, match="the exported model generates .* with 1 beams, fairseq"):
        export(tmp_path / "a.pt", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]
