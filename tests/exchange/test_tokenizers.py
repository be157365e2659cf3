"""Tokenizers for Hugging Face transformers give the ids that fairseq reads."""

import copy
import json
import os
import pickle
import random
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from fairseq.data import Dictionary
from small_models import trained
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

from fairseq_relpos.cli import main  # noqa: E402
from fairseq_relpos.exchange.from_transformers import import_hf  # noqa: E402
from fairseq_relpos.exchange.pieces import Pieces, vocabulary_of  # noqa: E402
from fairseq_relpos.exchange.words import Words  # noqa: E402
from fairseq_relpos.finetuning.vocabulary import FastPieces, Vocabulary  # noqa: E402
from fairseq_relpos.hf import fast_tokenizer  # noqa: E402
from fairseq_relpos.version import install_package  # noqa: E402
from fairseq_relpos.vocabulary_files import sentencepiece_proto  # noqa: E402

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


def test_added_tokens_of_a_byte_level_vocabulary_are_not_lost(tmp_path):
    for name, text in {"vocab.json": '{"a": 0}', "merges.txt": "", "added_tokens.json": '{"b": 1}'}.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match="added_tokens.json has b: .*tokenizer.json"):
        vocabulary_of(tmp_path, "roberta", {}, set())
    (tmp_path / "tokenizer.json").write_text(
        '{"model": {"vocab": {"a": 0}}, "added_tokens": [{"content": "b", "id": 1, "special": false}]}'
    )
    for _beside in ("vocab.json", "vocab.txt"):  # as transformers 4 writes them
        assert vocabulary_of(tmp_path, "roberta", {}, set())[:2] == ("tokenizer.json", {"a": 0, "b": 1})
        (tmp_path / "vocab.json").unlink(missing_ok=True)
        (tmp_path / "vocab.txt").write_text("a\n")


def test_pieces_of_words_are_not_taken_for_words(tmp_path):
    for lines, what in {
        "##ing 1\nwalk 1\n": "WordPiece",
        "Ġing 1\nwalk 1\n": "byte-level BPE",
        "walk@@ 1\ning 1\n": "subword-nmt",
    }.items():
        (tmp_path / "dict.txt").write_text(lines)
        with pytest.raises(ValueError, match=what):
            Words(tmp_path, 7, Path("a.pt"))


def test_characters_are_not_taken_for_words(tmp_path):
    characters = "".join(f"{chr(0x4E00 + n)} 1\n" for n in range(600))
    (tmp_path / "dict.txt").write_text("\u2581 9\n" + characters)
    with pytest.raises(ValueError, match="pieces of SentencePiece: give"):
        Words(tmp_path, 606, Path("a.pt"))
    (tmp_path / "dict.txt").write_text(characters + "\u2581 1\n")  # a rare word of a text
    assert Words(tmp_path, 606, Path("a.pt")).kind == "words with blanks between"


def test_added_tokens_are_found_in_text_unless_they_are_special(tmp_path):
    added = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    tokens = {"[UNK]": 0, "[E1]": 2}
    content = {
        "version": "1.0",
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "cat": 1}, "unk_token": "[UNK]"},
        "pre_tokenizer": {"type": "Whitespace"},
        "added_tokens": [{"id": number, "content": token, **added} for token, number in tokens.items()],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    files = vocabulary_of(tmp_path, "bert", {}, {"[UNK]"})[2]
    (tmp_path / "tokenizer.json").write_text(files["tokenizer.json"])
    assert FastPieces(str(tmp_path / "tokenizer.json")).pieces("[E1] cat") == ["[E1]", "cat"]
    assert vocabulary_of(tmp_path, "bert", {}, {"[UNK]"})[2]["tokenizer.json"] == tmp_path / "tokenizer.json"


@pytest.mark.parametrize(
    "files, settings, what",
    [
        ({"vocab.json": '{"a</w>": 0}', "merges.txt": ""}, {}, "vocab.json is no byte-level BPE"),
        ({"vocab.txt": "a\n"}, {"word_tokenizer_type": "mecab"}, "word_tokenizer_type of the tokenizer is not served"),
        ({"added_tokens.json": '{"quick": 9}'}, {}, "spm.model does not have quick: .*tokenizer.json"),
    ],
)
def test_a_tokenizer_that_cannot_be_followed_is_refused(files, settings, what, tmp_path):
    folder = tmp_path / "a"
    if "added_tokens.json" in files:
        sentencepiece_folder(folder, "unigram")
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    with pytest.raises(ValueError, match=what):
        vocabulary_of(folder, "deberta-v2", settings, set())


def test_lower_case_of_a_sentencepiece_tokenizer_is_kept(tmp_path):
    sentencepiece_folder(tmp_path / "a", "unigram")
    files = vocabulary_of(tmp_path / "a", "deberta-v2", {"do_lower_case": True}, set())[2]
    assert json.loads(files["manifest.json"]) == {"settings": {"lowercase": True}}


def ids_of_fairseq(folder):
    """fairseq's input: SentencePiece's pieces by their names in dict.txt."""
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
    proto = sentencepiece_proto(os.devnull)
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
