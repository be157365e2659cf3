"""Checks for flags that a chosen task, optimizer, scheduler or criterion needs."""

import dataclasses
from collections.abc import Mapping
from typing import Any


def check(settings: Mapping[str, Any]) -> None:
    """Raises ValueError for a missing flag: --lr-scheduler polynomial_decay needs --total-num-update, for example."""
    check_numbers_of_parts(settings)
    check_languages(settings)


def check_numbers_of_parts(settings: Mapping[str, Any]) -> None:
    """Raises ValueError, one line, if a part, such as a learning-rate scheduler, lacks a number that it needs."""
    from fairseq.registry import REGISTRIES

    for kind, registry in REGISTRIES.items():
        chosen = registry["dataclass_registry"].get(settings.get(kind))
        for field in dataclasses.fields(chosen) if chosen is not None else ():
            if settings.get(field.name, "") is None and field.type in (int, float):
                flag = field.name.replace("_", "-")
                raise ValueError(f"--{kind.replace('_', '-')} {settings[kind]} needs a number: give --{flag}")
    tokenizers = REGISTRIES["tokenizer"]["registry"]
    if settings.get("eval_bleu") and settings.get("eval_bleu_detok") not in tokenizers:
        raise ValueError(
            f"--eval-bleu-detok {settings.get('eval_bleu_detok')} is not known: "
            f"choose from {', '.join(sorted(tokenizers))}"
        )


def check_languages(settings: Mapping[str, Any]) -> None:
    """Raises ValueError, one line, if one language is given and it is not that of the data."""
    from fairseq import utils
    from fairseq.data import data_utils
    from fairseq.tasks import TASK_REGISTRY
    from fairseq.tasks.translation import TranslationTask

    task = TASK_REGISTRY.get(settings.get("task"))
    sides = ("source_lang", "target_lang")
    given = [settings.get(side) for side in sides]
    if task is None or not issubclass(task, TranslationTask) or given.count(None) != 1 or not settings.get("data"):
        return
    found = data_utils.infer_language_pair(utils.split_paths(settings["data"])[0])
    for side, asked, there in zip(sides, given, found):
        if asked is not None and there is not None and asked != there:
            raise ValueError(
                f"--{side.replace('_', '-')} {asked}: the data are from {found[0]} to {found[1]}; give "
                "--source-lang and --target-lang for another direction"
            )
