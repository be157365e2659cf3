"""The vocabulary of a folder of transformers as files that fairseq and the recipes read."""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..vocabulary_files import sentencepiece_of

#: special tokens by what they are for, where the folder does not say
BRACKETS = {"cls": "[CLS]", "pad": "[PAD]", "sep": "[SEP]", "unk": "[UNK]", "mask": "[MASK]"}
TAGS = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
USUAL = {"bert": BRACKETS, "deberta": BRACKETS, "deberta-v2": BRACKETS}

#: the kind of vocabulary whose pieces have numbers in dict.txt
BYTE_LEVEL = "byte-level BPE"

#: embeddings beyond the words: public models are filled up to a multiple of 128, or by 1,000
MOST_UNNAMED = 1024


@dataclass
class Pieces:
    """order: the old id of each new one. symbols: those of the new ids but for the first four and <mask>. files: what
    is written beside dict.txt, a text or the file to copy. unnamed: embeddings without a word."""

    kind: str
    order: list[int]
    symbols: list[str]
    files: dict[str, str | Path] = field(default_factory=dict)
    unnamed: int = 0
    #: whether dict.txt has <mask>, which the tasks of translation do not add
    with_mask: bool = False

    @classmethod
    def of(cls, folder: Path, model_type: str, rows: int, config: Any) -> "Pieces":
        """The vocabulary of a model with so many embeddings. Raises ValueError, one line."""
        settings = settings_of(folder)
        special = special_tokens(settings, USUAL.get(model_type, TAGS))
        ends = special_tokens(settings, {"bos": special["cls"], "eos": special["sep"]})
        kind, ids, files = vocabulary_of(folder, model_type, settings, {*special.values(), *ends.values()})
        if max(ids.values()) >= rows or rows - len(ids) > MOST_UNNAMED:
            raise ValueError(
                f"{folder}: the tokenizer has {len(ids)} pieces with ids up to {max(ids.values())}, the model has "
                f"{rows} embeddings: put the tokenizer of this model there"
            )
        if lacking := [token for token in special.values() if token not in ids]:
            raise ValueError(f"{folder}: the tokenizer has no {' '.join(lacking)}, which fairseq needs")
        pad = config.values.get("pad_token_id")
        if pad is not None and pad != ids[special["pad"]]:
            raise ValueError(
                f"{folder}: pad_token_id is {pad} in config.json, but {special['pad']} has the id {ids[special['pad']]}"
            )
        first = [ids[special[role]] for role in ("cls", "pad", "sep", "unk")]
        last = ids[special["mask"]]
        if len({*first, last}) < 5:
            raise ValueError(f"{folder}: two of the special tokens {' '.join(special.values())} are one")
        names = {number: piece for piece, number in ids.items()}
        others = [number for number in range(rows) if number not in (*first, last)]
        symbols = [symbol_of(names.get(number), number, kind == BYTE_LEVEL) for number in others]
        return cls(kind, [*first, *others, last], symbols, files, rows - len(names), model_type == "bart")

    def write(self, folder: Path) -> None:
        lines = "".join(f"{symbol} 1\n" for symbol in [*self.symbols, *["<mask>"] * self.with_mask])
        (folder / "dict.txt").write_text(lines, encoding="utf-8")
        for name, source in self.files.items():
            if isinstance(source, Path):
                shutil.copyfile(source, folder / name)
            else:
                (folder / name).write_text(source, encoding="utf-8")


def symbol_of(piece: str | None, number: int, numbered: bool) -> str:
    """Returns what stands for a piece in dict.txt: its name or its number. A piece without a name, or with one of
    fairseq's, is never found in text."""
    if piece is None or piece in TAGS.values() or piece != piece.strip() or "\n" in piece or "\r" in piece:
        return f"madeupword{number:04d}"
    return str(number) if numbered else piece


def settings_of(folder: Path) -> dict[str, Any]:
    """The settings of the tokenizer, from the two files that may have them."""
    settings: dict[str, Any] = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (folder / name).is_file():
            settings |= read(folder / name)
    return settings


