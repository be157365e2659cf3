"""Fine-tuning on sentences or pairs of sentences with a label each, as ``fairseq_relpos.finetuning.prepare`` writes
them (docs/fine-tuning.md):

    dict.txt                            the vocabulary of the pretraining
    labels.txt                          the labels, a line each; without it labels are numbers (regression)
    input0/SPLIT.bin, .idx              first sentences; those in input1 are the second ones, if there are any
    label/SPLIT.label                   a number a line: that of the line in labels.txt, or the value; may be missing
"""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.data import (
    IdDataset,
    NestedDictionaryDataset,
    NumelDataset,
    NumSamplesDataset,
    RawLabelDataset,
    RightPadDataset,
    SortDataset,
    data_utils,
)
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import register_task
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from omegaconf import II, MISSING

from .cut_sentences import CutSentences
from .data_facts import KeepsDataFacts

logger = logging.getLogger(__name__)


@dataclass
class SentencePairsConfig(FairseqDataclass):
    data: str = field(default=MISSING, metadata={"help": "folder that was prepared"})
    max_positions: int = field(
        default=512, metadata={"help": "tokens of a sample; of a longer one the longer sentence is cut at its end"}
    )
    num_classes: int = field(default=-1, metadata={"help": "outputs of the head; by itself what labels.txt says"})
    classification_head_name: str = II("criterion.classification_head_name")
    seed: int = II("common.seed")
    train_subset: str = II("dataset.train_subset")


@register_task("sentence_pairs", dataclass=SentencePairsConfig)
class SentencePairsTask(KeepsDataFacts, SentencePredictionTask):
    def __init__(self, cfg, data_dictionary, label_dictionary=None):
        super().__init__(cfg, data_dictionary, label_dictionary)
        labels = Path(cfg.data, "labels.txt")
        self.labels = labels.read_text(encoding="utf-8").splitlines() if labels.exists() else None
        self.regression = self.labels is None
        classes = 1 if self.labels is None else len(self.labels)
        if cfg.num_classes not in (-1, classes):
            raise ValueError(f"--num-classes {cfg.num_classes}, but labels.txt of {cfg.data} makes {classes}")
        cfg.num_classes = classes

    @classmethod
    def setup_task(cls, cfg: Any, **kwargs: Any) -> "SentencePairsTask":
        path = Path(cfg.data, "dict.txt")
        if not path.exists():
            raise ValueError(f"{cfg.data} has no dict.txt: give a folder that was prepared for fine-tuning")
        return cls(cfg, cls.load_dictionary(str(path)))

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> Any:
        folder = Path(self.cfg.data)
        first = self._sentences(folder / "input0" / split)
        if first is None:
            raise ValueError(f"{folder} has no split {split}: there are {' '.join(splits_of(folder))}")
        tokens = CutSentences(
            first,
            self._sentences(folder / "input1" / split),
            self.dictionary.bos(),
            self.dictionary.eos(),
            self.max_positions(),
        )
        if tokens.shortened:
            logger.info(f"{split}: {tokens.shortened} of {len(tokens)} samples cut to {self.max_positions()} tokens")
        parts = {
            "id": IdDataset(),
            "net_input": {
                "src_tokens": RightPadDataset(tokens, pad_idx=self.dictionary.pad()),
                "src_lengths": NumelDataset(tokens, reduce=False),
            },
            "nsentences": NumSamplesDataset(),
            "ntokens": NumelDataset(tokens, reduce=True),
        }
        labels = folder / "label" / f"{split}.label"
        if labels.exists():
            parts["target"] = RawLabelDataset(self._targets(labels))
        dataset = NestedDictionaryDataset(parts, sizes=[tokens.sizes])
        if split in ("train", self.cfg.train_subset):  # another order for each seed
            with data_utils.numpy_seed(self.cfg.seed):
                order = np.random.permutation(len(tokens))
            dataset = SortDataset(dataset, sort_order=[order])
        self.datasets[split] = dataset
        return dataset

    def _sentences(self, path):
        if not path.with_suffix(".idx").exists():
            return None
        return data_utils.load_indexed_dataset(str(path), self.dictionary)

    def _targets(self, path):
        kind = np.float64 if self.regression else int  # of which torch makes tensors of full precision
        values = [kind(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if not self.regression and not all(0 <= value < len(self.labels) for value in values):
            raise ValueError(f"{path} has a label that is not in labels.txt: prepare the data again")
        return values


def splits_of(folder: Path) -> list[str]:
    return sorted(path.stem for path in (folder / "input0").glob("*.idx"))
