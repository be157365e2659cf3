"""Checkpoints of the official TUPE code (guolinke/TUPE, a fork of fairseq 0.8) for fairseq 0.12."""

import contextlib
import io
import os
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from ..atomic_files import whole_file
from ..signature import KEY
from .loading import load_checkpoint, refuse_nonfinite
from .starting_point import build_roberta, check_paths, save, upgrade_names

STACK = "decoder.sentence_encoder."
SIGNATURE = f"encoder.sentence_encoder.embed_positions.{KEY}"

#: names within the stack in the official code -> our names. When it loads a state dict, fairseq itself renames
#: decoder. and emb_layer_norm, and splits in_proj.
RENAMED = {
    "pos.weight": "embed_positions.p",
    "pos_ln.": "embed_positions.layer_norm.",
    "pos_q_linear.": "embed_positions.u_q.",
    "pos_k_linear.": "embed_positions.u_k.",
    "relative_attention_bias.weight": "embed_positions.b",
    "emb_out_layer_norm.": "layer_norm.",
}

#: settings with the same meaning in both; all others belong to the old training run
SAME_SETTINGS = (
    # model; its sizes and the place of layer norms are read from the weights
    "activation_fn encoder_attention_heads dropout attention_dropout activation_dropout"
    " pooler_activation_fn pooler_dropout"
    # tasks masked_lm and sentence_prediction
    " task criterion data seed sample_break_mode tokens_per_sample mask_prob leave_unmasked_prob"
    " random_token_prob freq_weighted_replacement mask_whole_words num_classes init_token"
    " separator_token regression_target no_shuffle"
).split()

#: ids 4, 5 and 6 of the official dictionary, which its dict.txt does not list
EXTRA_SPECIALS = ("<file>", "<email>", "<url>")


@dataclass
class Imported:
    """The result of ``import_tupe``. fresh: parameters that the file lacked."""

    arch: str
    parameters: int
    fresh: list[str]
    dict_path: str | None


def import_tupe(in_path: str | Path, out_path: str | Path, dict_path: str | Path | None = None) -> Imported:
    """Writes the official checkpoint ``in_path`` as a fairseq 0.12 checkpoint for roberta_tupe_a or roberta_tupe_r.

    Outputs and gradients stay the same. The optimizer state and the place in the training data are not kept.

    The dictionary: the official code has three more special symbols than fairseq, <file> <email> <url> (ids 4 to 6).
    So stock fairseq shifts the id of every word in its dict.txt by 3. From ``dict_path`` (default: dict.txt beside
    ``in_path``, if it exists) this function writes a dict.txt beside ``out_path``. It lists the three as ordinary
    words, so that stock fairseq makes the official ids, <mask> included. Use it in place of the dict.txt in folders
    that the official code binarised. Or train on these folders as they are, labels too, with --task tupe_masked_lm or
    tupe_sentence_prediction (tasks/tupe_data.py).

    Raises ValueError, one line, before anything is written.
    """
    check_paths(in_path, out_path)
    state = load_checkpoint(in_path)
    refuse_other_checkpoints(in_path, state)
    refuse_nonfinite(in_path, state["model"])
    weights = rename(state["model"])
    vocabulary_size = len(weights[f"{STACK}embed_tokens.weight"])
    new_dict, dictionary = convert_dictionary(in_path, out_path, dict_path, vocabulary_size)
    args = settings(state["args"], weights)
    model = build_roberta(args, vocabulary_size, seed=1)
    fresh = fill(model, weights, in_path)
    cfg = convert_namespace_to_omegaconf(args)
    with contextlib.ExitStack() as both_or_none:
        if new_dict is not None and dictionary is not None:
            part = both_or_none.enter_context(whole_file(new_dict))
            with open(part, "w", encoding="utf-8") as file:
                file.write(dictionary)
        save(out_path, cfg, cfg.model, model)
    return Imported(args.arch, sum(p.numel() for p in model.parameters()), fresh, new_dict)


def refuse_other_checkpoints(path: str | Path, state: dict[str, Any]) -> None:
    keys = state["model"]
    if f"{STACK}pos.weight" not in keys or f"{STACK}pos_q_linear.weight" not in keys:
        raise ValueError(
            f"{path} is no checkpoint of the official TUPE code: it has no {STACK}pos.weight and "
            "pos_q_linear.weight; to start TUPE from a checkpoint of stock fairseq or of this "
            "package use `fairseq-relpos warm-start`"
        )
    if not hasattr(state.get("args"), "encoder_attention_heads"):
        raise ValueError(
            f"{path} has TUPE's weights, but not its args, which say how many heads they are for: "
            "give the checkpoint as the official code saved it"
        )


