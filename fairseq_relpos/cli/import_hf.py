"""`fairseq-relpos import-hf DIR OUT`: a RoBERTa, XLM-R, BERT, DeBERTa or BART of transformers for fairseq."""

import argparse
from collections.abc import Iterator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="folder that save_pretrained of transformers has written")
    parser.add_argument("out", metavar="OUT", help="folder to write: model.pt, dict.txt and the vocabulary's files")


def run(args: argparse.Namespace) -> int:
    from ..exchange.from_transformers import CHECKPOINT, import_hf
    from .warm_start import train_flags

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
        print(f"train with: {' '.join(translation_flags(path, done.args))}")
        print(f"for another encoding, or denoising: fairseq-relpos warm-start {path} START.pt --arch bart_NAME")
        return 0
    names = ("position_hparams", "position_layers", "attention_window")
    positions = {name: getattr(done.args, name, "") for name in names}
    given = {name: value for name, value in positions.items() if value not in ("", "all")}
    print(f"train with: {' '.join(train_flags(path, done.args, given))}")
    return 0


def translation_flags(path: str, settings: argparse.Namespace) -> Iterator[str]:
    """Yields the flags of fairseq-train that build and start from an imported BART."""
    from ..checkpoints.warm_start import flag

    yield f"--task translation --arch {settings.arch} --share-all-embeddings --layernorm-embedding"
    if settings.no_scale_embedding:
        yield "--no-scale-embedding"
    for stack in ("encoder", "decoder"):
        for name in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads"):
            yield flag(f"{stack}_{name}", getattr(settings, f"{stack}_{name}"))
    for name in ("activation_fn", "max_source_positions", "max_target_positions"):
        yield flag(name, getattr(settings, name))
    yield flag("finetune_from_model", path)
