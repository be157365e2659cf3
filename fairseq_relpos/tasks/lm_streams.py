"""--task lm_streams: language modelling whose batches continue the text of the last ones, for a segment memory."""

import copy
import functools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Optional

import numpy as np
from fairseq.data import TokenBlockDataset
from fairseq.data.iterators import EpochBatchIterator
from fairseq.tasks import register_task
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from omegaconf import II

from ..segments import Place

logger = logging.getLogger(__name__)


@dataclass
class LMStreamsConfig(LanguageModelingConfig):
    memory_length: Optional[int] = field(  # noqa: UP045  the form that fairseq reads
        default=None, metadata={"help": "tokens before the segment that each layer remembers (default: 0)"}
    )
    eval_memory_length: Optional[int] = field(  # noqa: UP045  the form that fairseq reads
        default=None, metadata={"help": "the same for evaluation (default: --memory-length)"}
    )
    same_length: bool = field(
        default=False, metadata={"help": "each query sees as many keys as the memory is long, itself included"}
    )
    reset_at_document: bool = field(
        default=False,
        metadata={"help": "a document begins a new segment and remembers nothing; empty lines divide them"},
    )
    update_freq: list[int] = II("optimization.update_freq")
    train_subset: str = II("dataset.train_subset")
    #: what the user gave: fairseq-eval-lm puts a number of its own in its place
    max_tokens: Optional[int] = II("dataset.max_tokens")  # noqa: UP045  the form that fairseq reads


#: settings of language_modeling that would break the streams -> why
REFUSED = {
    "add_bos_token": "puts a token between the segments of a stream",
    "pad_to_fixed_length": "puts pads between the segments of a stream",
    "pad_to_fixed_bsz": "adds rows that are no streams",
}

#: arguments of get_batch_iterator that fairseq's iterator takes as they are
OF_THE_ITERATOR = ("seed", "num_shards", "shard_id", "num_workers", "epoch", "skip_remainder_batch")


