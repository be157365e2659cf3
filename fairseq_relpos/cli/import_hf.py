"""`fairseq-relpos import-hf DIR OUT`: a RoBERTa, XLM-R, BERT, DeBERTa or BART of transformers for fairseq."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="folder that save_pretrained of transformers has written")
    parser.add_argument("out", metavar="OUT", help="folder to write: model.pt, dict.txt and the vocabulary's files")


def run(args: argparse.Namespace) -> None:
    from ..checkpoints import encoder_decoder
    from ..exchange.from_transformers import CHECKPOINT, import_hf
    from .warm_start import flags_of_positions

    done = import_hf(args.folder, args.out)
    path = f"{args.out}/{CHECKPOINT}"
    print(f"{path}: {done.parameters:,} parameters, {done.args.arch}")
    print(f"vocabulary: {done.words}; prepare data with it (--vocabulary {args.out})")
    if done.unnamed:
        print(f"{done.unnamed} embeddings have no word")
    if done.fresh:
        print(f"not in {args.folder}, initialised afresh: {' '.join(done.fresh)}")
    if done.left_out:
        print(f"left out, because fairseq has no place for it: {' '.join(done.left_out)}")
    if done.args.arch == "transformer_learned":
        flags = encoder_decoder.train_flags(path, done.args, {})
        print(f"train with: --task translation {' '.join(flags)}")
        print(f"for another encoding, or denoising: fairseq-relpos warm-start {path} START.pt --arch bart_NAME")
    else:
        print(f"train with: {' '.join(flags_of_positions(path, done.args))}")
