"""The dictionaries in a folder of data, for an export."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary, data_utils


def load_dictionary(data: Path, name: str) -> Dictionary:
    """Raises ValueError, one line, if the folder has no such file."""
    if not (data / name).is_file():
        raise ValueError(f"no {name} in {data}: give the folder of the training's data")
    return Dictionary.load(str(data / name))


def languages_of(task: Any, data: Path, checkpoint: Path) -> list[str]:
    """Source and target, which name the dictionaries. A training without --source-lang and --target-lang saves none:
    fairseq took them from the names of its data's files, and so does this. Raises ValueError, one line, if neither says
    them."""
    languages = [getattr(task, f"{side}_lang", None) for side in ("source", "target")]
    if not all(languages) and data.is_dir():
        languages = data_utils.infer_language_pair(str(data))
    if not all(languages):
        raise ValueError(
            f"{checkpoint} does not say its languages, and {data} has no file such as train.en-de.en.idx whose name "
            "does: give the folder of the training's data"
        )
    return [*map(str, languages)]


def two_dictionaries(data: Path, languages: Sequence[str], sizes: Sequence[int], checkpoint: Path) -> list[Dictionary]:
    """Returns the dictionaries of source and target. sizes: the words of encoder and decoder. Raises ValueError if a
    dictionary has another size."""
    dictionaries = [load_dictionary(data, f"dict.{language}.txt") for language in languages]
    for name, language, dictionary, size in zip(("encoder", "decoder"), languages, dictionaries, sizes):
        if len(dictionary) != size:
            raise ValueError(
                f"{data}/dict.{language}.txt makes {len(dictionary)} words, the {name} of {checkpoint} has "
                f"{size}: give the folder of the data that it was trained with"
            )
    return dictionaries