@register_task("lm_streams", dataclass=LMStreamsConfig)
class LMStreamsTask(LanguageModelingTask):
    """language_modeling with --batch-size streams on each rank. The text is cut into segments of --tokens-per-sample
    tokens; a stream is a run of segments, one in each batch, in the order of the text. --update-freq splits the
    streams of a rank among the batches of an update. Every token is a target once."""

    def __init__(self, args: Any, dictionary: Any, output_dictionary: Any = None, targets: Any = None) -> None:
        super().__init__(args, dictionary, output_dictionary, targets)
        mode = str(args.sample_break_mode)
        if mode != "none":
            raise ValueError(
                f"--sample-break-mode {mode}: --task lm_streams cuts the text into segments of --tokens-per-sample "
                "tokens; leave it out, or use --reset-at-document for documents"
            )
        for name, why in REFUSED.items():
            if getattr(args, name, False):
                raise ValueError(f"--{name.replace('_', '-')} {why} of --task lm_streams: leave it out")

    def build_model(self, args: Any, from_checkpoint: bool = False) -> Any:
        model = super().build_model(args, from_checkpoint)
        if not hasattr(model, "remember"):  # as models with a segment memory have
            raise ValueError(
                f"--arch {getattr(args, 'arch', None) or getattr(args, '_name', '?')} has no segment memory: "
                "--task lm_streams needs transformer_lm_NAME, --task language_modeling takes any decoder"
            )
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        super().load_dataset(split, epoch, combine, **kwargs)
        if not self.args.reset_at_document:
            return
        whole = self.datasets[split]
        sentences = whole.dataset.dataset
        check_documents(np.asarray(sentences.sizes), split)
        blocks = DocumentBlocks(
            sentences,
            sentences.sizes,
            self.args.tokens_per_sample,
            pad=self.dictionary.pad(),
            eos=self.dictionary.eos(),
            include_targets=True,
        )
        self.datasets[split] = copy.copy(whole)
        self.datasets[split].dataset, self.datasets[split].sizes = blocks, np.array(blocks.sizes)

    def get_batch_iterator(
        self,
        dataset: Any,
        max_tokens: int | None = None,
        max_sentences: int | None = None,
        max_positions: Any = None,
        **how: Any,
    ) -> Any:
        split = next((name for name, known in self.datasets.items() if known is dataset), None)
        if split is None:  # sentences to be continued or scored
            return super().get_batch_iterator(dataset, max_tokens, max_sentences, max_positions, **how)
        if max_tokens is not None:
            given = "--max-tokens" if max_tokens == self.args.max_tokens else "--max-tokens-valid"
            raise ValueError(
                f"{given} {max_tokens}: a batch of --task lm_streams has a segment of --tokens-per-sample tokens "
                "from each of --batch-size streams; give --batch-size alone (to fairseq-generate: --task "
                "language_modeling --sample-break-mode eos)"
            )
        if max_sentences is None:
            raise ValueError("--task lm_streams needs --batch-size: the number of streams of a rank")
        check_lengths(self.args.tokens_per_sample, max_positions)
        passes = self.args.update_freq if split == self.args.train_subset else [1]
        in_validation = "--batch-size-valid (outside of a training: --batch-size)"
        flag = "--batch-size" if split == self.args.train_subset else in_validation
        for count in passes:
            if max_sentences % count:
                raise ValueError(
                    f"--update-freq {count}: it splits the {max_sentences} streams of a rank ({flag}) among the "
                    "batches of an update; give a number that divides them"
                )
        streams = Streams(dataset, split, how.get("num_shards", 1), max_sentences, flag)
        logger.info(
            f"{split}: {len(dataset):,} segments of {self.args.tokens_per_sample} tokens in {streams.count} streams, "
            f"{max_sentences} on each rank, {max_sentences // passes[0]} in each batch"
        )
        return StreamsIterator(
            dataset=dataset,
            collate_fn=functools.partial(collate, dataset.collater, streams.place),
            batch_sampler=functools.partial(batches_of_epoch, streams, passes),
            buffer_size=how.get("data_buffer_size", 0),
            disable_shuffling=True,
            **{name: how[name] for name in OF_THE_ITERATOR if name in how},
        )

    def eval_lm_dataloader(
        self,
        dataset: Any,
        max_tokens: int | None = None,
        batch_size: int | None = None,
        context_window: int = 0,
        **kwargs: Any,
    ) -> Any:
        if context_window:
            raise ValueError(
                f"--context-window {context_window} and the segment memory of --task lm_streams both give tokens the "
                "text before them: leave one out, --context-window or --task lm_streams"
            )
        batches = self.get_batch_iterator(dataset, self.args.max_tokens, max_sentences=batch_size or 1, **kwargs)
        return batches.next_epoch_itr(shuffle=False)


class Streams:
    """The segments of a text, dealt to the streams of all ranks in the order of the text. Some streams have one
    segment more than the others: those with the lowest numbers."""

    def __init__(self, dataset: Any, split: str, ranks: int, of_a_rank: int, flag: str = "--batch-size"):
        self.ranks = ranks
        self.of_a_rank = of_a_rank
        self.count = ranks * of_a_rank
        segments = len(dataset)
        if segments < self.count:
            remedy = f"give {flag} {segments // ranks} or less, or" if segments >= ranks else "give"
            raise ValueError(
                f"{split} has {segments:,} segments of --tokens-per-sample tokens, fewer than the {self.count:,} "
                f"streams of all ranks: {remedy} shorter segments"
            )
        each, longer = divmod(segments, self.count)
        #: the first segment of each stream, and the end of the last one
        self.first = np.array([stream * each + min(stream, longer) for stream in range(self.count + 1)])
        self.steps = each + bool(longer)
        self.begins_document = getattr(dataset.dataset, "begins_document", None)

    def batches(self, passes: int) -> Iterator[list[int]]:
        """The batches of an epoch, of all ranks in turn; one may be empty in the last step."""
        rows = self.of_a_rank // passes
        for step in range(self.steps):
            for one in range(passes):
                for rank in range(self.ranks):
                    streams = rank + self.ranks * np.arange(one * rows, (one + 1) * rows)
                    segments = self.first[streams] + step
                    yield segments[segments < self.first[streams + 1]].tolist()

    def place(self, segments: list[int]) -> Place:
        """The place of a batch of these segments."""
        streams = np.searchsorted(self.first, segments, side="right") - 1
        step = int(segments[0] - self.first[streams[0]])
        begins = [False] * len(segments) if self.begins_document is None else self.begins_document[segments]
        return Place(int(streams[0]), step, tuple(step > 0 and not begin for begin in begins))


def batches_of_epoch(streams: Streams, passes: list[int], dataset: Any, epoch: int) -> list[list[int]]:
    """The batches of an epoch. passes: --update-freq, a number for each epoch and the last one for all others."""
    return list(streams.batches(passes[min(epoch, len(passes)) - 1]))


def collate(stock: Callable[..., Any], place: Callable[[list[int]], Place], samples: list[Any]) -> dict[str, Any]:
    """Makes a batch that says where its rows are in their streams."""
    batch = stock(samples)
    if batch:
        batch["net_input"]["place"] = place(batch["id"].tolist())
    return batch


class StreamsIterator(EpochBatchIterator):
    """fairseq's iterator, whose ``first_batch`` stands in where a rank has no batch: it leaves the memory alone."""

    @property
    def first_batch(self) -> Any:
        batch = super().first_batch
        batch["net_input"].pop("place")
        return batch


class DocumentBlocks(TokenBlockDataset):
    """Segments that end where a document does. Its last token is the end of the empty line after it."""

    @staticmethod
    def _build_slice_indices(sizes, break_mode, document_sep_len, block_size):
        from fairseq.data.token_block_utils_fast import _get_block_to_dataset_index_fast

        sizes = np.asarray(sizes).astype(np.int64)
        ends = np.unique(np.append(np.cumsum(sizes)[sizes == document_sep_len], sizes.sum()))
        begins = np.append(0, ends[:-1])
        starts = np.concatenate([np.arange(*document, block_size) for document in zip(begins, ends)])
        slices = np.stack([starts, np.append(starts[1:], ends[-1])], 1)
        return slices[:, 1] - slices[:, 0], _get_block_to_dataset_index_fast(sizes, slices), slices

    @property
    def begins_document(self) -> np.ndarray:
        """Whether each segment is the first of a document."""
        ends = np.cumsum(np.asarray(self.dataset.sizes).astype(np.int64))[np.asarray(self.dataset.sizes) == 1]
        return np.isin(self.slice_indices[:, 0], np.append(0, ends))


def check_documents(sizes: np.ndarray, split: str) -> None:
    """Raises ValueError for a document without text. sizes: the tokens of each line; an empty one has 1, its end."""
    empty = np.flatnonzero((sizes[1:] == 1) & (sizes[:-1] == 1))
    if len(empty):
        raise ValueError(
            f"--reset-at-document: {split} has an empty document, for lines {empty[0] + 1} and {empty[0] + 2} are both "
            "empty: keep one empty line between two documents and binarise the text again"
        )
    if not (sizes == 1).any():
        logger.warning(f"--reset-at-document: {split} has no empty line, so it is one document")


def check_lengths(tokens: int, max_positions: Any) -> None:
    if isinstance(max_positions, int) and tokens > max_positions:
        raise ValueError(
            f"--tokens-per-sample {tokens}: the model has {max_positions} positions; give fewer, or "
            f"--model-overrides \"{{'max_target_positions': {tokens}}}\", which a relative encoding takes at any length"
        )
