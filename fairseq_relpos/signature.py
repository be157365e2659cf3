"""The encoding's signature in the state dict, so that a checkpoint of one encoding cannot
be continued with another whose tables happen to have the same shapes."""

import logging

import torch

logger = logging.getLogger(__name__)

#: fairseq's EMA and averaging leave keys with "version" in them alone; float32, because
#: an integer buffer breaks the first and a byte buffer the second
KEY = "encoding_version"


class SignatureMismatch(ValueError):
    """A checkpoint of another position encoding."""


def attach_signature(stack_part, encoding, layers: str):
    """Write the signature into ``stack_part``'s state dict and check it on loading.

    The ``learned`` encoding has none: its files are stock fairseq's, key for key.
    """
    if encoding.writes_stock_files:
        return
    text = f"{encoding.signature}|layers:{layers}"
    stack_part.register_buffer(KEY, to_bytes(text))
    stack_part.register_load_state_dict_pre_hook(check_signature)


def check_signature(stack_part, state_dict, prefix, *unused):
    key = prefix + KEY
    expected = getattr(stack_part, KEY)
    if key not in state_dict:
        logger.info(
            "checkpoint without a position-encoding signature (stock fairseq, or learned "
            "positions): loaded as %s where the weights fit", to_text(expected),
        )
        state_dict[key] = expected.clone()
        return
    found, wanted = to_text(state_dict[key]), to_text(expected)
    if found != wanted:
        raise SignatureMismatch(
            f"the checkpoint was trained with [{found}], asked for [{wanted}]: use the same "
            "--arch, --position-encoding, --position-hparams and --position-layers, or start "
            "a new model from it with `fairseq-relpos warm-start`"
        )


def to_bytes(text: str) -> torch.Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.float32)


def to_text(signature: torch.Tensor) -> str:
    return bytes(signature.round().to(torch.uint8).tolist()).decode(errors="replace")
