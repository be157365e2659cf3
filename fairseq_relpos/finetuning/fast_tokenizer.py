"""The vocabulary of a model that was imported from transformers: a tokenizer.json of the library tokenizers."""

from pathlib import Path
from typing import Any

from ..version import install


def fast_tokenizer(path: str | Path) -> Any:
    """The tokenizer in a tokenizer.json. A special symbol in a text is text."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ValueError(f"{path} needs the library tokenizers: {install('hf')}") from None
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises Exception itself
        raise ValueError(f"{path} is no file of the library tokenizers ({error}): copy it again") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer
