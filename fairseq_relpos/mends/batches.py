"""The samples in a batch, in an epoch and in an evaluation."""

import contextlib
import inspect
import logging
import re
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..once import log_once
from .ending import end_readers, readers
from .replace import commands_with, replace

logger = logging.getLogger(__name__)


def new_loaders_for_each_epoch(batches: Any) -> None:
    """Makes each epoch start its own data loaders, after the dataset has been told the epoch.

    A validation keeps its loaders: its epoch number is always 1, and a validation that --max-valid-steps breaks off
    would leave them behind.
    """
    for name in ("persistent_workers", "reuse_dataloader"):
        if hasattr(batches, name):
            setattr(batches, name, False)


def end_the_reading_of_a_validation() -> None:
    """Ends the thread that reads ahead for a validation together with the validation. After --max-valid-steps it would
    continue, and share the data loaders with the thread of the next validation."""

    def until_its_end(stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        before = readers()
        try:
            return stock(*args, **kwargs)
        finally:
            end_readers([reader for reader in readers() if reader not in before])

    for command in commands_with("validate"):
        replace(command, "validate", "broken-off-validations")(until_its_end)


def without_fillers(trainer: Any, samples: list[Any]) -> list[Any]:
    """Returns the batches of an update without the empty ones that fill up the end of an epoch."""
    if trainer.is_fsdp or getattr(trainer.cfg.model, "base_layers", 0) > 0:
        return samples  # these models communicate in every forward pass, so each rank needs the same number
    return [sample for sample in samples if sample is not None and len(sample) > 0] or samples[:1]


#: by how much --update-ordered-indices-seed has raised the seed of the batches that are made now
seeds_of_epochs = types.SimpleNamespace(ahead=0)


def make_the_same_batches_after_a_resume() -> None:
    """Makes the batches always by the seed of the first epoch, for translation and language modelling. Stock fairseq
    makes them once, by the seed of the epoch in which a run starts, so a resumed run has others."""
    from fairseq.tasks import FairseqTask

    @replace(FairseqTask, "get_batch_iterator", "same-batches")
    def of_the_first_epoch(stock, self, dataset, *args, **kwargs):
        given = inspect.signature(stock).bind(self, dataset, *args, **kwargs)
        given.apply_defaults()
        epoch, settings = given.arguments["epoch"], given.arguments
        kept = not (settings["disable_iterator_cache"] or settings.get("update_epoch_batch_itr"))
        if epoch == 1 or not kept or not self.can_reuse_epoch_itr(dataset) or dataset in self.dataset_to_epoch_iter:
            return stock(self, dataset, *args, **kwargs)
        settings["epoch"] = 1
        settings["seed"] -= seeds_of_epochs.ahead
        batches = stock(*given.args, **given.kwargs)
        batches.epoch = epoch
        dataset.set_epoch(epoch)
        return batches


#: whether the batches that are made now belong to an evaluation. While a Trainer exists, only batches from
#: get_valid_iterator count as evaluation: dropped training batches are not reported
made_for = types.SimpleNamespace(evaluation=True)


@contextlib.contextmanager
def evaluation() -> Iterator[None]:
    """Counts the batches that are made inside this context as evaluation."""
    made_for.evaluation = True
    try:
        yield
    finally:
        made_for.evaluation = False


def report_lost_samples() -> None:
    """Warns once when an evaluation drops samples.

    fairseq drops a last batch that is no multiple of --required-batch-size-multiple (default 8). In training that is
    a choice. In an evaluation the longest samples are then missing. It is no error, because the default would stop
    almost every training; the validation losses of one training stay comparable.
    """
    from fairseq.data import data_utils
    from fairseq.distributed import utils

    @replace(data_utils, "batch_by_size", "lost-samples")
    def count_samples(stock, indices, *args, **kwargs):
        if not isinstance(indices, np.ndarray):
            indices = np.fromiter(indices, dtype=np.int64)
        batches = stock(indices, *args, **kwargs)
        lost = len(indices) - sum(map(len, batches))
        what = (
            f"{lost:,} of {len(indices):,} samples are LEFT OUT{{}}: the last batch is no multiple "
            "of --required-batch-size-multiple (default 8); "
            "add --required-batch-size-multiple 1 to use all"
        )
        if 0 < lost == len(indices):
            raise ValueError(what.format(""))
        if lost and made_for.evaluation and utils.get_global_rank() == 0:
            log_once(logger, what.format(" of this evaluation"), logging.WARNING)
        return batches


def read_contexts_in_one_process() -> None:
    """Lets one process make all batches of --context-window: their context is what that process has read before."""
    from fairseq.tasks.language_modeling import LanguageModelingTask

    @replace(LanguageModelingTask, "eval_lm_dataloader", "context-window")
    def in_one(stock, self, *args, **kwargs):
        given = inspect.signature(stock).bind(self, *args, **kwargs)
        given.apply_defaults()
        window, parts, workers = (given.arguments[name] for name in ("context_window", "num_shards", "num_workers"))
        if window > 0 and parts > 1:
            raise ValueError(
                f"--context-window {window}: the text before a segment would be in another of the {parts} parts; give "
                "--num-shards 1 and --distributed-world-size 1"
            )
        if window > 0 and workers > 1:
            logger.info(f"--num-workers {workers}: with --context-window it is 1")
            given.arguments["num_workers"] = 1
        return stock(*given.args, **given.kwargs)


def say_which_samples_are_too_long() -> None:
    """Reports samples that are longer than the model's positions.

    An evaluation ends in one line. So does a data set of which no sample fits or, for fairseq-eval-lm, not every
    sample. Training continues without the samples that are too long, and fairseq-interactive without such lines.
    """
    from fairseq.distributed import utils
    from fairseq.tasks import FairseqTask
    from fairseq.tasks.language_modeling import LanguageModelingTask

    all_count = types.SimpleNamespace(now=False)
    reported: Any = weakref.WeakKeyDictionary()

    @replace(LanguageModelingTask, "eval_lm_dataloader", "lost-samples")
    def evaluate_all(stock, self, *args, **kwargs):
        all_count.now = True
        try:
            return stock(self, *args, **kwargs)
        finally:
            all_count.now = False

    @replace(FairseqTask, "filter_indices_by_size", "lost-samples")
    def filter_by_size(stock, self, indices, dataset, max_positions=None, ignore_invalid_inputs=False):
        try:
            kept = stock(self, indices, dataset, max_positions, ignore_invalid_inputs)
        except Exception as error:
            if type(error) is Exception and str(error).startswith("Size of sample"):
                message = re.sub(r"np\.int\d+\((\d+)\)", r"\1", str(error))
                raise ValueError(f"{message}; {_what_keeps_long_samples(self, max_positions)}") from None
            raise
        if len(kept) == len(indices):
            return kept
        is_loaded = any(dataset is loaded for loaded in self.datasets.values())
        is_error = all_count.now or (len(kept) == 0 and is_loaded)
        if not is_error and (utils.get_global_rank() != 0 or reported.get(dataset)):
            return kept
        too_long = _how_many_are_too_long(indices, kept, dataset, max_positions)
        if all_count.now:
            raise ValueError(
                f"{too_long}, and would be left out: for a language model add "
                "--tokens-per-sample L --model-overrides \"{'max_target_positions': L}\", which a "
                "relative encoding takes at any L"
            )
        advice = _what_keeps_long_samples(self, max_positions)
        # what fairseq-interactive reads at once is no data set of the task, and may be one long line
        if is_error:
            raise ValueError(f"{too_long}, and nothing would be left: {advice}")
        reported[dataset] = True
        log_once(logger, f"LEFT OUT: {too_long}; {advice}", logging.WARNING)
        return kept


def _how_many_are_too_long(indices, kept, dataset, max_positions):
    lengths = np.fromiter((dataset.num_tokens(index) for index in indices), dtype=np.int64)
    lost = lengths[~np.isin(indices, kept)]
    return (
        f"{len(lost):,} of {len(indices):,} samples are longer than the {max_positions} positions of the "
        f"model, {100 * lost.sum() / lengths.sum():.1f} % of the tokens; the longest has {lost.max():,} tokens"
    )


def _what_keeps_long_samples(task, max_positions):
    from fairseq.tasks.language_modeling import LanguageModelingTask

    mode = str(getattr(getattr(task, "cfg", None), "sample_break_mode", "none"))
    if mode != "none":
        return (
            f"--sample-break-mode {mode} cuts no line; --sample-break-mode none cuts all text into equal blocks "
            "and keeps it"
        )
    if isinstance(max_positions, (tuple, list)):
        return (
            "--max-source-positions and --max-target-positions of a training make room for them; a trained model with "
            "a relative encoding takes them with these flags and "
            "--model-overrides \"{'max_source_positions': L, 'max_target_positions': L}\" in an evaluation"
        )
    if not isinstance(task, LanguageModelingTask):
        return "--max-positions of a training makes room for them"
    return (
        "--max-target-positions of a training makes room for them; a trained model with a relative encoding takes them "
        "with --model-overrides \"{'max_target_positions': L}\" in an evaluation"
    )


INSTALLERS = (
    end_the_reading_of_a_validation,
    make_the_same_batches_after_a_resume,
    report_lost_samples,
    read_contexts_in_one_process,
    say_which_samples_are_too_long,
)
