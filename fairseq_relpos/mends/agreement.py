"""The check that all ranks train the same model on the same data with the same code."""

import argparse
import contextlib
import functools
import hashlib
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf

from ..ranks import gather, several_ranks, together
from .launching import command_of
from .replace import replace

#: settings in which the ranks of one run may differ: their own rank, and paths on their machines
OF_ONE_RANK = {
    "distributed_rank",
    "distributed_init_method",
    "device_id",
    "local_rank",
    "nprocs_per_node",
    "distributed_num_procs",
    "data",
    "user_dir",
    "save_dir",
    "log_file",
    "tensorboard_logdir",
    "restore_file",
    "finetune_from_model",
    "plasma_path",
    "data_buffer_size",
    "num_workers",
}
SHOWN = 3


def refuse_ranks_that_disagree() -> None:
    """Stops all ranks if one of them differs from rank 0, or fails before the first update.

    Stock fairseq averages the gradients of whatever models the ranks have built. Here every rank sends the others its
    code, settings, dictionaries, parameters and data before the first update. A difference is an error on all ranks
    that names the rank and what differs. If a rank fails on its way there, for example because its data are missing,
    the others end too, instead of waiting for it.
    """
    from fairseq.distributed import utils

    @replace(utils, "distributed_main", "agreement")
    def tell_the_others(stock, i, main, cfg, kwargs):
        @functools.wraps(main)
        def main_that_tells(cfg, **kwargs):
            expected.settings = command_of(main) == "train.py"
            try:
                return main(cfg, **kwargs)
            except Exception as error:
                if expected.settings:
                    with contextlib.suppress(Exception):  # the rank's own error is what counts
                        together(functools.partial(_raise, error))
                raise

        return stock(i, main_that_tells, cfg, kwargs)


#: what the other ranks have yet to hear of this one: its settings, or how its reading of a checkpoint went
expected = types.SimpleNamespace(settings=False, checkpoint=False)


def compare_settings(cfg: Any, task: Any, model: Any) -> None:
    expected.settings = False
    refuse_differences(lambda: settings(cfg, task, model))


def _raise(error):
    raise error


@contextlib.contextmanager
def one_reads_for_all() -> Iterator[None]:
    """Context in which rank 0 reads the checkpoint and broadcasts it. If rank 0 fails, all ranks end."""
    expected.checkpoint = True
    try:
        yield
        in_turn(lambda: None)  # for a rank that found no file, where each rank has its own
    finally:
        expected.checkpoint = False


def in_turn(step: Callable[[], Any]) -> Any:
    """Runs ``step()``: by ``together`` if this is the first exchange in ``one_reads_for_all``, alone if not."""
    if not expected.checkpoint:
        return step()
    expected.checkpoint = False
    return together(step)


def learn_whether_rank_0_could_read() -> None:
    """Makes the ranks that receive a checkpoint learn first whether rank 0 could read it."""
    from fairseq.distributed import utils

    @replace(utils, "broadcast_object", "read-together")
    def receive(stock, *args, **kwargs):
        in_turn(lambda: None)
        return stock(*args, **kwargs)


def refuse_differences(facts_of_this_rank: Callable[[], dict[str, Any]]) -> None:
    """Raises ValueError on all ranks, one line, if these facts differ between two ranks."""
    if not several_ranks():
        return
    everyones = gather(together(lambda: {key: str(value) for key, value in facts_of_this_rank().items()}))
    for rank, theirs in enumerate(everyones):
        differing = [
            f"{key} ({_short(theirs.get(key))} against {_short(everyones[0].get(key))})"
            for key in sorted(theirs.keys() | everyones[0].keys())
            if theirs.get(key) != everyones[0].get(key)
        ]
        if differing:
            more = f" and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
            raise ValueError(
                f"rank {rank} and rank 0 do not train the same: they differ in "
                f"{', '.join(differing[:SHOWN])}{more}; give every node the same code, command and "
                "data"
            )


def _short(text):
    return "nothing" if text is None else text if len(text) <= 60 else f"{text[:57]}..."


def settings(cfg: Any, task: Any, model: Any) -> dict[str, Any]:
    """Returns what has to be equal on all ranks, as far as it is known before any data are read."""
    import fairseq

    facts = {
        "code of fairseq_relpos": digest_of_package(),
        "fairseq": getattr(fairseq, "__version__", "unknown"),
        "torch": torch.__version__,
        "parameters": digest(*(f"{name} {tuple(p.shape)}" for name, p in model.named_parameters())),
    }
    for side in ("source_dictionary", "target_dictionary"):
        try:
            dictionary = getattr(task, side, None)
        except NotImplementedError:  # a task without one
            continue
        if dictionary is not None:
            facts[side.replace("_", " ")] = f"{len(dictionary)} words {digest(*dictionary.symbols)}"
    facts.update(flat(cfg))
    return facts


def data(task: Any) -> dict[str, Any]:
    """Returns the number and the sizes of the sentences of every data set that has been read."""
    return {f"{split} data": samples(dataset) for split, dataset in task.datasets.items()}


def samples(dataset: Any) -> str:
    try:
        sizes = dataset.sizes
        numbers = np.ascontiguousarray(sizes)
    except (AttributeError, NotImplementedError, ValueError):  # none, or lists of different lengths
        return f"{len(dataset)} samples"
    if numbers.dtype.hasobject or not numbers.size:  # whose bytes are addresses
        return f"{len(dataset)} samples"
    return f"{len(dataset)} samples of sizes {digest(numbers)}"


def flat(settings: Any, name: str = "") -> dict[str, Any]:
    """Flattens nested settings into {"--lr": ...}, without those that belong to one rank."""
    if isinstance(settings, argparse.Namespace):
        settings = vars(settings)
    elif OmegaConf.is_config(settings):
        settings = OmegaConf.to_container(settings, enum_to_str=True)
    if not isinstance(settings, dict):
        return {f"--{name.replace('_', '-')}": settings}
    found = {}
    for key, value in settings.items():
        if key not in OF_ONE_RANK:
            found.update(flat(value, str(key)))
    return found


def digest(*parts: Any) -> str:
    total = hashlib.blake2b(digest_size=6)
    for part in parts:
        total.update(part.encode() if isinstance(part, str) else memoryview(part).cast("B"))
        total.update(b"\0")
    return total.hexdigest()


def digest_of_package(package: Path = Path(__file__).parents[1]) -> str:
    """Returns a digest of all code of the package, gated.cpp included, which each machine compiles for itself."""
    files = sorted(file for kind in ("*.py", "*.cpp") for file in package.rglob(kind))
    return digest(*(file.read_bytes() for file in files))


INSTALLERS = (refuse_ranks_that_disagree, learn_whether_rank_0_could_read)
