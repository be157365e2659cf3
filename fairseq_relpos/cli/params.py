"""``fairseq-relpos params``: parameters that each encoding adds to a model."""

import json

from ..encodings import ENCODINGS, Dims, build

#: sizes of fairseq's RoBERTa architectures: layers, dimension, heads
SIZES = {"base": (12, 768, 12), "large": (24, 1024, 16)}

#: what the papers print for BERT-base with 512 positions: paper, encoding, its
#: hyperparameters as the paper has it, the paper's figure, and where it counts differently
PAPERS = [
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


def add_arguments(parser):
    parser.add_argument(
        "--arch",
        help="roberta_NAME or roberta_NAME_large; without it, every encoding at both sizes",
    )
    parser.add_argument("--max-positions", type=int, default=512, metavar="N",
                        help="longest sequence in tokens (default: 512)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args):
    archs = [args.arch] if args.arch else [
        f"roberta_{name}{ending}" for ending in ("", "_large") for name in sorted(ENCODINGS)
    ]
    counts = {arch: count(arch, args.max_positions) for arch in archs}
    if args.json:
        print(json.dumps(counts, indent=2))
        return 0
    width = max(map(len, counts))
    print(f"{'architecture':{width}}  {'stack':>12}  {'each layer':>12}  {'model':>12}")
    for arch, c in counts.items():
        print(f"{arch:{width}}  {c['stack']:>12,}  {c['layer']:>12,}  {c['model']:>12,}")
    if not args.arch:
        print_papers()
    return 0


def print_papers():
    """Ours beside the papers' figures."""
    print("\nThe papers' figures (BERT-base, 512 positions, whole model):")
    for paper, name, hparams, theirs, note in PAPERS:
        ours = count(f"roberta_{name}", 512, **hparams)["model"]
        setting = " ".join([name, *(f"{k}={v}" for k, v in hparams.items())])
        differs = "" if ours == theirs else f"   {note}"
        print(f"{paper:14} {setting:36} {theirs:>10,}   ours {ours:>10,}{differs}")


def count(arch, max_positions, **hparams):
    name, size = split_arch(arch)
    layers, embed_dim, heads = SIZES[size]
    encoding = build(name, Dims(embed_dim, heads, max_positions), **hparams)
    stack = sum(p.numel() for p in encoding.stack.parameters())
    layer = sum(p.numel() for p in encoding.parameters()) - stack
    if encoding.per_layer:
        stack, layer = 0, stack + layer
    return {"stack": stack, "layer": layer, "model": stack + layers * layer}


def split_arch(arch):
    """roberta_tupe_r_large -> (tupe_r, large)"""
    for ending, size in (("_large", "large"), ("", "base")):
        name = arch.removeprefix("roberta_").removesuffix(ending)
        if arch == f"roberta_{name}{ending}" and name in ENCODINGS:
            return name, size
    raise ValueError(
        f"--arch {arch} is not roberta_NAME or roberta_NAME_large with one of: "
        + " ".join(sorted(ENCODINGS))
    )
