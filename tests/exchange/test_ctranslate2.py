"""Models for CTranslate2 against fairseq's: log-probabilities, and what is refused."""

import math
import re
import sys
from pathlib import Path

import pytest
import torch
from fairseq_data import WORDS, fairseq_ok, translation, write_corpus
from refusals import assert_refused
from small_models import PRE_NORM, language_model, save, trained, transformer
from vocabularies import LINES, translation_folder

ctranslate2 = pytest.importorskip("ctranslate2", reason='needs ctranslate2: pip install "fairseq_relpos[ct2]"')

from fairseq_relpos.cli import main  # noqa: E402
from fairseq_relpos.exchange import to_ctranslate2  # noqa: E402

PACKAGE = Path(__file__).parents[2]
LENGTHS = {"max_source_positions": 200, "max_target_positions": 200}


def folder_of(path, model, task):
    """A checkpoint a.pt of the model, whose positions matter, and the folder data."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "position" in name:
                parameter.normal_(0, 1)
            elif parameter.dim() > 1:
                parameter.mul_(1.5)
            else:
                parameter.add_(0.1 * torch.randn_like(parameter))
    languages = {"source_lang": "en", "target_lang": "de"} if task == "translation" else {}
    save(model, path / "a.pt", task=task, criterion="cross_entropy", data="elsewhere", **languages)
    (path / "data").mkdir()
    for name in ("dict.en.txt", "dict.de.txt", "dict.txt"):
        lines = "".join(f"w{i} 1\n" for i in range(40))
        (path / "data" / name).write_text(lines + "<mask> 1\n", encoding="utf-8")


@pytest.mark.parametrize(
    "name, hparams, settings",
    [
        ("none", "", {}),
        ("none", "", {"share_all_embeddings": True}),
        ("none", "", PRE_NORM),
        ("learned", "", {"share_all_embeddings": True, **PRE_NORM}),
        ("sinusoidal", "", {"layernorm_embedding": True}),
        ("t5", "num_buckets=12 max_distance=20 scale=none", PRE_NORM),
        ("at5", "per_layer=false", {}),
        ("shaw", "max_distance=4", PRE_NORM),
        ("shaw", "max_distance=4 values=true", PRE_NORM),
        ("rope", "", {"activation_fn": "gelu"}),
        ("rope", "fraction=0.5 kind=proportional", PRE_NORM),
        ("rope", "scaling=interpolation factor=2 trained_length=30", {}),
        ("alibi", "", PRE_NORM),
        ("none", "", {"position_encoding": "encoder=t5,decoder=rope"}),
    ],
)
def test_log_probabilities_are_fairseqs(name, hparams, settings, tmp_path):
    model = transformer(f"transformer_{name}", position_hparams=hparams, **settings, **LENGTHS)
    folder_of(tmp_path, model, "translation")
    done = to_ctranslate2.export(tmp_path / "a.pt", tmp_path / "out", tmp_path / "data")
    assert done.kind == "Translator" and done.difference < 1e-4


@pytest.mark.parametrize("name", ["learned", "t5", "rope", "alibi"])
def test_a_language_model_becomes_a_generator(name, tmp_path):
    folder_of(tmp_path, language_model(f"transformer_lm_{name}", max_target_positions=200), "language_modeling")
    done = to_ctranslate2.export(tmp_path / "a.pt", tmp_path / "out", tmp_path / "data")
    assert done.kind == "Generator" and done.difference < 1e-4


@pytest.mark.parametrize("recipes", [True, False])
def test_its_sentencepiece_cuts_text_as_the_data(recipes, tmp_path, monkeypatch, capsys):
    sentencepiece = pytest.importorskip("sentencepiece")
    monkeypatch.syspath_prepend(str(PACKAGE / "examples/common"))
    import corpus

    data = tmp_path / "data"
    words, target_words = (size - 5 for size in translation_folder(data, joined=False, recipes=recipes))
    model = transformer("transformer_rope", words=words, target_words=target_words, **LENGTHS)
    languages = {"source_lang": "en", "target_lang": "de"}
    save(model, tmp_path / "a.pt", task="translation", criterion="cross_entropy", data="elsewhere", **languages)
    done = to_ctranslate2.export(tmp_path / "a.pt", tmp_path / "out", data)
    assert done.copied == ["spm.model"]
    exported = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "out/spm.model"))
    encode = corpus.Encoder(data, "en")
    (data / "manifest.json").write_text('{"settings": {"lowercase": true}}')
    assert main(["export-ct2", str(tmp_path / "a.pt"), str(tmp_path / "lower"), "--data", str(data)]) == 0
    assert "text was put in lower case before" in capsys.readouterr().out
    for line in (LINES[0], LINES[2]):  # 999 of the other one may be cut at two places
        pieces = exported.encode(line, out_type=str)
        assert pieces == (encode(line) if recipes else encode.processor.encode(line, out_type=str))
        assert exported.decode(pieces) == line


def assert_not_exported(what, folder, capsys):
    command = ["export-ct2", folder / "a.pt", folder / "out", "--data", folder / "data"]
    assert_refused(command, what, capsys, folder)


@pytest.mark.parametrize(
    "name, settings, what",
    [
        ("tupe_r", {}, "tupe_r in the encoder"),
        ("cope", {}, "cope in the decoder"),
        ("rope", {"position_hparams": "scaling=yarn factor=2 trained_length=30"}, "scaling=yarn"),
        ("shaw", {"position_hparams": "heads=each"}, "heads=each"),
        ("t5", {"position_hparams": "per_layer=true"}, "each layer has a bias of its own"),
        ("t5", {"attention_window": "decoder.1=9"}, "--attention-window"),
        ("t5", {"copy_from_source": True}, "--copy-from-source"),
    ],
)
def test_what_it_cannot_hold_is_refused_by_name(name, settings, what, tmp_path, capsys):
    folder_of(tmp_path, transformer(f"transformer_{name}", **settings), "translation")
    assert_not_exported([what, "CTranslate2"], tmp_path, capsys)


def nan(folder):
    checkpoint = torch.load(folder / "a.pt", weights_only=False)
    checkpoint["model"]["encoder.layers.1.fc1.weight"][0, 0] = float("nan")
    torch.save(checkpoint, folder / "a.pt")


def no_languages(folder):
    save(transformer("transformer_rope"), folder / "a.pt", task="translation", criterion="cross_entropy", data="x")


@pytest.mark.parametrize(
    "change, what",
    [
        (lambda folder: (folder / "data/dict.de.txt").unlink(), ["no dict.de.txt in", "give the folder of"]),
        (
            lambda folder: (folder / "data/dict.de.txt").write_text("w0 1\n"),
            ["dict.de.txt makes 5 words", "a.pt has 45"],
        ),
        (no_languages, ["does not say its languages"]),
        (lambda folder: (folder / "out").mkdir(), ["out is there already", "new name"]),
        (nan, ["encoder.layers.1.fc1.weight", "nan or inf"]),
        (lambda folder: trained("roberta_rope", folder / "a.pt"), ["architecture roberta_rope", "transformer_NAME"]),
    ],
)
def test_a_wrong_call_is_one_line_and_nothing_is_written(change, what, tmp_path, capsys):
    folder_of(tmp_path, transformer("transformer_rope"), "translation")
    change(tmp_path)
    assert_not_exported(what, tmp_path, capsys)


def test_without_ctranslate2_the_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.delitem(sys.modules, to_ctranslate2.__name__)
    assert_not_exported(["needs ctranslate2, which is not installed", "fairseq_relpos[ct2]"], tmp_path, capsys)


def test_other_scores_end_in_an_error_and_nothing_is_written(tmp_path, monkeypatch):
    folder_of(tmp_path, transformer("transformer_rope", **LENGTHS), "translation")
    monkeypatch.setattr(to_ctranslate2, "put_positions", lambda spec, *_: [None] * len(spec.layer))
    with pytest.raises(ValueError, match="differ by .* from fairseq's"):
        to_ctranslate2.export(tmp_path / "a.pt", tmp_path / "out", tmp_path / "data")
    assert not (tmp_path / "out").exists()


#: what the toy language calls each word
WORD_FOR_WORD = dict(zip(WORDS, WORDS[7:] + WORDS[:7]))


def toy_translations(folder):
    """fairseq-preprocess over sentences that are translated word for word, 200 of them in the test set."""
    prefixes = []
    for seed, (split, count) in enumerate({"train": 1000, "valid": 16, "test": 200}.items()):
        write_corpus(folder / f"{split}.a", count, seed)
        lines = (folder / f"{split}.a").read_text(encoding="utf-8").splitlines()
        translated = "".join(" ".join(WORD_FOR_WORD[word] for word in line.split()) + "\n" for line in lines)
        (folder / f"{split}.b").write_text(translated, encoding="utf-8")
        prefixes += [f"--{split}pref", folder / split]
    languages = ("--source-lang", "a", "--target-lang", "b", "--joined-dictionary")
    fairseq_ok("preprocess", *languages, *prefixes, "--destdir", folder / "bin")
    return folder / "bin"


def trained_translator(folder, data):
    """A checkpoint that has nearly learned them. --source-lang is not given, so it does not say its languages."""
    sizes = [
        f"--{stack}-{what}"
        for stack in ("encoder", "decoder")
        for what in ("layers=1", "embed-dim=64", "ffn-embed-dim=64", "attention-heads=4", "normalize-before")
    ]
    training = ("--dropout", 0, "--lr", 0.003, "--batch-size", 32, "--max-update", 600, "--no-epoch-checkpoints")
    fairseq_ok("train", *translation(data, folder, *sizes, *training, arch="transformer_rope"))
    return folder / "checkpoint_last.pt"


def generated(data, checkpoint):
    """The output of fairseq-generate: {number: (source, translation, score)}, the score a natural logarithm."""
    flags = ("--cpu", "--beam", 5, "--num-workers", 0, "--batch-size", 16, "--required-batch-size-multiple", 1)
    printed = fairseq_ok("generate", data, "--user-dir", "fairseq_relpos", "--path", checkpoint, *flags)
    pattern = r"^S-(\d+)\t(.*)\nT-.*\nH-\1\t(.*)\t(.*)$"
    return {
        number: (source, translated, float(score) * math.log(2))
        for number, source, score, translated in re.findall(pattern, printed, re.M)
    }


@pytest.mark.slow
def test_translations_are_fairseq_generates(tmp_path):
    data = toy_translations(tmp_path)
    checkpoint = trained_translator(tmp_path, data)
    ours = generated(data, checkpoint)
    assert len(ours) == 200

    assert main(["export-ct2", str(checkpoint), str(tmp_path / "out"), "--data", str(data)]) == 0
    translator = ctranslate2.Translator(str(tmp_path / "out"), intra_threads=1, compute_type="float32")
    longest = 19  # --max-target-positions without </s>
    how = {"beam_size": 5, "max_input_length": 0, "max_decoding_length": longest, "return_scores": True}
    for shortest in (0, 1):
        # fairseq's --min-len 1 leaves the probabilities as they are, as min_decoding_length=0 does
        sources = [source.split() for source, _, _ in ours.values()]
        results = translator.translate_batch(sources, min_decoding_length=shortest, **how)
        compared, others = 0, {}
        for (number, (_, translated, score)), result in zip(ours.items(), results, strict=True):
            theirs = result.hypotheses[0]
            if longest in (len(theirs), len(translated.split())):
                continue  # fairseq forces </s> there and adds its score, CTranslate2 stops
            compared += 1
            gap = abs(result.scores[0] - score)
            assert shortest or gap < 1e-4, (number, translated, theirs, gap)
            if theirs != translated.split():
                others[number] = (translated, theirs, gap)
        assert compared >= 195 and len(others) <= 2, others
