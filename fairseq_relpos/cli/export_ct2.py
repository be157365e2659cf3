"""`fairseq-relpos export-ct2 CHECKPOINT DIR --data DATA`: a translator or a language model for CTranslate2."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        help="checkpoint of a transformer_NAME or a transformer_lm_NAME, or of stock fairseq's",
    )
    parser.add_argument("folder", metavar="DIR", help="folder to write")
    parser.add_argument(
        "--data",
        metavar="DATA",
        required=True,
        help="folder of the training's data, for the vocabularies: dict.SOURCE.txt and dict.TARGET.txt, of a language "
        "model dict.txt; spm.model is copied, if it is there",
    )


def run(args: argparse.Namespace) -> None:
    from ..exchange.to_ctranslate2 import export
    from ..vocabulary_files import text_settings

    done = export(args.checkpoint, args.folder, args.data)
    print(f"{args.folder}: for ctranslate2.{done.kind}, {done.parameters:,} parameters")
    print(
        f"checked: log-probabilities of {done.sentences} random sentences differ from fairseq's by at most "
        f"{done.difference:.2g}"
    )
    copied = f"copied: {' '.join(done.copied)}"
    print(copied if done.copied else "no spm.model in DATA: CTranslate2 needs text that is split into tokens")
    changes = {"moses_tokens": "split into the tokens of Moses (sacremoses)", "lowercase": "put in lower case"}
    if needed := [change for name, change in changes.items() if text_settings(args.data).get(name)]:
        print(f"the training's text was {' and '.join(needed)} before: do the same with what the model is to read")
