"""Checks of flags that fairseq takes without a word, although they do nothing or ruin the training."""

import importlib.util
from collections.abc import Mapping
from typing import Any

#: name -> lowest value with a meaning
LOWEST = {
    **dict.fromkeys(("lr", "adam_eps", "warmup_updates", "max_update", "max_epoch"), 0),
    **dict.fromkeys(("batch_size", "batch_size_valid", "required_batch_size_multiple"), 1),
    **dict.fromkeys(("save_interval", "validate_interval"), 1),
}
SHARES = "dropout attention_dropout activation_dropout encoder_layerdrop decoder_layerdrop label_smoothing".split()
NOISE = ("mask", "mask_random", "rotate", "insert")


def check(settings: Mapping[str, Any]) -> None:
    """Raises ValueError, one line, for a flag without the effect that it promises. fairseq reports any other
    impossible value itself."""
    for name, lowest in LOWEST.items():
        value = settings.get(name)
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, (int, float)) and not number >= lowest:
                raise ValueError(f"{_flag(name)} {number}: give {lowest} or more")
    is_denoising = settings.get("task") in ("denoising", "multilingual_denoising")  # not one that derives from them
    for name in (*SHARES, *(NOISE if is_denoising else ())):
        if not 0 <= (settings.get(name) or 0) <= 1:
            raise ValueError(f"{_flag(name)} {settings[name]}: give a share from 0 to 1")
    if settings.get("sacrebleu") and settings.get("scoring") != "sacrebleu":
        raise ValueError(
            "--sacrebleu does not score with sacreBLEU, it only silences a warning: use "
            "--scoring sacrebleu, with detokenised text (--remove-bpe, --tokenizer)"
        )
    if settings.get("write_checkpoints_asynchronously") and importlib.util.find_spec("iopath") is None:
        raise ValueError("--write-checkpoints-asynchronously needs iopath: `pip install iopath`, or leave the flag out")
    total, end = settings.get("total_num_update"), settings.get("max_update") or 0
    if settings.get("lr_scheduler") == "polynomial_decay" and not settings.get("end_learning_rate"):
        if isinstance(total, (int, float)) and end > total:
            raise ValueError(
                f"--max-update {end} is more than --total-num-update {total}, from which on the learning rate is 0: "
                "give both alike, or an --end-learning-rate"
            )
    window, tokens = settings.get("context_window") or 0, settings.get("tokens_per_sample")
    if window and tokens is not None and window >= tokens:
        raise ValueError(
            f"--context-window {window}: it is a part of --tokens-per-sample {tokens}; give less, or more tokens"
        )
    if is_denoising:
        check_noise(settings)
    check_languages(settings)


def check_noise(settings: Mapping[str, Any]) -> None:
    """Raises ValueError, one line, for noise of BART that is none, that fairseq never ends to draw, or that the model
    does not learn to remove."""
    from fairseq.models import ARCH_MODEL_REGISTRY, FairseqEncoderModel

    arch = settings.get("arch")
    if issubclass(ARCH_MODEL_REGISTRY.get(arch, object), FairseqEncoderModel):
        # it ignores the tokens for the decoder, and would train on something else
        raise ValueError(f"--task {settings['task']} needs a decoder, which --arch {arch} lacks: give bart_NAME")
    # above 16.1 fairseq's table of lengths has only the length 0, and its search for spans does not end
    if not 0 < settings["poisson_lambda"] <= 16:
        raise ValueError(f"--poisson-lambda {settings['poisson_lambda']}: give a number above 0, up to 16; BART has 3")
    if settings.get("mask") == 1:
        raise ValueError("--mask 1 hides every word, so that nothing is left to restore the text from: give less")
    if settings.get("permute"):
        raise ValueError(f"--permute {settings['permute']:g}: fairseq has the flag, but no such noise: leave it out")
    if (settings.get("permute_sentences") or 0) > 0 and settings.get("task") == "denoising":
        if settings.get("bpe") != "gpt2":
            raise ValueError(
                f"--permute-sentences {settings['permute_sentences']:g} changes nothing: fairseq knows a sentence by "
                "the full stop of --bpe gpt2 alone; leave it out"
            )


def check_languages(settings: Mapping[str, Any]) -> None:
    """Raises ValueError, one line, if one language is given and it is not that of the data."""
    from fairseq import utils
    from fairseq.data import data_utils
    from fairseq.tasks import TASK_REGISTRY
    from fairseq.tasks.translation import TranslationTask

    task = TASK_REGISTRY.get(settings.get("task"))
    given = [settings.get("source_lang"), settings.get("target_lang")]
    if task is None or not issubclass(task, TranslationTask) or given.count(None) != 1 or not settings.get("data"):
        return
    found = data_utils.infer_language_pair(utils.split_paths(settings["data"])[0])
    for flag, asked, there in zip(("--source-lang", "--target-lang"), given, found):
        if asked is not None and there is not None and asked != there:
            raise ValueError(
                f"{flag} {asked}: the data are from {found[0]} to {found[1]}; give "
                "--source-lang and --target-lang for another direction"
            )


def _flag(name):
    return f"--{name.replace('_', '-')}"
