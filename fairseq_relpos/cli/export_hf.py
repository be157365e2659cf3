"""`fairseq-relpos export-hf CHECKPOINT DIR`: a RoBERTa, a language model or a translator for transformers."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        help="checkpoint of a RoBERTa, a language model or an encoder-decoder model, of fairseq or this package",
    )
    parser.add_argument("folder", metavar="DIR", help="folder to write")
    parser.add_argument(
        "--data",
        metavar="DATA",
        help="folder of the training's data, for the tokenizer: dict.txt, and spm.model or encoder.json and vocab.bpe; "
        "of an encoder-decoder model dict.SOURCE.txt, dict.TARGET.txt, and spm.model",
    )
    parser.add_argument("--head", metavar="NAME", help="the classification head, where CHECKPOINT has several")


def need_transformers() -> None:
    """Raises ValueError, one line, where transformers is missing, too old, or does not import."""
    try:
        from .. import hf  # noqa: F401
    except ImportError as error:
        raise ValueError(str(error)) from None


def run(args: argparse.Namespace) -> None:
    need_transformers()
    from ..exchange.export import export

    done = export(args.checkpoint, args.folder, args.data, args.head)
    print(f"{args.folder}: {done.model}, {done.parameters:,} parameters")
    print(f"checked: logits differ from fairseq's by {done.difference:.2g} (the largest is {done.largest:.3g})")
    if done.tokenizer:
        print(f"tokenizer: {done.tokenizer}; the same ids as fairseq on {done.texts:,} texts")
    else:
        print("no tokenizer: it comes along with --data DATA")
    if done.left_out:
        print(f"left out, because this kind of model has no place for it: {' '.join(done.left_out)}")
    print(f"now fill in the licence in {args.folder}/README.md")
