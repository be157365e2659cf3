"""fairseq's denoising task, its noise and its vocabulary, and what BART does while it generates."""

import math
import threading
import types
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from .replace import note, put, replace
from .stack import vocabulary_beside_the_data


def shares_of_sentences() -> None:
    """Makes --permute-sentences a share, as in BART's own commands: fairseq now parses it as a whole number."""
    from fairseq.tasks import TASK_DATACLASS_REGISTRY, denoising
    from hydra.core.config_store import ConfigStore

    config = getattr(denoising, "DenoisingConfig", None)  # fairseq 0.12.2 has flags, which are right
    if config is None or config.__annotations__["permute_sentences"] is not int:
        return
    if note(config, "permute_sentences", ["permute-sentences"]):
        config.__annotations__["permute_sentences"] = float
        config.__dataclass_fields__["permute_sentences"].type = float
        for name, kind in TASK_DATACLASS_REGISTRY.items():  # hydra keeps the types of before
            if issubclass(kind, config):
                node = kind()
                node._name = name
                ConfigStore.instance().store(name=name, group="task", node=node, provider="fairseq")


def whole_words_of_the_vocabulary() -> None:
    """Gives --mask-length word and span-poisson the vocabulary: fairseq looks for it with the name of --bpe alone."""
    from fairseq.tasks import denoising

    loading = types.SimpleNamespace(task=None)

    @replace(denoising.DenoisingTask, "load_dataset", "whole-word-masks")
    def load_dataset(stock, self, *args, **kwargs):
        loading.task = self
        try:
            return stock(self, *args, **kwargs)
        finally:
            loading.task = None

    @replace(denoising, "get_whole_word_mask", "whole-word-masks")
    def get_whole_word_mask(stock, bpe, dictionary):
        if loading.task is None or bpe not in ("sentencepiece", "gpt2"):
            return stock(bpe, dictionary)
        found = vocabulary_beside_the_data(loading.task, f"--mask-length {loading.task.cfg.mask_length} --bpe {bpe}")
        if found.bpe != bpe:
            raise ValueError(
                f"--bpe {bpe}: the vocabulary in {loading.task.cfg.data} is of --bpe {found.bpe}: give that"
            )
        return stock(found, dictionary)


def bpe_by_its_name() -> None:
    """Keeps --bpe of a denoising task a name where from_pretrained gives one: fairseq puts all settings of the bpe
    there, which the task refuses."""
    from fairseq import checkpoint_utils

    @replace(checkpoint_utils, "overwrite_args_by_name", "bart-from-pretrained")
    def overwrite(stock, cfg, overrides):
        stock(cfg, overrides)
        if "bpe" in overrides and isinstance(OmegaConf.select(cfg, "task.bpe"), DictConfig):
            cfg.task.bpe = overrides["bpe"]


class Lengths:
    """torch.distributions.Categorical for the lengths of spans."""

    def __init__(self, shares: torch.Tensor):
        self.shares = shares

    def sample(self, sample_shape: tuple[int]) -> torch.Tensor:
        return torch.multinomial(self.shares, *sample_shape, replacement=True, generator=DRAWS.generator)


class Draws(threading.local):
    """torch, as fairseq's noise sees it: what is drawn comes from ``generator``. That of torch itself belongs to the
    dropout, which the training draws while another thread makes the next batches."""

    generator: torch.Generator | None = None
    distributions = types.SimpleNamespace(Categorical=Lengths)

    def __getattr__(self, name):
        return getattr(torch, name)

    def randperm(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return torch.randperm(*args, generator=self.generator, **kwargs)

    def randint(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return torch.randint(*args, generator=self.generator, **kwargs)

    def FloatTensor(self, of: list[float] | int) -> Any:  # fairseq calls uniform_() of one of ``of`` numbers
        if isinstance(of, list):
            return torch.FloatTensor(of)
        return types.SimpleNamespace(uniform_=lambda: torch.rand(of, generator=self.generator))


DRAWS = Draws()


#: how often noise that makes a sample too long is drawn again
ATTEMPTS = 100


def the_same_noise() -> None:
    """Makes the noise of a sample depend on seed, epoch and sample alone, as that of a masked LM does. fairseq seeds
    numpy, but draws from torch. Spans without a word insert a <mask>: noise with so many of them that the model has no
    place for the sample is drawn again."""
    from fairseq.data import denoising_dataset
    from fairseq.tasks import denoising

    put(denoising_dataset, "torch", DRAWS, "same-noise")

    @replace(denoising.DenoisingTask, "load_dataset", "same-noise")
    def load_dataset(stock, self, split, *args, **kwargs):
        stock(self, split, *args, **kwargs)
        room = self.max_positions()
        self.datasets[split].room = room[0] if isinstance(room, (tuple, list)) else room or math.inf

    @replace(denoising_dataset.DenoisingDataset, "__getitem__", "same-noise")
    def item(stock, self, index: int) -> Any:
        room = getattr(self, "room", math.inf)  # other tasks do not say it
        try:
            for attempt in range(ATTEMPTS):
                seed = hash((self.seed, self.epoch, int(index), *([attempt] if attempt else []))) % 2**63
                DRAWS.generator = torch.Generator().manual_seed(seed)
                sample = stock(self, index)
                if len(sample["source"]) <= room:
                    return sample
        finally:
            DRAWS.generator = None
        raise ValueError(
            f"the noise makes a sample longer than --max-source-positions {room}, {ATTEMPTS} times in a row: give a "
            "larger one, or a larger --poisson-lambda, whose spans have more words"
        )


def beams_of_a_search_alone() -> None:
    """Makes BART's attention to the encoder share keys between the beams of a search during the search alone.

    fairseq tells the model the size of the beam as soon as a generator is built, as --eval-bleu does before the
    training; from then on it takes each row of a training batch for a beam of the first ones. A search that returns
    alignments shares no keys.
    """
    from fairseq.sequence_generator import SequenceGenerator

    @replace(SequenceGenerator, "__init__", "beams-of-a-search")
    def build(stock, self, *args, **kwargs):
        stock(self, *args, **kwargs)
        if forget_the_beam(self.model.models):
            self._generate = types.MethodType(_generate, self)  # TorchScript compiles that of other models


def _generate(generator, *args, **kwargs):
    generator.model.set_decoder_beam_size(generator.beam_size)
    try:
        return type(generator)._generate(generator, *args, **kwargs)
    finally:
        forget_the_beam(generator.model.models)


def forget_the_beam(models: Any) -> bool:
    """Returns whether one of the models is a BART."""
    from fairseq.models.bart import BARTModel

    barts = [model for model in models if isinstance(model, BARTModel)]
    for model in barts:
        model.set_beam_size(1)
        vars(model.encoder).pop("reorder_encoder_out", None)
    return bool(barts)


INSTALLERS = (
    shares_of_sentences,
    whole_words_of_the_vocabulary,
    bpe_by_its_name,
    the_same_noise,
    beams_of_a_search_alone,
)
