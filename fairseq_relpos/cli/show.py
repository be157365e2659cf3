"""``fairseq-relpos show NAME``."""

from ..encodings import Dims, accepted_values, build, find, hyperparameters, to_text
from .architectures import architectures_of
from .docstrings import equation, explanation

BERT_BASE = Dims(embed_dim=768, num_heads=12, max_len=512)


def add_arguments(parser):
    parser.add_argument("name", help="an encoding; `fairseq-relpos list` has them all")


def run(args):
    cls = find(args.name)
    print(f"{args.name}\n\n  {equation(cls)}\n")
    for line in explanation(cls).splitlines():
        print(f"  {line}".rstrip())
    print("\nHyperparameters (--position-hparams \"name=value ...\"):")
    resolved = build(args.name, BERT_BASE).hparams
    for name, parameter in hyperparameters(cls).items():
        default, at_base = to_text(parameter.default), to_text(resolved[name])
        note = "" if default == at_base else f" (at 512 positions: {at_base})"
        print(f"  {name}={default}{note}   {accepted_values(parameter.annotation)}")
    if not resolved:
        print("  none")
    print("\nArchitectures (--arch):")
    for arch in architectures_of(args.name):
        print(f"  {arch}")
    return 0
