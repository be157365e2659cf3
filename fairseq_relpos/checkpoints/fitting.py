"""What is wrong where a checkpoint's weights do not fit a model, in one line."""

import re

from ..encodings import StackPart


class FittingModel:
    """Mixin before a fairseq model: weights that do not fit are a ValueError of one line that
    names what differs, and the dictionary where that is the reason."""

    def load_state_dict(self, state_dict, strict=True, model_cfg=None, args=None):
        try:
            return super().load_state_dict(state_dict, strict, model_cfg, args)
        except RuntimeError as error:
            raise ValueError(what_does_not_fit(str(error), self)) from None


#: special symbols that its dict.txt does not list (tasks/tupe_data.py)
OFFICIAL_TUPE = 3
#: torch's list of what differs
_SIZE = (
    r"size mismatch for (\S+): copying a param with shape torch\.Size\(\[([\d, ]*)\]\) from checkpoint, "
    r"the shape in current model is torch\.Size\(\[([\d, ]*)\]\)"
)

#: tables with a row for each absolute position: learned's and TUPE's
_POSITIONS = (".embed_positions.weight", ".embed_positions.p")


def what_does_not_fit(message: str, model=None) -> str:
    sizes = re.findall(_SIZE, message)
    for key, theirs, ours in sizes:
        theirs, ours = theirs.split(", "), ours.split(", ")
        if key.endswith("embed_tokens.weight") and theirs[1:] == ours[1:]:
            message = (
                f"the checkpoint was trained with a dictionary of {theirs[0]} words, the data's has "
                f"{ours[0]} ({key}): give the data folder, or its dict.*.txt, that the model was "
                "trained with"
            )
            if int(theirs[0]) - int(ours[0]) == OFFICIAL_TUPE:
                message += (
                    "; data that the official TUPE code has binarised need --task tupe_masked_lm, "
                    "or the dict.txt that import-tupe has written"
                )
            return message
        if key.endswith(_POSITIONS) and theirs[1:] == ours[1:]:
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


def positions_end(end, part, key):
    """A trained model's absolute positions are as many as they are."""
    longer = (
        " and no longer input; a longer one needs a model that was trained with more positions, or with "
        "a relative encoding"
        if end < part.hard_limit
        else ""
    )
    return (
        f"the checkpoint's absolute positions end at {end}, {part.hard_limit} are asked for ({key}): use "
        f"{part.length_option} {end}{longer}"
    )
