"""Messages of fairseq: errors in one line, and no meaningless warnings."""

import contextlib
import importlib
import logging
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from omegaconf.errors import MissingMandatoryValue

from ..checkpoints.fitting import what_does_not_fit
from ..diverged import EXIT_CODE, Diverged, end
from .replace import note, replace

logger = logging.getLogger(__name__)

#: the name of the package: an error raised in one of its modules is its own
PACKAGE = __package__.split(".")[0]


def leave_the_root_logger_alone() -> None:
    """Restores the root logger after fairseq is imported.

    Three modules of fairseq configure the root logger when they are imported, one of them to DEBUG. A program that
    imports the plugin first would then print the debug lines of every library.
    """
    root = logging.getLogger()
    if "fairseq" in sys.modules or not note(logging, "root", ["logging"]):
        return  # a command has imported fairseq already, and has its own configuration
    level, handlers = root.level, root.handlers[:]
    importlib.import_module("fairseq")
    root.setLevel(level)
    root.handlers[:] = handlers


def log_each_line_once() -> None:
    """Opens --log-file once. Stock opens it again in every epoch, and writes each line as often."""
    from fairseq.logging import progress_bar

    @replace(progress_bar, "progress_bar", "logging")
    def once(stock, *args, log_file=None, **kwargs):
        opened = [h for h in progress_bar.logger.handlers if isinstance(h, logging.FileHandler)]
        if log_file is not None and any(h.baseFilename == os.path.abspath(log_file) for h in opened):
            log_file = None
        return stock(*args, log_file=log_file, **kwargs)


