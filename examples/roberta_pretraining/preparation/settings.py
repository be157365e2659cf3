"""What settings.sh says about the text, as prepare.sh hands it over: NAME=VALUE."""

from dataclasses import dataclass, fields

from .problem import Problem

VOCABULARIES = ("sentencepiece", "gpt2")


@dataclass(frozen=True)
class Settings:
    vocabulary: str
    #: entries of fairseq's dictionary, <s>, <pad>, </s>, <unk> and <mask> included
    vocab_size: int
    #: pieces that are merged of two others; 0: as many as there is room for
    merges: int
    #: text that the vocabulary is learned from
    vocab_megabytes: int
    character_coverage: float
    lowercase: bool
    moses_tokens: bool
    tupe_compat: bool
    #: one document in so many is for validation
    valid_every: int
    #: pieces of a line, </s> not counted
    longest_line: int


def read(pairs):
    given = dict(pair.split("=", 1) for pair in pairs)
    values = {}
    for field in fields(Settings):
        name = field.name.upper()
        text = given.pop(name)
        try:
            values[field.name] = {"yes": True, "no": False}[text] if field.type is bool else field.type(text)
        except (KeyError, ValueError):
            raise Problem(f"{name}={text}: give {'yes or no' if field.type is bool else 'a number'}") from None
        if field.type in (int, float) and (values[field.name] < 0 or not values[field.name] and name != "MERGES"):
            raise Problem(f"{name}={text}: give a number above 0")
    if given:
        raise Problem(f"unknown settings {' '.join(given)}")
    if values["vocabulary"] not in VOCABULARIES:
        raise Problem(f"VOCABULARY={values['vocabulary']}: give {' or '.join(VOCABULARIES)}")
    return Settings(**values)