def rename(model_state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    weights = {}
    for key, tensor in model_state.items():
        for old, new in RENAMED.items():
            if key.startswith(STACK + old):
                key = STACK + new + key.removeprefix(STACK + old)
        weights[key] = tensor
    # without this version number fairseq drops a final layer norm, as one that was never used
    weights[f"{STACK}version"] = torch.tensor([3.0])
    return weights


def settings(old: Namespace, weights: dict[str, torch.Tensor]) -> Namespace:
    """Returns the settings of a model with these weights, and of its task."""
    args = Namespace(**{k: v for k, v in vars(old).items() if k in SAME_SETTINGS})
    relative = f"{STACK}embed_positions.b" in weights
    args.arch = "roberta_tupe_r" if relative else "roberta_tupe_a"
    if relative:
        rows = len(weights[f"{STACK}embed_positions.b"])
        args.position_hparams = f"num_buckets={rows - 1}"
    args.max_positions = len(weights[f"{STACK}embed_positions.p"]) - 1
    args.encoder_layers = sum(f"{STACK}layers.{i}.fc1.bias" in weights for i in range(len(weights)))
    args.encoder_embed_dim = weights[f"{STACK}embed_tokens.weight"].size(1)
    args.encoder_ffn_embed_dim = len(weights[f"{STACK}layers.0.fc1.bias"])
    args.layernorm_embedding = f"{STACK}emb_layer_norm.weight" in weights
    args.encoder_normalize_before = f"{STACK}layer_norm.weight" in weights
    args.shorten_method = "truncate" if getattr(old, "truncate_sequence", False) else "none"
    return args


def fill(model: Any, weights: dict[str, torch.Tensor], path: str | Path) -> list[str]:
    """Loads the weights. Returns the parameters of a language-model head that the file lacks and that stay as they
    were initialised."""
    refuse_untied_embeddings(weights, path)
    weights[SIGNATURE] = model.state_dict()[SIGNATURE]
    try:
        upgrade_names(weights, model)
        missing, unexpected = model.load_state_dict(weights, strict=False)
    except ValueError as error:  # shapes
        raise ValueError(f"{path} contradicts itself: {error}") from None
    head = {key for key in missing if key.startswith("encoder.lm_head.")}
    missing = sorted(set(missing) - head)
    if missing or unexpected:
        raise ValueError(
            f"{path} differs from what the official TUPE code writes: it lacks "
            f"{missing or 'nothing'} and has {unexpected or 'nothing'} besides"
        )
    return [name for name, _ in model.named_parameters() if name in head]


def refuse_untied_embeddings(weights: dict[str, torch.Tensor], path: str | Path) -> None:
    output = weights.get("decoder.lm_head.weight")
    if output is not None and not torch.equal(output, weights[f"{STACK}embed_tokens.weight"]):
        raise ValueError(
            f"{path}: decoder.lm_head.weight and embed_tokens.weight differ; in the official code they are one"
        )


def convert_dictionary(
    in_path: str | Path, out_path: str | Path, dict_path: str | Path | None, vocabulary_size: int
) -> tuple[str | None, str | None]:
    """Returns the path of the new dict.txt (None if there is no old one), and the text to write there (None if the
    file has this text already)."""
    beside = os.path.join(os.path.dirname(in_path), "dict.txt")
    if dict_path is None and os.path.exists(beside):
        dict_path = beside
    if dict_path is None:
        return None, None
    text = to_stock_dictionary(dict_path)
    ids = read_dictionary(text)
    if len(ids) != vocabulary_size:
        raise ValueError(
            f"{dict_path}: its words, the official code's 7 special symbols and <mask> make "
            f"{len(ids)} ids, but {in_path} has {vocabulary_size}: give the dict.txt it was "
            "trained with (--dict)"
        )
    new_path = os.path.join(os.path.dirname(out_path), "dict.txt")
    if not os.path.exists(new_path):
        return new_path, text
    with open(new_path, encoding="utf-8") as file:
        if read_dictionary(file.read()).symbols != ids.symbols:
            raise ValueError(
                f"{new_path} is there already, and is not the dictionary to be written beside OUT: "
                "give OUT a folder of its own"
            )
    return new_path, None


def to_stock_dictionary(path: str | Path) -> str:
    """Returns the text of a dict.txt from which stock fairseq makes the official ids of the one at ``path``. A file
    that is such a text already stays as it is."""
    with open(path, encoding="utf-8") as file:
        given = [line.rstrip() for line in file]
    if tuple(line.rpartition(" ")[0] for line in given[: len(EXTRA_SPECIALS)]) == EXTRA_SPECIALS:
        return "".join(f"{line}\n" for line in given)
    lines = [f"{symbol} 0" for symbol in EXTRA_SPECIALS]
    seen = set(Dictionary().symbols).union(EXTRA_SPECIALS)
    for line in given:
        word = line.rpartition(" ")[0]
        # in the official code a repeated word gets a new id
        lines.append(f"{line} #fairseq:overwrite" if word in seen else line)
        seen.add(word)
    return "".join(f"{line}\n" for line in lines)


def read_dictionary(text: str) -> Dictionary:
    """Returns the dictionary that fairseq's tasks make from the text of a dict.txt."""
    dictionary = Dictionary()
    dictionary.add_from_file(io.StringIO(text))
    dictionary.add_symbol("<mask>")
    return dictionary


def official_dictionary(path: str | Path) -> Dictionary:
    """Returns the dictionary that the official code's tasks make from the dict.txt at ``path``."""
    dictionary = read_dictionary(to_stock_dictionary(path))
    dictionary.nspecial += len(EXTRA_SPECIALS)
    return dictionary
