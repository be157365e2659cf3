"""Data that the official TUPE code has binarised, read as they are.

Its dictionary has three special symbols more than fairseq's, <file> <email> <url>, which its dict.txt
does not list: with fairseq's own tasks every word is shifted by 3. These tasks use the official ids,
for labels too, and masked_lm never inserts the three symbols as random words.

    --task tupe_masked_lm              masked_lm
    --task tupe_sentence_prediction    sentence_prediction
"""

import os
from typing import Any

from fairseq import utils
from fairseq.tasks import register_task
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from fairseq.tasks.sentence_prediction import SentencePredictionConfig, SentencePredictionTask

from ..checkpoints.tupe import official_dictionary
from .data_facts import KeepsDataFacts


@register_task("tupe_masked_lm", dataclass=MaskedLMConfig)
class TupeMaskedLMTask(MaskedLMTask):
    @classmethod
    def setup_task(cls, cfg: Any, **kwargs: Any) -> "TupeMaskedLMTask":
        return cls(cfg, cls.load_dictionary(os.path.join(utils.split_paths(cfg.data)[0], "dict.txt")))

    @classmethod
    def load_dictionary(cls, filename: str) -> Any:
        return official_dictionary(filename)


@register_task("tupe_sentence_prediction", dataclass=SentencePredictionConfig)
class TupeSentencePredictionTask(KeepsDataFacts, SentencePredictionTask):
    def __init__(self, cfg: Any, data_dictionary: Any, label_dictionary: Any = None) -> None:
        super().__init__(cfg, data_dictionary, label_dictionary)
        if label_dictionary is not None:
            names = label_dictionary.symbols[label_dictionary.nspecial :]
            self.labels = [name for name in names if not name.startswith("madeupword")]

    @classmethod
    def load_dictionary(cls, filename: str) -> Any:
        return official_dictionary(filename)
