"""Reading comprehension: the answer to a question is a part of a text, or there is none."""

import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from fairseq.data import data_utils
from fairseq.dataclass import FairseqDataclass
from fairseq.models.roberta import RobertaModel
from fairseq.tasks import register_task
from omegaconf import II, MISSING

from . import span_head, span_windows
from .shuffled import OneDictionaryTask, ShuffledSequences

logger = logging.getLogger(__name__)


@dataclass
class SpanPredictionConfig(FairseqDataclass):
    data: str = field(default=MISSING, metadata={"help": "folder that examples/squad/prepare.sh has written"})
    window: int = field(default=384, metadata={"help": "most tokens of a window: question, part of the text, specials"})
    doc_stride: int = field(default=128, metadata={"help": "tokens between the starts of two windows of a text"})
    max_query_length: int = field(default=64, metadata={"help": "tokens after which a question is cut"})
    seed: int = II("common.seed")
    train_subset: str = II("dataset.train_subset")


@register_task("span_prediction", dataclass=SpanPredictionConfig)
class SpanPredictionTask(OneDictionaryTask):
    """Reads DATA/dict.txt and DATA/SPLIT.npz (``finetuning.squad_data.encode``). It trains any roberta_NAME, fairseq's
    own RoBERTa, or any sequence_encoder_NAME from scratch."""

    #: the answer of a sequence_encoder_NAME: two logits for each token
    num_labels, channels = 2, 0

    def __init__(self, cfg, dictionary):
        super().__init__(cfg)
        self.dictionary = dictionary
        span_windows.check_sizes(cfg.window, cfg.doc_stride, cfg.max_query_length)

    @classmethod
    def setup_task(cls, cfg: Any, **kwargs: Any) -> "SpanPredictionTask":
        return cls(cfg, span_windows.load_dictionary(cfg.data))

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        model = super().build_model(cfg, from_checkpoint)
        if isinstance(model, RobertaModel):
            span_head.add_span_head(model, cfg.encoder_embed_dim)
        else:
            span_head.read_every_token(model)
        positions = model.max_positions()
        if positions is not None and self.cfg.window > positions:
            flag = "--max-positions" if isinstance(model, RobertaModel) else "--max-source-positions"
            raise ValueError(
                f"--window {self.cfg.window} exceeds the model's {positions} positions: give --window {positions} or "
                f"less, or {flag} {self.cfg.window}"
            )
        return model

    def load_dataset(self, split: str, **kwargs: Any) -> None:
        arrays = span_windows.read_arrays(self.cfg.data, split)
        if int(arrays["words"]) != len(self.dictionary):
            raise ValueError(
                f"{split}.npz in {self.cfg.data} was made with a dictionary of {arrays['words']} words, dict.txt has "
                f"{len(self.dictionary)}: prepare the data again"
            )
        sizes = (self.cfg.window, self.cfg.doc_stride, self.cfg.max_query_length)
        windows = list(span_windows.windows_of(arrays, *sizes))
        is_train = split in ("train", self.cfg.train_subset)
        if is_train:
            windows = span_windows.training_windows(arrays, windows)
            if not windows:
                raise ValueError(f"{split}.npz in {self.cfg.data} has no answer that stands at its offset")
        logger.info(f"{split}: {len(arrays['question_context'])} questions in {len(windows)} windows")
        seed = self.cfg.seed if is_train else None
        self.datasets[split] = SpanWindows(arrays, windows, self.dictionary, self.cfg.max_query_length, seed)

    def max_positions(self) -> int:
        return self.cfg.window


class SpanWindows(ShuffledSequences):
    """Batches of windows, padded to the right:

    src_tokens [B, T]; allowed [B, T]: the tokens of the text, and <s>, which means "no answer in this window";
    target [B, 2]: the first and the last token of the answer, or 0 and 0.

    seed: that of the order of the training, which is new in each epoch; None: windows come sorted by length.
    """

    def __init__(self, arrays, windows, dictionary, longest_question, seed):
        self.arrays, self.windows, self.dictionary = arrays, windows, dictionary
        self.contexts = np.concatenate([[0], np.cumsum(arrays["context_lengths"])])
        self.questions = np.concatenate([[0], np.cumsum(arrays["question_lengths"])])
        self.question_sizes = np.minimum(arrays["question_lengths"], longest_question)
        sizes = [window.length + self.question_sizes[window.question] for window in windows]
        super().__init__(np.array(sizes, np.int64) + span_windows.SPECIAL, seed)

    def offset(self, index: int) -> int:
        """Returns where the part of the text begins in a window."""
        return int(self.question_sizes[self.windows[index].question]) + span_windows.SPECIAL - 1

    def __getitem__(self, index):
        window, offset = self.windows[index], self.offset(index)
        start = self.questions[window.question]
        question = self.arrays["question_tokens"][start : start + offset - span_windows.SPECIAL + 1]
        start = self.contexts[self.arrays["question_context"][window.question]] + window.start
        text = self.arrays["context_tokens"][start : start + window.length]
        bos, eos = self.dictionary.bos(), self.dictionary.eos()
        tokens = torch.from_numpy(np.concatenate([[bos], question, [eos, eos], text, [eos]]))
        allowed = torch.zeros(len(tokens), dtype=torch.bool)
        allowed[0] = True
        allowed[offset : offset + window.length] = True
        span = span_windows.target_of(self.arrays, window)
        target = torch.tensor([0, 0] if span is None else [offset + span[0], offset + span[1]])
        return {"id": index, "tokens": tokens, "allowed": allowed, "target": target}

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        if not samples:
            return {}
        tokens = [sample["tokens"] for sample in samples]
        lengths = torch.tensor([len(row) for row in tokens])
        allowed = torch.nn.utils.rnn.pad_sequence([sample["allowed"] for sample in samples], batch_first=True)
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
            "net_input": {
                "src_tokens": data_utils.collate_tokens(tokens, self.dictionary.pad()),
                "src_lengths": lengths,
            },
            "allowed": allowed,
            "target": torch.stack([sample["target"] for sample in samples]),
        }
