"""Flags of commands and settings of logs: those in which runs differ, and those in which they may."""

import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence

NOT_GIVEN = "not given"

#: flags that may differ between the seeds of one training
OF_A_SEED = {"seed", "save-dir", "log-file", "distributed-world-size", "finetune-from-model"}
#: flags that may differ between compared runs: they belong to one run or to its encoding
OF_A_RUN = OF_A_SEED | {
    "arch",
    "position-encoding",
    "position-hparams",
    "position-layers",
    "attention-window",
    "randomized-positions",
    "left-pad-source",
    "scale-embedding",
}

#: flags of what lies in the data of a fold, and of what is counted there
OF_A_FOLD = {"embedding-file", "max-update", "total-num-update", "warmup-updates"}
#: flags that may change when a run resumes: its end, what is written when, and how it is computed
NO_SETTING = (
    "max-update|(log|save|keep|validate|reset|distributed|ddp|wandb)-[a-z-]+|tensorboard-logdir"
    "|cpu|num-workers|batch-size|update-freq|checkpoint-activations|attention-backend|torch-compile|unpad"
    "|(memory-efficient-)?(fp16|bf16)[a-z-]*|amp[a-z-]*|finetune-from-model|restore-file"
)

#: how a training is computed, which concerns its speed
HOW_COMPUTED = re.compile(
    "cpu|num-workers|checkpoint-activations|attention-backend|torch-compile|unpad|(memory-efficient-)?(fp16|bf16)|amp"
    "|distributed-world-size"
)

#: settings that architectures set for an encoding
OF_THE_ENCODING = "position-.*|(encoder|decoder)-learned-pos|no-token-positional-embeddings"
#: the data are compared by what they are, the batch as a whole; of validation, batches change nothing
NOT_COMPARED = "data|max-tokens|max-tokens-valid|batch-size-valid|start"
#: what a setting that is not given is, where a flag is younger than the run
NOTHING = {NOT_GIVEN, "None", "False", "", "0"}


def differing(runs: Sequence[Mapping[str, str]], free: Collection[str] = ()) -> dict[str, dict[str, list[int]]]:
    """Returns setting -> value -> the numbers of the runs that have it, of settings that are not the same in all runs,
    without those that are ``free`` to differ."""
    found: dict[str, dict[str, list[int]]] = {}
    for name in sorted(set().union(*runs) - {*free}):
        by_value: dict[str, list[int]] = {}
        for number, run in enumerate(runs):
            by_value.setdefault(run.get(name, NOT_GIVEN), []).append(number)
        if len(by_value) > 1:
            found[name] = by_value
    return found


# --- the flags of commands ---


def flags_of(command: str) -> dict[str, str]:
    """Returns the value of each flag in a command, as a shell reads it. "data" is the word before --user-dir. The words
    before it belong to a launcher."""
    words = shlex.split(command)
    begin = words.index("--user-dir")
    flags = {"data": words[begin - 1]}
    name = None
    for word in words[begin:]:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            flags[name] = value
        elif name is not None:
            flags[name] = f"{flags[name]} {word}".strip()
    return flags


def other_flags(commands: Sequence[str], also: Sequence[str] = (), may_differ: Collection[str] = OF_A_RUN) -> list[str]:
    """Returns the flags besides ``may_differ`` and ``also`` in which the commands differ, each with its values."""
    values = differing([flags_of(command) for command in commands], {*may_differ, *also})
    return [f"`--{flag}` ({', '.join(v or 'given' for v in sorted(found))})" for flag, found in values.items()]


def how_alike(commands: Sequence[str], differ_in: str, also: Sequence[str] = ()) -> str:
    """Returns a sentence that says in which other flags than OF_A_RUN and ``also`` the commands differ, if any."""
    if others := other_flags(commands, also):
        return f"**The runs differ in more than {differ_in}**: {', '.join(others)}."
    return f"All runs differ in {differ_in} alone."


def free_in_a_recipe(commands: Sequence[str]) -> list[str]:
    """Returns the flags that may differ: those of place, speed, output and rate. --max-update may not."""
    flags = set().union(*map(flags_of, commands)) - {"max-update"}
    return ["lr", "data", *(flag for flag in flags if re.fullmatch(NO_SETTING, flag))]


def end_of(command: str) -> str:
    """The last --max-update of a command, "" without."""
    return "".join(re.findall(r"--max-update[=' ]+(\d+)", command)[-1:])


def counted(runs: Sequence[Mapping[str, str]]) -> set[str]:
    """Returns the settings of a schedule in updates if they are those of one schedule in epochs: --max-tokens makes
    another number of batches with each seed. The totals differ by 10 % at most, and the shares of warm-up are equal."""
    try:
        totals = [float(run["total-num-update"]) for run in runs]
        shares = [float(run["warmup-updates"]) / total for run, total in zip(runs, totals)]
    except (KeyError, ValueError, ZeroDivisionError):
        return set()
    by_epochs = all(run.get(name, "0") not in NOTHING for run in runs for name in ("max-epoch", "max-tokens"))
    are_alike = max(totals) <= 1.1 * min(totals) and max(shares) - min(shares) < 0.005
    return {"total-num-update", "warmup-updates"} if by_epochs and are_alike else set()


# --- the settings of logs ---


def is_free(name: str) -> bool:
    """Whether runs that are compared may differ in this setting."""
    if name == "max-update":  # which may change when a run resumes, but not a comparison
        return False
    return name in OF_A_RUN or bool(re.fullmatch(f"{OF_THE_ENCODING}|{NOT_COMPARED}|{NO_SETTING}", name))


def may_change(name: str) -> bool:
    """Whether a run may resume with another value of this setting."""
    return bool(re.fullmatch(f"save-dir|distributed-world-size|{NOT_COMPARED}|{NO_SETTING}", name))


def differing_settings(
    runs: Sequence[Mapping[str, str]], may_differ: Callable[[str], object]
) -> dict[str, dict[str, list[int]]]:
    """Returns what ``differing`` does, without the settings that may differ, or that older runs do not have."""
    found = differing(runs, {name for settings in runs for name in settings if may_differ(name)})
    return {name: v for name, v in found.items() if not (NOT_GIVEN in v and set(v) <= NOTHING)}


def batch_of(settings: Mapping[str, str]) -> str:
    """The batch of an update, however it is divided."""
    times = int(settings.get("distributed-world-size", "1"))
    frequencies = settings.get("update-freq", "1").replace(",", " ").split() or ["1"]
    parts = []
    for name, what in (("max-tokens", "tokens"), ("batch-size", "sentences")):
        value = settings.get(name, "None")
        if value.isdigit():
            parts.append(" then ".join(f"{int(value) * times * int(each):,}" for each in frequencies) + f" {what}")
    return ", ".join(parts)
