"""The labels of a fine-tuned model in their order, and its vocabulary, which say what its numbers mean.

Both are read from the data. With other data the same numbers mean other classes and words, and nothing shows it; so a
checkpoint keeps these facts, and other data are refused.
"""

import hashlib
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary
from fairseq.tasks import FairseqTask

#: the key of the facts in ``task_state`` and in ``extra_state`` of a checkpoint
KEY = "data_facts"


class KeepsDataFacts(FairseqTask):
    """Mixin in front of a task that has a source dictionary. A checkpoint without facts is loaded as it is."""

    #: the names of the classes, in the order of their numbers; None where they have none
    labels: list[str] | None = None

    def data_facts(self) -> dict[str, Any]:
        words = digest(self.source_dictionary)
        return {"task": type(self).__name__, "labels": self.labels, "vocabulary": words}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), KEY: self.data_facts()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Called where a trained model is loaded to be evaluated."""
        remedy = "give the data of the training, or prepare these with its labels and its vocabulary"
        self.refuse_other_data(state_dict.get(KEY), "the model", remedy)
        super().load_state_dict({key: value for key, value in state_dict.items() if key != KEY})

    def refuse_other_data(self, trained: dict[str, Any] | None, model: str, remedy: str) -> None:
        """Raises ValueError, one line, if the data have other labels or words than ``trained``, the facts of a
        checkpoint of this task. model: what the line calls the checkpoint."""
        ours = self.data_facts()
        if trained is None or trained["task"] != ours["task"]:
            return
        given = [
            f"the {name} {_shown(ours[name])}, {model} was trained with {_shown(trained[name])}"
            for name in ("labels", "vocabulary")
            if None not in (ours[name], trained[name]) and ours[name] != trained[name]
        ]
        if given:
            raise ValueError(f"{self.cfg.data} has {'; '.join(given)}: {remedy}")


def with_labels(labels: list[str]) -> dict[str, Any]:
    """The ``task_state`` of a model whose data are not known, but for the names of its classes."""
    return {KEY: {"task": "", "labels": labels, "vocabulary": None}}


def refuse_other_words(state: dict[str, Any], checkpoint: Path, words: Dictionary, data: Path) -> None:
    """Raises ValueError, one line, if a checkpoint was trained with other words than those of the data."""
    trained = ((state.get("task_state") or {}).get(KEY) or {}).get("vocabulary")
    if trained not in (None, digest(words)):
        raise ValueError(
            f"{checkpoint} was trained with another dictionary ({_shown(trained)}) than {data}/dict.txt "
            f"({_shown(digest(words))}): give the folder of the data that it was trained with"
        )


def digest(words: Dictionary) -> str:
    return hashlib.sha256("\n".join(words.symbols).encode()).hexdigest()


def _shown(fact):
    return ", ".join(map(repr, fact)) if isinstance(fact, list) else f"sha256:{fact[:8]}"


def labels_of(state: dict[str, Any]) -> list[str] | None:
    """The names of the classes of the model in a checkpoint, if it has kept them."""
    return ((state.get("task_state") or {}).get(KEY) or {}).get("labels")