def read(path: Path) -> Any:
    """Returns what is in a JSON file. Raises ValueError, one line, if it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON ({error}): copy it again") from None


def special_tokens(settings: dict[str, Any], usual: dict[str, str]) -> dict[str, str]:
    tokens = {}
    for role, token in usual.items():
        given = settings.get(f"{role}_token") or token
        tokens[role] = given["content"] if isinstance(given, dict) else str(given)
    return tokens


def vocabulary_of(
    folder: Path, model_type: str, settings: dict[str, Any], special: set[str]
) -> tuple[str, dict[str, int], dict[str, str | Path]]:
    """The kind, the id of each piece, and the files to write. ``special``: the tokens that are no text."""
    is_alone = (folder / "tokenizer.json").is_file() and not (folder / "spm.model").is_file()
    for setting in ("word_tokenizer_type", "split_by_punct"):
        if settings.get(setting) not in (None, False, "basic") and not is_alone:
            raise ValueError(f"{folder}: {setting} of the tokenizer is not served: save it as tokenizer.json alone")
    for name in ("spm.model", "sentencepiece.bpe.model"):
        if (folder / name).is_file():
            ids, files = of_sentencepiece(folder / name, model_type, settings)
            extra = added_tokens(folder) - special - ids_of_sentencepiece(folder / name, model_type).keys()
            if not extra:
                return "SentencePiece", ids, files
            if not (folder / "tokenizer.json").is_file():
                raise ValueError(
                    f"{folder}: {name} does not have {', '.join(sorted(extra))}: save the tokenizer as tokenizer.json, "
                    "with them"
                )
    vocabulary, merges = folder / "vocab.json", folder / "merges.txt"
    fast, words, added = folder / "tokenizer.json", folder / "vocab.txt", folder / "added_tokens.json"
    both = vocabulary.is_file() and merges.is_file()
    if fast.is_file():  # which may have more tokens
        both = both and ids_of_json(fast).keys() <= read(vocabulary).keys()
    elif added.is_file() and (both or words.is_file()):
        known = read(vocabulary).keys() if both else set(words.read_text(encoding="utf-8").split("\n"))
        if more := read(added).keys() - known:
            raise ValueError(f"{added} has {', '.join(sorted(more))}: save the tokenizer as tokenizer.json, with them")
    if both and not settings.get("add_prefix_space"):
        lines = merges.read_text(encoding="utf-8").split("\n")
        lines = [line for line in lines if line and not line.startswith("#version")]
        if "Ġ" not in read(vocabulary):
            raise ValueError(f"{vocabulary} is no byte-level BPE: save the tokenizer as tokenizer.json alone")
        files = {"encoder.json": vocabulary, "vocab.bpe": "\n".join(["#version: 0.2", *lines, ""])}
        return BYTE_LEVEL, read(vocabulary), files
    if fast.is_file():
        return "tokenizer.json", ids_of_json(fast), {"tokenizer.json": with_text(fast, special)}
    if words.is_file():
        ids, files = of_words(words, settings)
        return "WordPiece", ids, files
    raise ValueError(
        f"no tokenizer in {folder}: it needs tokenizer.json, or vocab.txt, vocab.json and merges.txt, or spm.model"
    )


def of_sentencepiece(
    path: Path, model_type: str, settings: dict[str, Any]
) -> tuple[dict[str, int], dict[str, str | Path]]:
    folder = path.parent
    files: dict[str, str | Path] = {"spm.model": path}
    if settings.get("tokenizer_class") == "RelPosSentencePieceTokenizer":
        manifest = json.dumps({"settings": {"lowercase": settings["lowercase"]}})
        return read(folder / "vocab.json"), {**files, "manifest.json": manifest}
    if model_type == "deberta-v2" and settings.get("do_lower_case"):
        files["manifest.json"] = json.dumps({"settings": {"lowercase": True}})
    fast, added = folder / "tokenizer.json", folder / "added_tokens.json"
    ids = ids_of_json(fast) if fast.is_file() else ids_of_sentencepiece(path, model_type)
    if added.is_file():
        ids |= read(added)
    return ids, files


def added_tokens(folder: Path) -> set[str]:
    """The tokens that were added to the vocabulary of the tokenizer."""
    fast, added = folder / "tokenizer.json", folder / "added_tokens.json"
    found = {token["content"] for token in read(fast)["added_tokens"]} if fast.is_file() else set()
    return found | (read(added).keys() if added.is_file() else set())


def with_text(path: Path, special: set[str]) -> str | Path:
    """The file, in which added tokens are found in a text unless they are ``special``."""
    tokenizer = read(path)
    others = [token for token in tokenizer["added_tokens"] if token["special"] and token["content"] not in special]
    for token in others:
        token["special"] = False
    return json.dumps(tokenizer, ensure_ascii=False) if others else path


def ids_of_json(path: Path) -> dict[str, int]:
    tokenizer = read(path)
    try:
        vocabulary = tokenizer["model"]["vocab"]
        if isinstance(vocabulary, list):
            vocabulary = {piece: number for number, (piece, _) in enumerate(vocabulary)}
        return {**vocabulary, **{token["content"]: token["id"] for token in tokenizer["added_tokens"]}}
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{path} is no file of the library tokenizers: copy it again") from None


def ids_of_sentencepiece(path: Path, model_type: str) -> dict[str, int]:
    processor = sentencepiece_of(path)
    pieces = [processor.id_to_piece(number) for number in range(processor.get_piece_size())]
    if model_type == "deberta-v2":
        return {piece: number for number, piece in enumerate(pieces)}
    # XLM-R has fairseq's ids: four special symbols, the pieces but for their own three, <mask>
    order = ["<s>", "<pad>", "</s>", "<unk>", *pieces[3:], "<mask>"]
    return {piece: number for number, piece in enumerate(order)}


def of_words(path: Path, settings: dict[str, Any]) -> tuple[dict[str, int], dict[str, str | Path]]:
    from tokenizers import BertWordPieceTokenizer

    words = path.read_text(encoding="utf-8").split("\n")
    ids = {word: number for number, word in enumerate(words) if word}
    tokenizer = BertWordPieceTokenizer(
        ids,
        lowercase=bool(settings.get("do_lower_case", True)),
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
        strip_accents=settings.get("strip_accents"),
    )
    return ids, {"tokenizer.json": tokenizer.to_str()}
