"""The command line: ``fairseq-relpos COMMAND ...``."""

import importlib
import os
import select
import signal
import sys
from collections.abc import Sequence

from .. import register
from ..command_line import Parser
from ..version import install
from ..visible import visible

#: command -> module with ``add_arguments(parser)`` and ``run(args) -> exit code``. A module is imported when its
#: command is called, so that a missing package disables no other command
COMMANDS = {
    "list": ("fairseq_relpos.cli.catalogue", "every position encoding, a line each"),
    "show": ("fairseq_relpos.cli.show", "one encoding: equation, source, hyperparameters"),
    "params": ("fairseq_relpos.cli.params", "parameters that each encoding adds to a model"),
    "mends": ("fairseq_relpos.cli.mends", "what the plugin changes in fairseq, and which of it is on"),
    "path": ("fairseq_relpos.cli.path", "the folder to give to --user-dir"),
    "recipe": ("fairseq_relpos.cli.recipe", "the recipes, and one of them written into a folder, to run there"),
    "doctor": ("fairseq_relpos.cli.doctor", "what works on this machine, what does not, what to do"),
    "import-tupe": ("fairseq_relpos.cli.import_tupe", "a checkpoint of the official TUPE code, for roberta_tupe_*"),
    "warm-start": ("fairseq_relpos.cli.warm_start", "start any encoding from a trained model of its kind"),
    "export-discriminator": (
        "fairseq_relpos.cli.export_discriminator",
        "the discriminator of an ELECTRA as a RoBERTa, to be fine-tuned",
    ),
    "export-hf": ("fairseq_relpos.cli.export_hf", "a trained model for Hugging Face transformers"),
    "export-ct2": ("fairseq_relpos.cli.export_ct2", "a trained translator or language model for CTranslate2"),
    "import-hf": (
        "fairseq_relpos.cli.import_hf",
        "a RoBERTa, XLM-R, BERT, DeBERTa or BART of Hugging Face transformers",
    ),
    "vectors": ("fairseq_relpos.cli.vectors", "test vectors of every encoding, for other implementations"),
    "conform": ("fairseq_relpos.cli.conform", "another implementation of an encoding against the test vectors"),
    "order-gap": ("fairseq_relpos.reports.order_gap", "loss with and without the order of the tokens"),
    "extrapolation": ("fairseq_relpos.reports.extrapolation", "loss at lengths beyond the training's"),
    "compare": ("fairseq_relpos.reports.compare", "one report on any runs of fairseq-train"),
    "score-questions": ("fairseq_relpos.reports.question_scores", "generated questions: BLEU-4, ROUGE-L, METEOR"),
    "plot": ("fairseq_relpos.cli.plot", "pictures of losses, biases, scores, heads, lengths and more"),
}
#: commands that do not need fairseq: they leave it as it is, or report why it does not import
ALONE = ("list", "show", "params", "mends", "path", "recipe", "doctor", "vectors", "conform", "compare")

#: package that a command may lack -> the extra that installs it
EXTRAS = {
    "fairseq": "fairseq",
    **dict.fromkeys("sacrebleu sentencepiece sacremoses matplotlib scipy sklearn tqdm pandas".split(), "recipes"),
    **dict.fromkeys("transformers tokenizers safetensors".split(), "hf"),
    "ctranslate2": "ct2",
}

#: a flag of every command that reads a checkpoint: accept whatever is in the file
TRUST_FLAG = "--trust-checkpoint"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code. If the reader of a pipe has closed it (``| head``), that is the exit
    code of Unix tools, without an error message."""
    try:
        try:
            return run(argv)
        finally:
            sys.stdout.flush()  # here, not at Python's end, where the error could not be caught
    except BrokenPipeError:
        if not reader_has_left():
            raise
        # Python flushes the buffer once more at its end: into /dev/null
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def reader_has_left() -> bool:
    """Whether standard output is a pipe that nobody reads any more."""
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):  # not a file, or closed
        return False
    poll = select.poll()
    poll.register(output, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def run(argv: Sequence[str] | None) -> int:
    argv = sys.argv[1:] if argv is None else list(argv)
    if TRUST_FLAG in argv:
        # the import is here, because it imports torch
        from ..checkpoints.loading import take_trust_flag

        argv = take_trust_flag(argv)
    parser = Parser(prog="fairseq-relpos", description="Position encodings for fairseq.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (_, summary) in COMMANDS.items():
        commands.add_parser(name, help=summary, add_help=False)
    chosen = parser.parse_known_args(argv[:1])[0].command
    module_name, summary = COMMANDS[chosen]
    try:
        if chosen not in ALONE:
            register()
        module = importlib.import_module(module_name)
        command = Parser(prog=f"fairseq-relpos {chosen}", description=summary)
        if hasattr(module, "add_arguments"):
            module.add_arguments(command)
        return module.run(command.parse_args(argv[1:])) or 0
    except (ValueError, OSError) as error:
        if isinstance(error, BrokenPipeError) and reader_has_left():
            raise
        message = visible(" ".join(str(error).split()))  # quoted text may contain line breaks
        print(f"fairseq-relpos {chosen}: error: {message}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing not in EXTRAS:
            raise
        message = f"it needs {missing}, which is not installed: {install(EXTRAS[missing])}"
        print(f"fairseq-relpos {chosen}: error: {message}", file=sys.stderr)
        return 1
