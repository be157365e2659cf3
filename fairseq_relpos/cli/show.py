"""``fairseq-relpos show NAME``."""

import argparse
from collections.abc import Sequence

from ..architectures import architectures_of, bert_base
from ..encodings import accepted_values, build, find, hyperparameters, to_text
from ..references import Paper, papers_of
from .docstrings import equation, explanation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="an encoding; `fairseq-relpos list` has them all")


def run(args: argparse.Namespace) -> None:
    cls = find(args.name)
    print(f"{args.name}\n\n  {equation(cls)}\n")
    for line in explanation(cls).splitlines():
        print(f"  {line}".rstrip())
    print_papers(papers_of(cls))
    print('\nHyperparameters (--position-hparams "name=value ..."):')
    resolved = build(args.name, bert_base(args.name)).hparams
    for name, parameter in hyperparameters(cls).items():
        default, at_base = to_text(parameter.default), to_text(resolved[name])
        note = "" if default == at_base else f" (at 512 positions: {at_base})"
        print(f"  {name}={default}{note}   {accepted_values(parameter.annotation)}")
    if not resolved:
        print("  none")
    print("\nArchitectures (--arch):")
    for arch in architectures_of(args.name):
        print(f"  {arch}")


def print_papers(papers: Sequence[Paper]) -> None:
    """Prints title, authors, year and link of each paper, and what its abbreviations stand for."""
    if papers:
        print("\nPapers:" if len(papers) > 1 else "\nPaper:")
    for paper in papers:
        print(f"  {paper.title}")
        print(f"    {paper.everyone} ({paper.year})")
        print(f"    {paper.url}")
        for name, meaning in paper.names.items():
            print(f"    {name}: {meaning}")
