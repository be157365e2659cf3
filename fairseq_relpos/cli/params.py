"""``fairseq-relpos params``: parameters that each encoding adds to a model."""

import json

from ..encodings import ENCODINGS, Dims, build

#: sizes of fairseq's RoBERTa architectures: layers, dimension, heads
SIZES = {"base": (12, 768, 12), "large": (24, 1024, 16)}


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
    return 0


def count(arch, max_positions):
    name, size = split_arch(arch)
    layers, embed_dim, heads = SIZES[size]
    encoding = build(name, Dims(embed_dim, heads, max_positions))
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
