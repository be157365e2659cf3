"""Tokenizers of the library ``tokenizers`` that give the ids of a fairseq dictionary.

Each function takes the symbols of the dictionary in the order of their ids, the last of which is <mask> for models
that have one. The result is the text of a tokenizer.json. A single text becomes ``<s> A </s>``, a pair
``<s> A </s></s> B </s>``; ``for_prompts`` makes it the beginning of a text.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from .. import vocabulary_files

#: fairseq's special symbols by their names in transformers
SPECIAL = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}

#: the mark of a blank in SentencePiece's pieces
BLANK = "\u2581"


class NotFast(ValueError):
    """Why no fast tokenizer gives some text the ids of SentencePiece and the dictionary."""


def from_folder(folder: str | Path, symbols: Sequence[str], lowercase: bool = False) -> tuple[Tokenizer, str]:
    """The tokenizer of the vocabulary in a folder, and its kind in words. lowercase: text is put in lower case first.

    The folder has spm.model (SentencePiece), encoder.json and vocab.bpe (GPT-2's BPE), tokenizer.json (what
    ``import-hf`` has written), or none of them: then a text consists of the dictionary's words, with blanks between."""
    found, paths = vocabulary_files.find(folder)
    if found == "sentencepiece":
        tokenizer, kind = sentencepiece(paths[0], symbols)
    elif found == "gpt2":
        tokenizer, kind = gpt2(paths[0], paths[1], symbols), "GPT-2's BPE"
    elif found == "tokenizers":
        tokenizer, kind = with_other_ids(paths[0], symbols), "the tokenizer.json of the data"
    else:
        tokenizer, kind = words(symbols), "words with blanks between"
    if lowercase:
        put_in_lower_case(tokenizer)
    return tokenizer, kind


def put_in_lower_case(tokenizer: Tokenizer) -> None:
    """Texts are put in lower case before all else."""
    own = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
    tokenizer.normalizer = normalizers.Sequence([FINAL_SIGMA, normalizers.Lowercase(), *own])


#: Python's ``lower`` writes the Greek sigma at the end of a word in its own way, ``tokenizers`` does not. A regular
#: expression looks back over at most two characters, such as accents and apostrophes
FINAL_SIGMA = normalizers.Replace(
    Regex(
        r"(?<=\p{Cased}|\p{Cased}\p{Case_Ignorable}|\p{Cased}\p{Case_Ignorable}\p{Case_Ignorable})\u03a3"
        r"(?!\p{Case_Ignorable}*\p{Cased})"
    ),
    "\u03c2",
)


def words(symbols: Sequence[str]) -> Tokenizer:
    """Words as fairseq-preprocess reads them: whatever stands between white space."""
    tokenizer = Tokenizer(models.WordLevel(numbered(symbols), unk_token="<unk>"))
    # Python's idea of white space, which has four control characters more than Unicode's
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\x1c-\x1f\x85]+"), "removed")
    return finished(tokenizer, symbols)


