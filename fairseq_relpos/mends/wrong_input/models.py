"""Checks that a model fits its task, and that from_pretrained finds its files."""

import contextlib
import os
from pathlib import Path
from typing import Any

from ..replace import replace


def refuse_an_architecture_of_another_task() -> None:
    """Raises ValueError if the task cannot train the architecture, such as --task translation --arch roberta_t5."""
    from fairseq import models
    from fairseq.tasks import TASK_REGISTRY

    @replace(models, "build_model", "arch-of-task")
    def check(stock, cfg, task, *args, **kwargs):
        name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
        model = models.ARCH_MODEL_REGISTRY.get(name) or models.MODEL_REGISTRY.get(name)
        needed = None if model is None else what_the_task_needs(model, task)
        if needed:
            asked = next((k for k, kind in TASK_REGISTRY.items() if kind is type(task)), type(task).__name__)
            raise ValueError(
                f"--arch {name} cannot be trained by --task {asked}, which needs {needed}: give another --arch, or "
                "the --task of this one"
            )
        return stock(cfg, task, *args, **kwargs)


def what_the_task_needs(model: type, task: Any) -> str | None:
    """Says what the task needs instead of this class of models; None if it can use the class, or does not say."""
    from fairseq import models
    from fairseq.models.roberta import RobertaModel
    from fairseq.tasks.denoising import DenoisingTask
    from fairseq.tasks.language_modeling import LanguageModelingTask
    from fairseq.tasks.masked_lm import MaskedLMTask
    from fairseq.tasks.sentence_prediction import SentencePredictionTask
    from fairseq.tasks.translation import TranslationTask

    if not all(kind.__module__.split(".")[0] in ("fairseq", "fairseq_relpos") for kind in (model, type(task))):
        return None  # nothing is known about classes outside fairseq and this package
    is_of_sequences = is_a(model, "SequenceEncoder")
    if is_a(type(task), "SequenceLabelsTask") and not is_of_sequences:
        return "a model with one answer for a sequence, sequence_encoder_NAME"
    if is_a(type(task), "SpanPredictionTask") and not (issubclass(model, RobertaModel) or is_of_sequences):
        return "roberta_NAME or sequence_encoder_NAME"
    encoder, decoder = models.FairseqEncoderModel, models.FairseqLanguageModel
    both = models.FairseqEncoderDecoderModel
    electra = (model,) if is_a(model, "RelPosElectra") else ()
    if isinstance(task, SentencePredictionTask):
        if not hasattr(model, "register_classification_head"):
            return "a model with classification heads, such as roberta_NAME"
        if not issubclass(model, both):
            return None
        if is_a(type(task), "SentencePairsTask"):
            return "an encoder with classification heads, such as roberta_NAME"
        return None if task.cfg.add_prev_output_tokens else "--add-prev-output-tokens for a model with a decoder"
    for kind, others, needed in (
        (MaskedLMTask, (both, decoder), "an encoder, such as roberta_NAME"),
        (TranslationTask, (encoder, decoder, *electra), "an encoder with a decoder, such as transformer_NAME"),
        (DenoisingTask, (encoder, decoder, *electra), "an encoder with a decoder, such as bart_NAME"),
        (LanguageModelingTask, (encoder, both, *electra), "a decoder, such as transformer_lm_NAME"),
    ):
        if isinstance(task, kind) and (issubclass(model, others) or is_of_sequences):
            return needed
    return None


def is_a(kind: type, name: str) -> bool:
    """Whether the class, or one that it derives from, has this name: the mends do not import models and tasks."""
    return any(parent.__name__ == name for parent in kind.__mro__)


def explain_what_from_pretrained_lacks() -> None:
    """Raises an error that names the folder, checkpoint or data folder that from_pretrained does not find."""
    from fairseq import hub_utils

    @replace(hub_utils, "from_pretrained", "from-pretrained")
    def check(stock, model_name_or_path, checkpoint_file="model.pt", data_name_or_path=".", archive_map=None, **kwargs):
        known = archive_map or {}
        if model_name_or_path not in known and "://" not in str(model_name_or_path):
            check_folder(model_name_or_path, checkpoint_file)
        data = str(data_name_or_path)
        if data not in known and "://" not in data and not data.startswith(".") and not os.path.exists(data):
            raise FileNotFoundError(
                f"data_name_or_path {data} does not exist: give the folder with the model's dict.txt, or '.' for "
                "the folder of the checkpoint"
            )
        return stock(model_name_or_path, checkpoint_file, data_name_or_path, archive_map, **kwargs)


def check_folder(folder: str | Path, checkpoint_file: str) -> None:
    """Raises OSError, one line, if the folder or a checkpoint in it does not exist."""
    from fairseq.file_io import PathManager

    with contextlib.suppress(Exception):  # remote storage may need an extension of fairseq
        folder = PathManager.get_local_path(folder)
    if not os.path.exists(folder):
        raise FileNotFoundError(f"{folder} does not exist: give the folder of the checkpoint")
    if os.path.isfile(folder) and str(folder).endswith(".pt"):
        raise NotADirectoryError(
            f"{folder} is a file: give its folder, and checkpoint_file={os.path.basename(folder)!r}"
        )
    if os.path.isdir(folder):
        for name in checkpoint_file.split(os.pathsep):
            if not os.path.exists(os.path.join(folder, name)):
                others = sorted(other for other in os.listdir(folder) if other.endswith(".pt"))
                there = f"there is {', '.join(others[:5])}" if others else "it has no .pt file"
                raise FileNotFoundError(f"{folder} has no {name} (checkpoint_file): {there}")


INSTALLERS = (refuse_an_architecture_of_another_task, explain_what_from_pretrained_lacks)
