"""One label or one number for a sequence of symbols or of vectors, read from arrays."""

import json
import os
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary, data_utils
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import register_task
from omegaconf import II, MISSING

from .shuffled import OneDictionaryTask, ShuffledSequences


@dataclass
class SequenceLabelsConfig(FairseqDataclass):
    data: str = field(default=MISSING, metadata={"help": "folder with train.npz, valid.npz, ..."})
    seed: int = II("common.seed")


@register_task("sequence_labels", dataclass=SequenceLabelsConfig)
class SequenceLabelsTask(OneDictionaryTask):
    """Reads DATA/SPLIT.npz with four arrays:

    inputs   (sum of lengths) integers into ``symbols``, or (sum of lengths, C) floats
    lengths  (N) integers, at least 1
    labels   (N) classes 0, 1, ..., or floats to be approximated
    symbols  (V) the names of the symbols; empty where the inputs are floats

    Train comes first: every other split must have its symbols, channels and kind of label. DATA/facts.json may name the
    classes, as ``labels``.
    """

    def __init__(self, cfg, facts):
        super().__init__(cfg)
        self.facts = facts
        self.dictionary = Dictionary()
        for symbol in facts["symbols"]:
            self.dictionary.add_symbol(symbol)
        names = Path(cfg.data, "facts.json")
        if names.is_file():
            self.labels = json.loads(names.read_text(encoding="utf-8")).get("labels")

    @classmethod
    def setup_task(cls, cfg: Any, **kwargs: Any) -> "SequenceLabelsTask":
        return cls(cfg, facts_of(read_split(cfg.data, "train")))

    #: numbers in each vector of a sequence; 0 where it consists of symbols
    channels = property(lambda self: self.facts["channels"])
    #: 1 where the label is a number
    num_labels = property(lambda self: self.facts["num_labels"])

    def load_dataset(self, split: str, **kwargs: Any) -> None:
        arrays = read_split(self.cfg.data, split)
        facts = facts_of(arrays)
        classes = self.num_labels
        for key, value in facts.items():
            if key != "num_labels" and value != self.facts[key]:
                raise ValueError(
                    f"{split}.npz in {self.cfg.data} has {key} {value}, train.npz has "
                    f"{self.facts[key]}: make both from the same data"
                )
        if facts["num_labels"] > classes:
            raise ValueError(
                f"{split}.npz in {self.cfg.data} has labels up to {facts['num_labels'] - 1}, "
                f"train.npz up to {classes - 1}: train on samples of every label"
            )
        self.datasets[split] = SequenceLabels(arrays, self.dictionary, self.cfg.seed)

    def max_positions(self) -> None:
        return None


class SequenceLabels(ShuffledSequences):
    """Batches {src_tokens [B, T], values [B, T, C] or None}, padded to the right, and target [B].

    Where the inputs are vectors, src_tokens only says which of them are real. Batches are not sorted by length: batches
    of one length cost t5 five points of accuracy on Embedded Reber (0.94 to 0.89 after 100 epochs).
    """

    def __init__(self, arrays, dictionary, seed):
        super().__init__(arrays["lengths"], seed)
        self.labels = torch.from_numpy(arrays["labels"])
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)])
        self.inputs = torch.from_numpy(arrays["inputs"])
        self.dictionary = dictionary
        if not self.inputs.is_floating_point():
            self.inputs = self.inputs + dictionary.nspecial

    def __getitem__(self, index):
        start, end = self.starts[index], self.starts[index + 1]
        return {"id": index, "inputs": self.inputs[start:end], "label": self.labels[index]}

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        if not samples:
            return {}
        inputs = [sample["inputs"] for sample in samples]
        lengths = torch.tensor([len(x) for x in inputs])
        pad = self.dictionary.pad()
        if inputs[0].is_floating_point():
            values = torch.nn.utils.rnn.pad_sequence(inputs, batch_first=True)
            real = torch.arange(values.shape[1]) < lengths[:, None]
            tokens = torch.where(real, self.dictionary.unk(), pad)
        else:
            values = None
            tokens = data_utils.collate_tokens(inputs, pad)
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
            "net_input": {"src_tokens": tokens, "src_lengths": lengths, "values": values},
            "target": torch.stack([sample["label"] for sample in samples]),
        }


def read_split(data: str, split: str) -> dict[str, np.ndarray]:
    """Reads and checks the arrays of one split."""
    path = os.path.join(data, f"{split}.npz")
    if not os.path.exists(path):
        raise FileNotFoundError(f"no {path}: give a folder with train.npz, valid.npz, ...")
    try:
        with np.load(path) as file:
            arrays = {key: file[key] for key in ("inputs", "lengths", "labels", "symbols")}
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} cannot be read ({error}): inputs, lengths, labels and symbols are needed, as "
            "numpy.savez writes them"
        ) from error
    check(arrays, path)
    # float64: fairseq halves every float32 tensor under --fp16, and with it what is to be hit
    for name, floats in (("inputs", np.float32), ("labels", np.float64), ("lengths", np.int64)):
        kind = floats if arrays[name].dtype.kind == "f" else np.int64
        arrays[name] = arrays[name].astype(kind, copy=False)
    return arrays


def check(arrays: dict[str, np.ndarray], path: str) -> None:
    """Raises ValueError for arrays that do not fit together."""
    inputs, lengths, labels = arrays["inputs"], arrays["lengths"], arrays["labels"]
    if not len(lengths) or len(lengths) != len(labels):
        raise ValueError(f"{path} has {len(lengths)} lengths and {len(labels)} labels")
    symbols, known = [str(symbol) for symbol in arrays["symbols"]], Dictionary()
    for symbol in symbols:
        if known.index(symbol) != known.unk() or symbol == known.unk_word:
            raise ValueError(f"{path} has the symbol {symbol!r} twice, or one that is fairseq's own: give another name")
        known.add_symbol(symbol)
    if lengths.min() < 1 or lengths.sum() != len(inputs):
        raise ValueError(
            f"{path} has {len(inputs)} inputs, but lengths (each at least 1) that add up to {lengths.sum()}"
        )
    if inputs.ndim == 1 and not 0 <= inputs.min() <= inputs.max() < len(arrays["symbols"]):
        raise ValueError(
            f"{path} has symbols {inputs.min()} to {inputs.max()}, but names for {len(arrays['symbols'])} of them"
        )
    if labels.dtype.kind in "iu" and labels.min() < 0:
        raise ValueError(f"{path} has the label {labels.min()}: classes count from 0")


def facts_of(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The properties in which all splits must agree with train.npz."""
    inputs, labels = arrays["inputs"], arrays["labels"]
    return {
        "symbols": [str(symbol) for symbol in arrays["symbols"]],
        "channels": inputs.shape[1] if inputs.ndim == 2 else 0,
        "kind of label": "number" if labels.dtype.kind == "f" else "class",
        "num_labels": 1 if labels.dtype.kind == "f" else int(labels.max()) + 1,
    }