def gpt2(encoder: str | Path, merges: str | Path, symbols: Sequence[str]) -> Tokenizer:
    """GPT-2's BPE, whose numbers in encoder.json are the symbols of the dictionary."""
    with open(encoder, encoding="utf-8") as file:
        numbers = json.load(file)
    with open(merges, encoding="utf-8") as file:
        # the first line is a version, and the last one is empty
        pairs: list[Any] = [tuple(line.split()) for line in file.read().split("\n")[1:-1]]
    ids = numbered(symbols)
    names = {str(number): piece for piece, number in numbers.items()}
    vocabulary = {names.get(symbol, symbol): number for symbol, number in ids.items()}
    made = [*pre_tokenizers.ByteLevel.alphabet(), *("".join(pair) for pair in pairs)]
    refuse_lost([piece for piece in made if piece not in vocabulary], encoder)
    tokenizer = Tokenizer(models.BPE(vocabulary, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return finished(tokenizer, symbols, lstrip=True)


def sentencepiece(path: str | Path, symbols: Sequence[str]) -> tuple[Tokenizer, str]:
    """A SentencePiece model of type BPE, unigram or char, and its kind in words. Raises NotFast."""
    spm = vocabulary_files.sentencepiece_proto(path)
    kind = {1: "unigram", 2: "BPE", 3: "word", 4: "char"}[spm.trainer_spec.model_type]
    fallback = spm.trainer_spec.byte_fallback
    plain = {p.piece: p.score for p in spm.pieces if p.type in (p.NORMAL, p.USER_DEFINED, p.BYTE)}
    own = [p.piece for p in spm.pieces if p.type == p.USER_DEFINED]
    if kind == "word" or spm.trainer_spec.treat_whitespace_as_suffix:
        raise NotFast("type word" if kind == "word" else "blanks at the end of words")
    if lost := plain.keys() - set(symbols):
        raise NotFast(
            f"{len(lost):,} of its {len(plain):,} pieces are not in dict.txt, so they are <unk> as in fairseq"
        )
    others = dict.fromkeys(symbol for symbol in symbols if symbol not in plain and symbol not in SPECIAL.values())
    if found := [symbol for symbol in others if not any(character in plain for character in symbol)]:
        raise NotFast(f"dict.txt has characters that SentencePiece does not know, such as {found[0]!r}")
    if fallback and (kind == "unigram" or own):
        raise NotFast("its pieces for bytes, such as <0x41>, would be found in text")
    # no text becomes a symbol with a plain blank
    symbols = [f" {symbol}" if symbol in others else symbol for symbol in symbols]
    ids = numbered(symbols)
    if kind == "unigram":
        least = min(plain.values())  # for symbols that are no pieces; it moves no other path
        pieces = [(symbol, plain.get(symbol, least)) for symbol in symbols]
        model: Any = models.Unigram(pieces, unk_id=ids["<unk>"], byte_fallback=fallback)
    else:
        model = models.BPE(dict(ids), merges_of(spm), unk_token="<unk>", fuse_unk=True, byte_fallback=fallback)
        model.ignore_merges = bool(own)  # to which no merges lead
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(normalization(spm.normalizer_spec))
    inside = any(BLANK in piece[1:] for piece in plain)
    cuts: list[Any] = [pre_tokenizers.Metaspace(BLANK, prepend_scheme="never", split=not inside)]
    if own and kind != "unigram":  # they are pieces wherever they stand
        longest_first = sorted(map(re.escape, own), key=len, reverse=True)
        cuts.insert(0, pre_tokenizers.Split(Regex("|".join(longest_first)), "isolated"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(BLANK)] if fallback else [decoders.Metaspace(BLANK)]
    )
    return finished(tokenizer, symbols), f"SentencePiece {kind}"


def normalization(spec: Any) -> list[normalizers.Normalizer]:
    """SentencePiece's way from a text to one whose blanks are marked."""
    steps: list[normalizers.Normalizer] = []
    if spec.precompiled_charsmap:
        if spec.name.startswith("nmt_"):  # two blanks for SentencePiece, but one character for ``tokenizers``
            steps.append(normalizers.Replace("\r\n", "\n\n"))
        steps.append(normalizers.Precompiled(spec.precompiled_charsmap))
    if spec.remove_extra_whitespaces:
        # a mark that stands in the text itself is a blank at the end, too
        ends = normalizers.Replace(Regex(rf"\A +|[ {BLANK}]+\z"), "")
        steps += [ends, normalizers.Replace(Regex(" {2,}"), " ")]
    if spec.add_dummy_prefix:
        steps.append(normalizers.Prepend(BLANK))
    return [*steps, normalizers.Replace(" ", BLANK)]


def merges_of(spm: Any) -> list[tuple[str, str]]:
    """The merges of a BPE model. SentencePiece joins the two neighbours that make the piece with the best score."""
    if spm.trainer_spec.model_type != spm.trainer_spec.BPE:
        return []
    pieces = {p.piece: (-p.score, number) for number, p in enumerate(spm.pieces) if p.type == p.NORMAL}
    found = []
    for piece, rank in pieces.items():
        for place in range(1, len(piece)):
            left, right = piece[:place], piece[place:]
            if left in pieces and right in pieces:
                found.append((rank, pieces[left], pieces[right], left, right))
    return [(left, right) for *_, left, right in sorted(found)]


def with_other_ids(path: str | Path, symbols: Sequence[str]) -> Tokenizer:
    """A tokenizer whose pieces get the ids of the dictionary. Its own special tokens become fairseq's."""
    tokenizer = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    ids, model = numbered(symbols), tokenizer["model"]
    own = {token["content"] for token in tokenizer["added_tokens"] if token["special"]}
    vocabulary = model["vocab"]
    pieces = [piece for piece, *_ in vocabulary] if isinstance(vocabulary, list) else list(vocabulary)
    refuse_lost([piece for piece in pieces if piece not in ids and piece not in own], path)
    if isinstance(vocabulary, list):
        scores = dict(map(tuple, vocabulary))
        least = min(scores.values())
        model["vocab"] = [(symbol, scores.get(symbol, least)) for symbol in symbols]
        model["unk_id"] = ids["<unk>"]
    else:
        model["vocab"] = ids
        model["unk_token"] = "<unk>" if model.get("unk_token") is not None else None
    kept = [token for token in tokenizer["added_tokens"] if not token["special"] and token["content"] in ids]
    tokenizer["added_tokens"] = [{**token, "id": ids[token["content"]]} for token in kept]
    tokenizer.update(post_processor=None, truncation=None, padding=None)
    # the space before <mask> belongs to it where words begin with one
    byte_level = "ByteLevel" in json.dumps(tokenizer["pre_tokenizer"])
    return finished(Tokenizer.from_str(json.dumps(tokenizer)), symbols, lstrip=byte_level)


def numbered(symbols: Sequence[str]) -> dict[str, int]:
    return {symbol: number for number, symbol in enumerate(symbols)}


def refuse_lost(pieces: Sequence[str], path: str | Path) -> None:
    """Raises ValueError for pieces that the dictionary lacks. fairseq reads them as <unk>, which ``tokenizers`` cannot
    do: each of its pieces has an id of its own."""
    if pieces:
        shown = ", ".join(map(repr, pieces[:3]))
        raise ValueError(
            f"{path} has {len(pieces)} pieces that are not in dict.txt (such as {shown}), to which a fast tokenizer "
            "cannot give the id of <unk>: leave out --data to export the model without a tokenizer"
        )


def finished(tokenizer: Tokenizer, symbols: Sequence[str], lstrip: bool = False) -> Tokenizer:
    """Adds the special tokens, and puts them around texts as RoBERTa does."""
    special = ["<s>", "<pad>", "</s>", "<unk>", *(["<mask>"] if "<mask>" in symbols else [])]
    if lacking := [token for token in special if token not in symbols]:
        raise ValueError(f"the dictionary has no {' '.join(lacking)}: give the one that the model was trained with")
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False, lstrip=lstrip and token == "<mask>") for token in special]
    )
    ids = numbered(symbols)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", ids["</s>"]), ("<s>", ids["<s>"]), trim_offsets=True, add_prefix_space=False
    )
    return tokenizer


