"""The dictionaries in a folder of data, for an export."""

from pathlib import Path
from typing import Any

from fairseq.data import Dictionary, data_utils


def load_dictionary(data: Path, name: str, size: int, checkpoint: Path, with_mask: bool = False) -> Dictionary:
    """The dictionary in a file of the data. with_mask: the task adds <mask> to it. Raises ValueError, one line, if the
    folder has no such file, or if it has not ``size`` words, as the checkpoint."""
    if not (data / name).is_file():
        raise ValueError(f"no {name} in {data}: give the folder of the training's data")
    dictionary = Dictionary.load(str(data / name))
    if with_mask:
        dictionary.add_symbol("<mask>")
    if len(dictionary) != size:
        raise ValueError(
            f"{data}/{name}{' and <mask> make' if with_mask else ' makes'} {len(dictionary)} words, {checkpoint} has "
            f"{size}: give the folder of the data that it was trained with"
        )
    return dictionary


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