def refuse_text_that_is_not_utf8(stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Iterator[list[str]]:
    """Replaces fairseq-interactive's buffered_read: names the first line that is not UTF-8. Where Python decodes
    standard input leniently (LC_ALL=C), a wrong byte becomes a lone surrogate."""
    line = 0
    batches = stock(*args, **kwargs)
    while True:
        try:
            batch = next(batches, None)
            for text in batch or ():
                line += 1
                text.encode()
        except UnicodeError:
            raise ValueError(
                f"the input is not UTF-8, in line {max(line, 1)} or soon after: convert it, "
                "for example with `iconv -f latin1 -t utf-8`"
            ) from None
        if batch is None:
            return
        yield batch


#: the exit code that shells give to a command that Ctrl-C has ended
INTERRUPTED = 128 + signal.SIGINT


@contextlib.contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Context in which an error that the user can mend ends a fairseq command with one line and exit code 1. A run that
    has diverged ends with exit code 76.

    Such errors are a ValueError of this package and a file that cannot be opened, also where fairseq's trainer hides
    them behind "Cannot load model parameters". Ctrl-C also ends in one line, with exit code 130. In a Python program,
    which runs no fairseq command, exceptions stay what they are.
    """
    try:
        yield
    except KeyboardInterrupt:
        if os.environ.get("LOGLEVEL", "").upper() == "DEBUG":
            logger.debug("interrupted here", exc_info=True)
        print(f"{PACKAGE}: error: interrupted", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
    except Exception as error:
        message = _message_for_the_user(error)
        if message is None:
            raise
        # the variable is read, because some commands set the root logger to DEBUG by themselves
        if os.environ.get("LOGLEVEL", "").upper() == "DEBUG":
            logger.debug("raised here", exc_info=True)
        message = " ".join(message.split())  # quoted text may contain line breaks
        _tell_the_launcher(message, error)
        end(error, f"{PACKAGE}: error: {message}")


def _tell_the_launcher(message, error):
    """Writes the message where scripts/launch_torchrun.sh looks for it when a rank has failed. The script shows a
    message of the last time that torchrun has started the ranks, and rather one with a + that says where NaN began."""
    file = os.environ.get("RELPOS_ERROR_FILE")
    if file:
        with contextlib.suppress(OSError), open(file, "a", encoding="utf-8") as messages:
            start = os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)
            code = EXIT_CODE if isinstance(error, Diverged) else 1
            located = "+" if getattr(error, "is_located", False) else "-"
            messages.write(f"{start}\t{code}{located}\trank {os.environ.get('RANK', 0)}: {message}\n")


#: errors of fairseq's own that say what to do
_SAY_WHAT_TO_DO = (
    "Cannot resume training due to dataloader mismatch",
    "Optimizer does not match",
    "Criterion does not match",
    "Source and target must contain the same number of examples",
    "min_len cannot be larger than max_len",
    "shard_id must be between",
    "Could not infer language pair",
    "Provided Search parameters are mutually exclusive",
    "Cannot use fp16 and AMP together",
    "Incorrect dictionary format",
    "Incorrect encoding detected in",
    "Duplicate word found when loading Dictionary",
)
_TORCH_REFUSES_WEIGHTS = "Error(s) in loading state_dict for"
#: an error that names a flag: fairseq raises it for flags that exclude each other
_NAMES_A_FLAG = re.compile(r"(^|[ (])--[a-z]")
_FAIRSEQ = {PACKAGE, "fairseq", "fairseq_cli"}
#: modules through which fairseq opens its files
_OPEN_FILES = {"os", "shutil", "logging", "fileinput", "torch", "tensorboard"}
#: an error of fairseq's trainer that hides the real one: used only if the chain of errors has nothing better
_OTHER_MODEL = "Cannot load model parameters from checkpoint"


def _message_for_the_user(error):
    """Returns the line for an error that the user can mend, None for any other."""
    outermost = str(error)
    while error is not None:
        modules = [
            frame.f_globals.get("__name__", "").split(".")[0] for frame, _ in traceback.walk_tb(error.__traceback__)
        ]
        raised_in = modules[-1] if modules else None
        if isinstance(error, ValueError) and raised_in == PACKAGE:
            return str(error)
        if isinstance(error, OSError):
            callers = [module for module in modules if module not in _OPEN_FILES]
            if callers and callers[-1] in _FAIRSEQ:
                is_bare = isinstance(error, FileExistsError) and not error.strerror  # fairseq's own has the path alone
                return f"{error} exists already" if is_bare else str(error)
        if raised_in in _FAIRSEQ and str(error).startswith(_SAY_WHAT_TO_DO):
            return str(error)
        if raised_in in _FAIRSEQ and isinstance(error, ImportError) and "Please install" in str(error):
            return str(error)
        if isinstance(error, RuntimeError) and "no kernel image is available" in str(error):
            return (
                "this build of torch has no kernels for this GPU: `fairseq-relpos doctor` names one that has; or train "
                "with --cpu"
            )
        if isinstance(error, MissingMandatoryValue):
            return f"--{error.key.replace('_', '-')} is not given: something else that is given needs it"
        if isinstance(error, RuntimeError) and str(error).startswith(_TORCH_REFUSES_WEIGHTS):
            return what_does_not_fit(str(error))  # a stock model; models of the package raise this line themselves
        if (
            raised_in in _FAIRSEQ
            and isinstance(error, (ValueError, AssertionError))
            and _NAMES_A_FLAG.search(str(error))
        ):
            return str(error)
        error = error.__cause__ or error.__context__
    return outermost if outermost.startswith(_OTHER_MODEL) else None


#: how a warning starts -> the module that gives it; "" where that varies
MEANINGLESS_WARNINGS = {
    # fairseq makes its own default settings through hydra 1.0's interface
    "hydra.experimental.initialize() is no longer": "hydra.experimental.initialize",
    "The version_base parameter is not specified": "hydra.experimental.initialize",
    "hydra.experimental.compose() is no longer": "hydra.experimental.compose",
    "The strict flag in the compose API is deprecated": "hydra.compose",
    "In 'config': Usage of deprecated keyword": "hydra.core.default_element",
    "'config' is validated against ConfigStore schema": "",
    # only the name of the function has changed
    "`torch.cuda.amp.autocast(args...)` is deprecated": "fairseq.tasks.fairseq_task",
    # fairseq asks for it on CPUs too, where it does nothing
    "'pin_memory' argument is set as true but no accelerator is found": "torch.utils.data",
    # stock decoders give a float future mask and a boolean padding mask
    "Support for mismatched key_padding_mask and attn_mask is deprecated": "torch.nn.functional",
}


def silence_meaningless_warnings() -> None:
    """Silences the warnings in MEANINGLESS_WARNINGS. It also silences fairseq's line that tensorboardX is missing,
    which nothing here uses, if the plugin is the first to import fairseq."""
    if note(warnings, "filters", ["logging"]):
        logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)
        for message, module in MEANINGLESS_WARNINGS.items():
            warnings.filterwarnings("ignore", message=rf"\s*{re.escape(message)}", module=re.escape(module))


INSTALLERS = (silence_meaningless_warnings, leave_the_root_logger_alone, log_each_line_once)
