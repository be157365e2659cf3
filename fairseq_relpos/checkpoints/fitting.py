"""Errors of one line for checkpoints whose weights do not fit a model."""

import re
from typing import Any

from ..encodings import StackPart
from .discriminator import PREFIX
from .extending import TABLES

#: the base class of the mixin for a type checker, which then accepts what fairseq's models have
_Model: Any = object


class FittingModel(_Model):
    """Mixin in front of a fairseq model: if weights do not fit, a ValueError of one line says what differs, and names
    the dictionary if that is the reason."""

    def load_state_dict(
        self, state_dict: dict[str, Any], strict: bool = True, model_cfg: Any = None, args: Any = None
    ) -> Any:
        try:
            return super().load_state_dict(state_dict, strict, model_cfg, args)
        except RuntimeError as error:
            raise ValueError(what_does_not_fit(str(error), self)) from None


#: how many special symbols the official TUPE code adds beside its dict.txt (tasks/tupe_data.py)
OFFICIAL_TUPE = 3
#: a line in torch's list of what differs
_SIZE = (
    r"size mismatch for (\S+): copying a param with shape torch\.Size\(\[([\d, ]*)\]\) from checkpoint, "
    r"the shape in current model is torch\.Size\(\[([\d, ]*)\]\)"
)


def what_does_not_fit(message: str, model: Any = None) -> str:
    """Rewrites torch's error of load_state_dict, given as its text, in one line."""
    if f'Unexpected key(s) in state_dict: "{PREFIX}' in message:
        return (
            "the checkpoint is one of ELECTRA: first use `fairseq-relpos export-discriminator`, which makes a RoBERTa "
            "of its discriminator"
        )
    for what, does, does_not, advice in (
        ("Unexpected", "it", "the model", "add --copy-from-source"),
        ("Missing", "the model", "it", "leave --copy-from-source out"),
    ):
        if re.search(rf"{what} key\(s\)[^\n]*copy_head", message):
            return (
                f"the checkpoint is not of this model: {does} copies words of the source, {does_not} does not: {advice}"
            )
    sizes = re.findall(_SIZE, message)
    for key, theirs, ours in sizes:
        theirs, ours = theirs.split(", "), ours.split(", ")
        if key.endswith("embed_tokens.weight") and theirs[1:] == ours[1:]:
            message = (
                f"the checkpoint was trained with a dictionary of {theirs[0]} words, the data's has "
                f"{ours[0]} ({key}): give the data folder, or its dict.*.txt, that the model was "
                "trained with"
            )
            if "sentence_encoder" in key and int(theirs[0]) - int(ours[0]) == OFFICIAL_TUPE:
                message += (
                    "; data that the official TUPE code has binarised need --task tupe_masked_lm, "
                    "or the dict.txt that import-tupe has written"
                )
            return message
        if key.endswith(TABLES) and theirs[1:] == ours[1:]:
            part = None if model is None else model.get_submodule(key.rpartition(".")[0])
            if isinstance(part, StackPart) and part.hard_limit is not None:
                return positions_end(part.hard_limit + int(theirs[0]) - int(ours[0]), part, key)
    differences = [f"{key} is [{theirs}] in it and [{ours}] here" for key, theirs, ours in sizes]
    for what, label in (("Missing", "it lacks"), ("Unexpected", "it has besides")):
        keys = re.search(rf"{what} key\(s\) in state_dict: (.*?)\. *(\n|$)", message)
        if keys:
            names = re.findall(r'"([^"]+)"', keys[1])
            differences.append(f"{label} {names[0]}" + (f" and {len(names) - 1} more" if names[1:] else ""))
    return (
        "the checkpoint is not of this model: "
        + "; ".join(differences[:3] or [message.splitlines()[0]])
        + ". Use the --arch, sizes and --position-... flags that it was trained with"
    )


def positions_end(end: int, part: StackPart, key: str) -> str:
    """Returns the message for a model that was trained with a different number of absolute positions."""
    limit = part.hard_limit or 0
    longer = ""
    if end < limit:
        is_roberta = part.length_option == "--max-positions"
        longer = (
            " and no longer input; "
            + (f"`fairseq-relpos warm-start --max-positions {limit}` makes a longer RoBERTa of it, or " * is_roberta)
            + "train one with more positions or a relative encoding"
        )
    return (
        f"the checkpoint's absolute positions end at {end}, {limit} are asked for ({key}): use "
        f"{part.length_option} {end}{longer}"
    )
