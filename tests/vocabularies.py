"""Small vocabularies of every kind: dict.txt, and the files that cut words into pieces."""

import json
from pathlib import Path

LINES = [
    "The quick brown fox jumps over the lazy dog, and nobody knows why it does so.",
    "In 1999 a small group of people wrote down what they had seen in the valley.",
    "Caf\xe9s, na\xefve ideas and 1,000 other things: which of them do you like (most)?",
] * 20


def sentencepiece_folder(folder, kind, **options):
    import sentencepiece

    folder.mkdir()
    with open(folder / "spm.model", "wb") as model:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(LINES),
            **{"model_writer": model, "model_type": kind, "hard_vocab_limit": False, "minloglevel": 2},
            **{"vocab_size": 120, "num_threads": 1} | options,
        )
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spm.model"))
    pieces = [processor.id_to_piece(number) for number in range(processor.get_piece_size())]
    lines = [f"{piece} 1\n" for piece in sorted(pieces) if piece not in ("<s>", "</s>", "<unk>")]
    (folder / "dict.txt").write_text("".join([*lines, "madeupword0 0\n"]), encoding="utf-8")


def translation_folder(folder, joined, recipes=True):
    """A folder of data whose dictionaries lack some pieces of spm.model, which the recipes split again. Otherwise they
    are <unk>, as fairseq-preprocess writes them."""
    import corpus
    from fairseq.data import Dictionary
    from fairseq.data.indexed_dataset import make_builder

    sentencepiece_folder(folder, "bpe")
    lines = (folder / "dict.txt").read_text(encoding="utf-8").splitlines(True)
    (folder / "dict.txt").unlink()
    long = [line for line in lines if len(line.split()[0]) > 2]
    lost = {"en": long[:9], "de": long[:9] if joined else long[5:12]}
    for language, without in lost.items():
        path = folder / f"dict.{language}.txt"
        path.write_text("".join(line for line in lines if line not in without), encoding="utf-8")
        words, encode = Dictionary.load(str(path)), corpus.Encoder(folder, language)
        builder = make_builder(str(folder / f"valid.en-de.{language}.bin"), impl="mmap", vocab_size=len(words))
        for line in LINES[:3]:
            assert set(encode.processor.encode(line, out_type=str)) - encode.known
            pieces = encode(line) if recipes else encode.processor.encode(line, out_type=str)
            builder.add_item(words.encode_line(" ".join(pieces), add_if_not_exist=False))
        builder.finalize(str(folder / f"valid.en-de.{language}.idx"))
    return [len(Dictionary.load(str(folder / f"dict.{language}.txt"))) for language in ("en", "de")]


def gpt2_folder(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    folder.mkdir()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet))
    model = json.loads(tokenizer.to_str())["model"]
    (folder / "encoder.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    merges = "".join(f"{first} {second}\n" for first, second in model["merges"])
    (folder / "vocab.bpe").write_text("#version: 0.2\n" + merges, encoding="utf-8")
    numbers = sorted(model["vocab"].values(), reverse=True)
    (folder / "dict.txt").write_text("".join(f"{number} 1\n" for number in numbers), encoding="utf-8")


def words_folder(folder):
    folder.mkdir()
    words = sorted({word for line in LINES for word in line.split()})
    (folder / "dict.txt").write_text("".join(f"{word} 1\n" for word in words), encoding="utf-8")


VOCABULARIES = {
    "bpe": lambda folder: sentencepiece_folder(folder, "bpe"),
    "unigram": lambda folder: sentencepiece_folder(folder, "unigram", normalization_rule_name="nfkc"),
    "char": lambda folder: sentencepiece_folder(folder, "char"),
    "own symbols": lambda folder: sentencepiece_folder(
        folder, "bpe", user_defined_symbols=["<sep>", "<sep>>"], normalization_rule_name="identity"
    ),
    "unigram, own symbols": lambda folder: sentencepiece_folder(folder, "unigram", user_defined_symbols=["the"]),
    "bytes": lambda folder: sentencepiece_folder(
        folder, "bpe", byte_fallback=True, vocab_size=400, remove_extra_whitespaces=False, split_by_whitespace=False
    ),
    "gpt2": gpt2_folder,
    "words": words_folder,
}


def ordinary_folder(folder, kind="bpe", threshold=0, nwords=-1, padding_factor=8, **options):
    """SentencePiece with the dictionary that fairseq-preprocess makes of a text without --srcdict: the pieces that
    occur, characters that SentencePiece does not know, and symbols that pad it to a multiple of padding_factor."""
    import sentencepiece
    from fairseq.data import Dictionary

    sentencepiece_folder(folder, kind, **options)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spm.model"))
    dictionary = Dictionary()
    for line in [*LINES[:2], "\u4f60\u597d \u4f60"] * 2:
        for piece in processor.encode(line, out_type=str):
            dictionary.add_symbol(piece)
    dictionary.finalize(threshold=threshold, nwords=nwords, padding_factor=padding_factor)
    dictionary.save(str(folder / "dict.txt"))


#: dictionaries for which no fast tokenizer gives fairseq's ids
ORDINARY = {
    "bpe": {},
    "threshold": {"threshold": 4},
    "nwords": {"nwords": 30},
    "unigram": {"kind": "unigram", "nwords": 50},
    "char": {"kind": "char", "threshold": 4},
    "words": {"kind": "word"},
    "blanks at the end": {"treat_whitespace_as_suffix": True},
    "bytes": {"kind": "unigram", "byte_fallback": True, "vocab_size": 400},
}


def exported_tokenizer(data, out, start=None):
    """The vocabulary of the data as ``export-hf`` reads it, and the tokenizer that it writes. start: the first symbol
    of a language model's texts."""
    from fairseq.data import Dictionary
    from transformers import AutoTokenizer

    from fairseq_relpos.exchange.words import Words

    size = len(Dictionary.load(str(data / "dict.txt"))) + (start is None)
    words = Words(data, size, Path("a.pt"), start)
    out.mkdir(exist_ok=True)
    words.save(out, 32)
    return words, AutoTokenizer.from_pretrained(out)