def for_prompts(tokenizer: Tokenizer, start: str) -> None:
    """Makes a text begin with the symbol ``start`` and stay open at its end, so that a language model continues it."""
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A", pair=f"{start} $A $B", special_tokens=[(start, tokenizer.token_to_id(start))]
    )


def for_sources(tokenizer: Tokenizer) -> None:
    """Makes a text end with </s> and begin with its first word, as sources of encoder-decoder models do."""
    end = "</s>"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", pair=f"$A $B {end}", special_tokens=[(end, tokenizer.token_to_id(end))]
    )


def special_tokens(start: str | None = None) -> dict[str, str]:
    """fairseq's special symbols by their names in transformers. start: as in ``files_of``."""
    if start is None:
        return dict(SPECIAL)
    return {name: SPECIAL[name] for name in ("eos_token", "pad_token", "unk_token")} | {"bos_token": start}


def files_of(tokenizer: Tokenizer, longest: int, start: str | None = None) -> dict[str, str]:
    """The files of a tokenizer for AutoTokenizer, by name. longest: tokens of an input. start: the symbol that a text
    of a language model begins with; then pads stand on the left, where ``generate`` needs them."""
    special = {name: x for name, x in special_tokens(start).items() if tokenizer.token_to_id(x) is not None}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        **({} if start is None else {"padding_side": "left"}),
        **special,
    }
    return {
        "tokenizer.json": tokenizer.to_str(),
        "tokenizer_config.json": json.dumps(config, indent=2) + "\n",
        "special_tokens_map.json": json.dumps(special, indent=2) + "\n",
    }
