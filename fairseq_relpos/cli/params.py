"""``fairseq-relpos params``: parameters that each encoding adds to a model."""

import argparse
import json
from collections.abc import Sequence
from typing import Any

from ..architectures import Size, Stack, dims_of, endings_of, find_architecture, of_bert_base
from ..encodings import ENCODINGS, build, names_for

#: what the papers print for BERT-base with 512 positions: paper, encoding, its hyperparameters in the paper, the
#: paper's number, and why the number differs from ours
PAPERS: list[tuple[str, str, dict[str, Any], int, str]] = [
    ("M4M Table 5", "learned", {}, 393_216, "fairseq's table has two rows more, up to the pad"),
    ("M4M Table 5", "shaw", {}, 785_664, ""),
    ("M4M Table 5", "t5_nob", {"heads": "shared", "per_layer": True}, 12_276, '"Raffel"'),
    ("M4M Table 5", "m2", {}, 12_276, ""),
    ("M4M Table 5", "m4", {}, 785_664, ""),
    ("M4M Table 5", "m4m", {}, 785_664, ""),
    ("M4M Table 5", "deberta", {"variant": "m4m"}, 834_816, "theirs has one of Eq. 7's two matrices"),
    ("M4M Table 5", "tupe_r", {}, 454_644, "theirs shares p and U over heads, and has them in each layer"),
    ("Huang Table 1", "shaw", {"heads": "each"}, 9_427_968, ""),
    ("Huang Table 1", "m1", {"heads": "each"}, 73_728, ""),
    ("Huang Table 1", "m2", {"heads": "each"}, 147_312, ""),
    ("Huang Table 1", "m3", {"heads": "each"}, 9_427_968, ""),
    ("Huang Table 1", "m4", {"heads": "each"}, 9_427_968, ""),
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--arch",
        help="such as roberta_tupe_r_large or transformer_t5_wmt_en_de; without it, "
        "roberta_NAME and roberta_NAME_large for every encoding, transformer_NAME where only a decoder can have it",
    )
    parser.add_argument(
        "--max-positions", type=int, default=512, metavar="N", help="longest sequence in tokens (default: 512)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> None:
    if args.max_positions < 2:
        raise ValueError(f"--max-positions {args.max_positions}: a length in tokens, 2 or more")
    archs = [args.arch] if args.arch else usual_architectures()
    counts = {arch: count(arch, args.max_positions) for arch in archs}
    if args.json:
        print(json.dumps(counts, indent=2))
        return
    width = max(map(len, counts))
    print(f"{'architecture':{width}}  {'stack':>12}  {'each layer':>12}  {'model':>12}")
    for arch, c in counts.items():
        print(f"{arch:{width}}  {c['stack']:>12,}  {c['layer']:>12,}  {c['model']:>12,}")
    if not args.arch:
        print_papers()


def usual_architectures() -> list[str]:
    of_encoders = names_for(causal=False)
    archs = [f"roberta_{name}{ending}" for ending in endings_of("roberta") for name in of_encoders]
    return archs + [f"transformer_{name}" for name in sorted(set(ENCODINGS) - set(of_encoders))]


def print_papers() -> None:
    """Prints our numbers beside those of the papers."""
    print("\nThe papers' figures (BERT-base, 512 positions, whole model):")
    for paper, name, hparams, theirs, note in PAPERS:
        ours = count(f"roberta_{name}", 512, **hparams)["model"]
        setting = " ".join([name, *(f"{k}={v}" for k, v in hparams.items())])
        differs = "" if ours == theirs else f"   {note}"
        print(f"{paper:14} {setting:36} {theirs:>10,}   ours {ours:>10,}{differs}")


def count(arch: str, max_positions: int, **hparams: Any) -> dict[str, int]:
    """Counts the parameters of an architecture. layer: one layer of each stack that has the encoding, together."""
    return count_in(*find_architecture(arch), max_positions, **hparams)


def count_at_bert_base(name: str) -> dict[str, int]:
    """Counts in one stack of BERT-base's size, which is causal only if the encoding serves no other."""
    stack, size = of_bert_base(name)
    return count_in(name, [stack], size, max_positions=512)


def count_in(name: str, stacks: Sequence[Stack], size: Size, max_positions: int, **hparams: Any) -> dict[str, int]:
    counts = {"stack": 0, "layer": 0, "model": 0}
    for one in stacks:
        encoding = build(name, dims_of(one, size, max_positions), **hparams)
        of_stack = sum(p.numel() for p in encoding.stack.parameters()) if encoding.stack is not None else 0
        of_layer = sum(p.numel() for p in encoding.parameters()) - of_stack
        if encoding.per_layer:
            of_stack, of_layer = 0, of_stack + of_layer
        counts["stack"] += of_stack
        counts["layer"] += of_layer
        counts["model"] += of_stack + size.layers_of(one) * of_layer
    return counts
