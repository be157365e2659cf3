"""fairseq on today's stack: what it gets wrong under today's Python, numpy, torch and launchers.

Tried with fairseq-fixed 0.12.3.1; fairseq 0.12.2 and git main have the same functions in the same
places. Every shim may be applied twice and leaves alone what does not need it. Errors that a user
can mend end a fairseq command with one line; LOGLEVEL=DEBUG shows the traceback as well.
"""

import contextlib
import contextvars
import functools
import importlib
import importlib.util
import inspect
import logging
import os
import re
import signal
import sys
import traceback
import types
import warnings

import numpy as np
import torch
from omegaconf.errors import MissingMandatoryValue

from .checkpoints.fitting import what_does_not_fit
from .shims import replace, replace_main
from .training import agreement, ending, gradients, joining, nonfinite, precision, resuming, saving, stopping, watching
from .wrong_input import arguments, data, first_batch, launching, models, needed, overrides, ranges, text

logger = logging.getLogger(__name__)


def apply():
    """Applies every shim. Imports fairseq; may be called any number of times."""
    for shim in SHIMS:
        shim()


def leave_the_root_logger_alone():
    """Three modules of fairseq configure the root logger as they are imported, one to DEBUG.

    Whoever imports the plugin first would find every library's debug lines on the screen.
    """
    if "fairseq" in sys.modules:
        return  # imported by a command that has its own configuration
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    importlib.import_module("fairseq")
    root.setLevel(level)
    root.handlers[:] = handlers


def require_a_fairseq_that_can_serve():
    """fairseq 0.12 and later (0.12.2, fairseq-fixed, git main) have what the plugin builds on.

    An older one would fail somewhere in the middle, with a name that says nothing.
    """
    import fairseq

    needed = (
        ("fairseq.models.roberta.model", "roberta_large_architecture"),
        ("fairseq.models.transformer", "TransformerConfig"),
        ("fairseq.dataclass.configs", "FairseqConfig"),
        ("fairseq.distributed.utils", "call_main"),
    )
    for module, name in needed:
        try:
            getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ImportError(
                f"fairseq {getattr(fairseq, '__version__', 'of unknown version')} has no "
                f"{module}.{name}, which fairseq_relpos needs: install fairseq-fixed==0.12.3.1, "
                "fairseq 0.12.2 or its git main"
            ) from error


def read_checkpoints_safely():
    """Checkpoints load with weights_only on, and a bad file is named in one line.

    fairseq-fixed and 0.12.2 leave weights_only to torch: from torch 2.6 on it is on and refuses
    argparse.Namespace and others in their checkpoints, before it is off. git main switches it off.
    Here it is on under all of them, with the classes that checkpoints.loading allows, unless
    --trust-checkpoint is given, to any of fairseq's commands. A file whose bytes do not fit the
    checksums in it, which no version looks at, is refused: its weights are not those of the training.
    """
    from fairseq import checkpoint_utils, options

    from fairseq_relpos.checkpoints import checksums, loading

    loading.allow_fairseq_classes()

    @replace(torch, "load")
    def load(stock, *args, **kwargs):
        path = _reading.get()
        if path is None or loading.trusted():
            return stock(*args, **kwargs)
        state = stock(*args, **{**kwargs, "weights_only": True})
        loading.refuse_code_in_settings(path, state)  # before fairseq does anything with them
        return state

    @replace(checkpoint_utils, "load_checkpoint_to_cpu")
    def read(stock, path, *args, **kwargs):
        loading.refuse_packed(path)
        try:
            with _reading_of(path):
                state = stock(path, *args, **kwargs)
        except Exception:
            loading.load_checkpoint(path)  # says what is wrong, if it is the file
            raise
        if os.path.isfile(path):  # fairseq reads from elsewhere, too
            checksums.refuse_damage(path)
        return state

    @replace(options, "parse_args_and_arch")
    def trust_if_told_to(stock, parser, input_args=None, *args, **kwargs):
        if input_args is None:
            sys.argv[1:] = loading.take_trust_flag(sys.argv[1:])
        else:
            input_args = loading.take_trust_flag(input_args)
        return stock(parser, input_args, *args, **kwargs)

    @replace(checkpoint_utils, "load_ema_from_checkpoint")
    def read_ema(stock, fpath):
        return read(stock, fpath)


#: the checkpoint that this thread is reading
_reading = contextvars.ContextVar("reading", default=None)


@contextlib.contextmanager
def _reading_of(path):
    before = _reading.set(str(path))
    try:
        yield
    finally:
        _reading.reset(before)


def restore_numpy_compat():
    """numpy >= 2 has no np.compat; --sample-break-mode eos and --num-batch-buckets use it."""
    if not hasattr(np, "compat"):
        np.compat = types.SimpleNamespace(long=int)


def restore_length_buckets():
    """numpy >= 2.4 has no np.percentile(interpolation=), which --num-batch-buckets uses."""
    from fairseq.data import bucket_pad_length_dataset

    if "interpolation" in inspect.signature(np.percentile).parameters:
        return

    @replace(bucket_pad_length_dataset, "get_buckets")
    def get_buckets(stock, sizes, num_buckets):
        borders = np.linspace(0, 100, num_buckets + 1)
        return np.unique(np.percentile(sizes, borders, method="lower")[1:])


def restore_bitarray_rindex():
    """bitarray >= 3 has no util.rindex, which reading --dataset-impl huffman uses."""
    import bitarray.util

    if not hasattr(bitarray.util, "rindex"):
        # a coded sentence always has the 1 that is looked for: it marks its end
        bitarray.util.rindex = lambda bits, value=1: bits.find(value, right=True)


def keep_bf16_off_tpu():
    """--bf16 and --memory-efficient-bf16 mean a TPU to fairseq, all versions.

    Not where torch_xla is absent; --tpu still means one, and is an error there.
    """
    from fairseq import options

    @replace(options, "parse_args_and_arch")
    def bf16_without_tpu(stock, parser, input_args=None, *args, **kwargs):
        parsed = stock(parser, input_args, *args, **kwargs)
        settings = parsed[0] if isinstance(parsed, tuple) else parsed
        asked_for_tpu = "--tpu" in (sys.argv if input_args is None else input_args)
        has_tpu = importlib.util.find_spec("torch_xla") is not None
        if asked_for_tpu and not has_tpu:
            raise ValueError("--tpu needs torch_xla, which is not installed: leave the flag out")
        if getattr(settings, "bf16", False) and not asked_for_tpu:
            settings.tpu = has_tpu
        return parsed


_TORCHRUN_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")


def _launched_ranks():
    """How many ranks torchrun, or else srun, says it started, this process among them."""
    environment = os.environ
    return int(environment.get("WORLD_SIZE") or environment.get("SLURM_STEP_NUM_TASKS") or 1)


def log_each_line_once():
    """All versions: every epoch opens --log-file once more, so that the lines of the hundredth
    are in it a hundred times."""
    from fairseq.logging import progress_bar

    @replace(progress_bar, "progress_bar")
    def once(stock, *args, log_file=None, **kwargs):
        opened = [h for h in progress_bar.logger.handlers if isinstance(h, logging.FileHandler)]
        if log_file is not None and any(h.baseFilename == os.path.abspath(log_file) for h in opened):
            log_file = None
        return stock(*args, log_file=log_file, **kwargs)


def warn_once_without_tensorboard():
    """All versions: --tensorboard-logdir without tensorboard warns at every progress bar, that is, at
    every epoch and validation. Here once a process; the training goes on without, as in stock."""
    from fairseq.logging import progress_bar

    @replace(progress_bar.TensorboardProgressBarWrapper, "__init__")
    def once(stock, bar, *args, **kwargs):
        before = progress_bar.logger.disabled
        progress_bar.logger.disabled = before or "tensorboard" in _WARNED
        try:
            stock(bar, *args, **kwargs)
        finally:
            progress_bar.logger.disabled = before
        _WARNED.add("tensorboard")


#: what a warning of which one is enough has been given about
_WARNED = set()


def follow_the_launcher():
    """Under torchrun every rank takes its place, also on CPUs and with one GPU per node.

    fairseq, all versions, reads the launcher's variables only if it counts two or more GPUs on its
    own node: otherwise every rank trains alone, without a word and with exit code 0. On CPUs it
    would go on to divide by the number of GPUs, to choose NCCL, and to wrap the model in a
    DistributedDataParallel for GPUs. Without a launcher, several ranks on a machine without GPUs
    mean that it starts one process per GPU, none, with exit code 0: an error here.
    """
    from fairseq.distributed import utils

    @replace(utils, "call_main")
    def take_our_rank(stock, cfg, main, **kwargs):
        distributed = cfg.distributed_training
        is_special = cfg.common.tpu or distributed.pipeline_model_parallel
        if _combines_its_ranks(main) and not is_special:
            on_cpu = cfg.common.cpu or not torch.cuda.is_available()
            launched = all(name in os.environ for name in _TORCHRUN_VARIABLES)
            undecided = distributed.distributed_init_method is None
            if launched and undecided and _launched_ranks() > 1:
                _join_torchrun(distributed, on_cpu)
            if on_cpu and distributed.distributed_world_size > 1:
                _refuse_to_start_nothing(distributed)
                _communicate_between_cpus(distributed)
        return stock(cfg, main, **kwargs)


def _combines_its_ranks(main):
    """False for the commands of which each rank would print a share of the result, or all of it."""
    command = os.path.basename(inspect.unwrap(main).__code__.co_filename)
    return command not in {"generate.py", "interactive.py", "eval_lm.py"}


def _join_torchrun(distributed, on_cpu):
    distributed.distributed_init_method = "env://"
    distributed.distributed_world_size = int(os.environ["WORLD_SIZE"])
    distributed.distributed_rank = int(os.environ["RANK"])
    distributed.distributed_no_spawn = True  # torchrun has started the processes
    local_rank = int(os.environ.get("LOCAL_RANK", distributed.distributed_rank))
    # modulo, because some launchers show every process its own GPU only
    distributed.device_id = 0 if on_cpu else local_rank % torch.cuda.device_count()


def _refuse_to_start_nothing(distributed):
    on_slurm = "SLURM_STEP_NODELIST" in os.environ or "SLURM_JOB_NODELIST" in os.environ
    if torch.cuda.device_count() == 0 and not distributed.distributed_no_spawn and not on_slurm:
        raise ValueError(
            f"--distributed-world-size {distributed.distributed_world_size}: fairseq starts one "
            "process per GPU and finds no GPU; on CPUs use "
            "`torchrun --nproc_per_node N $(which fairseq-train) ... --cpu`"
        )


def _communicate_between_cpus(distributed):
    for_cpus = {"nccl": "gloo", "c10d": "legacy_ddp", "pytorch_ddp": "legacy_ddp"}
    for setting in ("distributed_backend", "ddp_backend"):
        given = distributed[setting]
        if given in for_cpus:
            logger.info(f"{setting}: {for_cpus[given]} instead of {given}, which needs GPUs")
            distributed[setting] = for_cpus[given]


def refuse_another_number_of_ranks():
    """--distributed-world-size under torchrun: all versions take torchrun's number without a word,
    and with it another batch. An error if the two differ.
    """
    from fairseq import options

    @replace(options, "parse_args_and_arch")
    def compare(stock, parser, input_args=None, *args, **kwargs):
        parsed = stock(parser, input_args, *args, **kwargs)
        given = " ".join(map(str, sys.argv if input_args is None else input_args))
        settings = parsed[0] if isinstance(parsed, tuple) else parsed
        if "--distributed-world-size" in given and all(name in os.environ for name in _TORCHRUN_VARIABLES):
            ranks = int(os.environ["WORLD_SIZE"] or 1)
            if settings.distributed_world_size != ranks:
                raise ValueError(
                    f"--distributed-world-size {settings.distributed_world_size}, but the launcher started "
                    f"{ranks} ranks, which makes another batch: start as many, or leave the flag out"
                )
        return parsed


def refuse_to_train_alone():
    """A launcher started several ranks and fairseq would train in each of them alone: an error.

    All versions do so without a word. What `follow_the_launcher` cannot reach: srun with one task
    per GPU and no --distributed-world-size; fairseq-hydra-train, which imports plugins too late.
    """
    from fairseq.trainer import Trainer

    @replace(Trainer, "__init__")
    def check_world_size(stock, self, cfg, *args, **kwargs):
        ranks = _launched_ranks()
        if ranks > 1 and cfg.distributed_training.distributed_world_size == 1:
            raise ValueError(
                f"the launcher started {ranks} ranks and each of them would train alone: add "
                f"--distributed-world-size {ranks} (under srun also --distributed-port 29500); "
                f"for {ranks} separate runs unset WORLD_SIZE and SLURM_STEP_NUM_TASKS"
            )
        return stock(self, cfg, *args, **kwargs)


def validate_on_several_ranks():
    """fairseq-validate on several ranks, all versions.

    It gathers results through GPU memory, also where there is none; and where the batches do not
    come out even, the empty one that a rank gets at the end is a KeyError.
    """
    from fairseq.distributed import utils
    from fairseq.tasks import FairseqTask

    @replace(utils, "all_gather_list")
    def gather_on_cpu(stock, data, group=None, max_size=16384):
        if torch.cuda.is_available():
            return stock(data, group, max_size)
        group = utils.get_global_group() if group is None else group
        gathered = [None] * utils.get_world_size(group)
        torch.distributed.all_gather_object(gathered, data, group=group)
        return gathered

    @replace(FairseqTask, "valid_step")
    def skip_empty_batch(stock, self, sample, model, criterion):
        return stock(self, sample, model, criterion) if sample else (0, 0, {})


def refuse_asynchronous_writing_without_iopath():
    """--write-checkpoints-asynchronously without iopath trains nothing, exit code 0: an error."""
    from fairseq.distributed import utils

    @replace(utils, "call_main")
    def check_iopath(stock, cfg, main, **kwargs):
        wanted = cfg.checkpoint.write_checkpoints_asynchronously
        if wanted and importlib.util.find_spec("iopath") is None:
            raise ValueError(
                "--write-checkpoints-asynchronously needs iopath: `pip install iopath`, or leave the flag out"
            )
        return stock(cfg, main, **kwargs)


def draw_new_masks_in_every_epoch():
    """Masked-LM training with --num-workers N > 0: new masks in every epoch, the same as with 0.

    fairseq-fixed and git main keep the loaders' processes from epoch to epoch, each with the
    dataset as it was when it began: its epoch, of which the masks are drawn, stays the first. Every
    epoch then has one and the same masks, and a run that was interrupted has others. They also
    keep the first epoch's sampler, which under --curriculum never shuffles. Here each epoch starts
    its own, after the dataset has been told the epoch. A validation keeps its loaders: its epoch is
    the first anyway, and one that --max-valid-steps breaks off would leave them behind.
    """
    from fairseq.trainer import Trainer

    @replace(Trainer, "get_train_iterator")
    def new_loaders_for_each_epoch(stock, self, *args, **kwargs):
        batches = stock(self, *args, **kwargs)
        for name in ("persistent_workers", "reuse_dataloader"):
            if hasattr(batches, name):
                setattr(batches, name, False)
        return batches


def make_the_same_batches_after_a_resume():
    """All versions make the batches of translation and language modelling once, by the seed of the
    epoch in which they start: a run that goes on in its third epoch has others, so that some
    sentences of that epoch come twice and some never. Here they are those of the first epoch.
    """
    from fairseq.tasks import FairseqTask

    @replace(FairseqTask, "get_batch_iterator")
    def of_the_first_epoch(stock, self, dataset, *args, **kwargs):
        given = inspect.signature(stock).bind(self, dataset, *args, **kwargs)
        given.apply_defaults()
        epoch, settings = given.arguments["epoch"], given.arguments
        kept = not (settings["disable_iterator_cache"] or settings.get("update_epoch_batch_itr"))
        if epoch == 1 or not kept or not self.can_reuse_epoch_itr(dataset) or dataset in self.dataset_to_epoch_iter:
            return stock(self, dataset, *args, **kwargs)
        settings["epoch"] = 1
        batches = stock(*given.args, **given.kwargs)
        batches.epoch = epoch
        dataset.set_epoch(epoch)
        return batches


def leave_fillers_out_of_an_update():
    """--update-freq above 1 on several ranks: where a rank has no batch left for the end of an epoch,
    all versions count none of its batches of that update, and add their gradients all the same.
    """
    from fairseq.trainer import Trainer

    @replace(Trainer, "train_step")
    def of_real_batches(stock, self, samples, *args, **kwargs):
        if self.is_fsdp or getattr(self.cfg.model, "base_layers", 0) > 0:
            return stock(self, samples, *args, **kwargs)  # ranks meet in every forward pass
        real = [sample for sample in samples if sample is not None and len(sample) > 0]
        return stock(self, real or samples[:1], *args, **kwargs)


def unscale_gradients_once():
    """--amp on a GPU: all versions divide the gradients by the loss scale twice, through one
    optimizer when they clip, and through its wrapper when they step; and take --amp-init-scale
    for --amp-scale-window.
    """
    from fairseq.optim.amp_optimizer import AMPOptimizer

    @replace(AMPOptimizer, "__init__")
    def scale_window(stock, self, cfg, *args, **kwargs):
        stock(self, cfg, *args, **kwargs)
        if getattr(cfg.common, "amp_scale_window", None) is not None:
            self.scaler.set_growth_interval(cfg.common.amp_scale_window)

    @replace(AMPOptimizer, "step")
    def step_with_the_optimizer_that_was_unscaled(stock, self):
        self.scaler.step(self.optimizer)
        self.scaler.update()


def report_lost_samples():
    """A last batch that is no multiple of --required-batch-size-multiple (default 8) is dropped.

    All versions. In training that is a choice. In an evaluation the longest samples silently do
    not count: a warning, once, and no error, because the default would stop almost every training
    run, whose own validation losses remain comparable. In a process that has a Trainer only what
    get_valid_iterator makes is an evaluation, so that nothing is said of training batches. A set
    that would be lost whole is an error.
    """
    from fairseq import trainer
    from fairseq.data import data_utils
    from fairseq.distributed import utils

    batches_are = types.SimpleNamespace(for_evaluation=True)

    @replace(trainer.Trainer, "__init__")
    def expect_training_batches(stock, self, *args, **kwargs):
        batches_are.for_evaluation = False
        return stock(self, *args, **kwargs)

    @replace(trainer.Trainer, "get_valid_iterator")
    def expect_evaluation_batches(stock, self, *args, **kwargs):
        batches_are.for_evaluation = True
        try:
            return stock(self, *args, **kwargs)
        finally:
            batches_are.for_evaluation = False

    @replace(data_utils, "batch_by_size")
    def count_samples(stock, indices, *args, **kwargs):
        if not isinstance(indices, np.ndarray):
            indices = np.fromiter(indices, dtype=np.int64)
        batches = stock(indices, *args, **kwargs)
        lost = len(indices) - sum(map(len, batches))
        what = (
            f"{lost:,} of {len(indices):,} samples are LEFT OUT{{}}: the last batch is no multiple "
            "of --required-batch-size-multiple (default 8); "
            "add --required-batch-size-multiple 1 to use all"
        )
        if 0 < lost == len(indices):
            raise ValueError(what.format(""))
        if lost and batches_are.for_evaluation and utils.get_global_rank() == 0:
            _warn_once(what.format(" of this evaluation"))
        return batches


@functools.cache
def _warn_once(message):
    logger.warning(message)


def say_which_samples_are_too_long():
    """A sample longer than the model's positions ends an evaluation in one line, and so does a set
    of which nothing would be left, or, for fairseq-eval-lm, not all of it. Training goes on
    without such samples, after a line that says how much of the text they are.

    All versions: the first is a traceback. With the second fairseq-eval-lm prints the perplexity
    of what is left: "1.00" for nothing, or that of the last, shorter block of a text. Training
    says how many samples it leaves out, not that they may be a third of the text, nor why.
    """
    from fairseq.distributed import utils
    from fairseq.tasks import FairseqTask
    from fairseq.tasks.language_modeling import LanguageModelingTask

    all_count = types.SimpleNamespace(now=False)

    @replace(LanguageModelingTask, "eval_lm_dataloader")
    def evaluate_all(stock, self, *args, **kwargs):
        all_count.now = True
        try:
            return stock(self, *args, **kwargs)
        finally:
            all_count.now = False

    @replace(FairseqTask, "filter_indices_by_size")
    def filter_by_size(stock, self, indices, dataset, max_positions=None, ignore_invalid_inputs=False):
        try:
            kept = stock(self, indices, dataset, max_positions, ignore_invalid_inputs)
        except Exception as error:
            if type(error) is Exception and str(error).startswith("Size of sample"):
                message = re.sub(r"np\.int64\((\d+)\)", r"\1", str(error))
                raise ValueError(f"{message}; {_what_keeps_long_samples(self, max_positions)}") from None
            raise
        if len(kept) == len(indices):
            return kept
        too_long = _how_many_are_too_long(indices, kept, dataset, max_positions)
        if all_count.now:
            raise ValueError(
                f"{too_long}, and would be left out: for a language model add "
                "--tokens-per-sample L --model-overrides \"{'max_target_positions': L}\", which a "
                "relative encoding takes at any L"
            )
        advice = _what_keeps_long_samples(self, max_positions)
        if len(kept) == 0:
            raise ValueError(f"{too_long}, and nothing would be left: {advice}")
        if utils.get_global_rank() == 0:
            _warn_once(f"LEFT OUT: {too_long}; {advice}")
        return kept


def _how_many_are_too_long(indices, kept, dataset, max_positions):
    lengths = np.fromiter((dataset.num_tokens(index) for index in indices), dtype=np.int64)
    lost = lengths[~np.isin(indices, kept)]
    return (
        f"{len(lost):,} of {len(indices):,} samples are longer than the {max_positions} positions of the "
        f"model, {100 * lost.sum() / lengths.sum():.1f} % of the tokens; the longest has {lost.max():,} tokens"
    )


def _what_keeps_long_samples(task, max_positions):
    mode = str(getattr(getattr(task, "cfg", None), "sample_break_mode", "none"))
    if mode != "none":
        return (
            f"--sample-break-mode {mode} cuts no line; --sample-break-mode none cuts all text into equal blocks "
            "and keeps it"
        )
    if isinstance(max_positions, (tuple, list)):
        return "--max-source-positions and --max-target-positions of a training make room for them"
    return "--max-positions of a training makes room for them"


def refuse_a_bleu_that_is_not_sacrebleu():
    """fairseq-generate --sacrebleu, all versions, prints a BLEU of its own tokens.

    The flag only silences the warning that says so. An error that names the flag that works.
    """

    def check_scoring(stock, args, *more, **kwargs):
        if getattr(args, "sacrebleu", False) and args.scoring != "sacrebleu":
            raise ValueError(
                "--sacrebleu does not score with sacreBLEU, it only silences a warning: use "
                "--scoring sacrebleu, with detokenised text (--remove-bpe, --tokenizer)"
            )
        return stock(args, *more, **kwargs)

    replace_main("fairseq_cli.generate")(check_scoring)


def refuse_text_that_is_not_utf8():
    """fairseq-interactive names the line of its input that is not UTF-8.

    All versions end in a traceback, or, where Python reads standard input leniently (LC_ALL=C),
    translate something else.
    """
    from fairseq.distributed import utils

    def check(stock, *args, **kwargs):
        line = 0
        batches = stock(*args, **kwargs)
        while True:
            try:
                batch = next(batches, None)
                for text in batch or ():
                    line += 1
                    text.encode()  # a byte that was let through is a lone surrogate
            except UnicodeError:
                raise ValueError(
                    f"the input is not UTF-8, in line {max(line, 1)} or soon after: convert it, "
                    "for example with `iconv -f latin1 -t utf-8`"
                ) from None
            if batch is None:
                return
            yield batch

    @replace(utils, "call_main")
    def check_input(stock, cfg, main, **kwargs):
        command = sys.modules[inspect.unwrap(main).__module__]  # which may run as __main__
        if hasattr(command, "buffered_read"):
            replace(command, "buffered_read")(check)
        return stock(cfg, main, **kwargs)


#: what shells give to a command that Ctrl-C has ended
INTERRUPTED = 128 + signal.SIGINT


def errors_in_one_line():
    """What the user can mend ends a fairseq command with one line and exit code 1, and so does Ctrl-C
    where nothing is to be saved, with exit code 130.

    That is a ValueError of this package and a file that cannot be opened, also where fairseq's
    trainer hides them behind "Cannot load model parameters". All versions would print a traceback.
    In a Python program the exceptions stay what they are.
    """
    from fairseq import options
    from fairseq.distributed import utils

    def run(stock, *args, **kwargs):
        try:
            return stock(*args, **kwargs)
        except KeyboardInterrupt:
            if os.environ.get("LOGLEVEL", "").upper() == "DEBUG":
                logger.debug("interrupted here", exc_info=True)
            print("fairseq_relpos: error: interrupted", file=sys.stderr)
            raise SystemExit(INTERRUPTED) from None
        except Exception as error:
            message = _message_for_the_user(error)
            if message is None:
                raise
            # by name, because some commands leave the root logger at DEBUG by themselves
            if os.environ.get("LOGLEVEL", "").upper() == "DEBUG":
                logger.debug("raised here", exc_info=True)
            message = " ".join(message.split())  # what is quoted may have an end of line in it
            _tell_the_launcher(message)
            raise SystemExit(f"fairseq_relpos: error: {message}") from None

    replace(options, "parse_args_and_arch")(run)
    replace(utils, "call_main")(run)
    replace_main("fairseq_cli.generate")(run)
    replace_main("fairseq_cli.preprocess")(run)


def _tell_the_launcher(message):
    """Several ranks: scripts/launch_torchrun.sh ends with a message that it finds there, of the last
    time that torchrun has started them."""
    file = os.environ.get("RELPOS_ERROR_FILE")
    if file:
        with contextlib.suppress(OSError), open(file, "a", encoding="utf-8") as messages:
            start = os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)
            messages.write(f"{start}\trank {os.environ.get('RANK', 0)}: {message}\n")


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
)
_TORCH_REFUSES_WEIGHTS = "Error(s) in loading state_dict for"
#: what fairseq says of flags that do not go together
_NAMES_A_FLAG = re.compile(r"(^|[ (])--[a-z]")
_FAIRSEQ = {__package__, "fairseq", "fairseq_cli"}
#: what fairseq opens its files with
_OPEN_FILES = {"os", "shutil", "logging", "fileinput", "torch", "tensorboard"}
#: of stock models, last in the chain of errors because it hides ours
_OTHER_MODEL = "Cannot load model parameters from checkpoint"


def _message_for_the_user(error):
    outermost = str(error)
    while error is not None:
        modules = [
            frame.f_globals.get("__name__", "").split(".")[0] for frame, _ in traceback.walk_tb(error.__traceback__)
        ]
        raised_in = modules[-1] if modules else None
        if isinstance(error, ValueError) and raised_in == __package__:
            return str(error)
        if isinstance(error, OSError):
            callers = [module for module in modules if module not in _OPEN_FILES]
            if callers and callers[-1] in _FAIRSEQ:
                return str(error)
        if raised_in in _FAIRSEQ and str(error).startswith(_SAY_WHAT_TO_DO):
            return str(error)
        if isinstance(error, MissingMandatoryValue):
            return f"--{error.key.replace('_', '-')} is not given: something else that is given needs it"
        if isinstance(error, RuntimeError) and str(error).startswith(_TORCH_REFUSES_WEIGHTS):
            return what_does_not_fit(str(error))  # of a stock model: the package's own say so themselves
        if (
            raised_in in _FAIRSEQ
            and isinstance(error, (ValueError, AssertionError))
            and _NAMES_A_FLAG.search(str(error))
        ):
            return str(error)
        error = error.__cause__ or error.__context__
    return outermost if outermost.startswith(_OTHER_MODEL) else None


_OLD_HYDRA = "fairseq makes its own default settings through hydra 1.0's interface"
# how the message starts, the module that gives it ("" where that varies), why it says nothing
MEANINGLESS_WARNINGS = (
    ("hydra.experimental.initialize() is no longer", "hydra.experimental.initialize", _OLD_HYDRA),
    ("The version_base parameter is not specified", "hydra.experimental.initialize", _OLD_HYDRA),
    ("hydra.experimental.compose() is no longer", "hydra.experimental.compose", _OLD_HYDRA),
    ("The strict flag in the compose API is deprecated", "hydra.compose", _OLD_HYDRA),
    ("In 'config': Usage of deprecated keyword", "hydra.core.default_element", _OLD_HYDRA),
    ("'config' is validated against ConfigStore schema", "", _OLD_HYDRA),
    (
        "`torch.cuda.amp.autocast(args...)` is deprecated",
        "fairseq.tasks.fairseq_task",
        "only the name of the function has changed",
    ),
    (
        "'pin_memory' argument is set as true but no accelerator is found",
        "torch.utils.data",
        "fairseq asks for it on CPUs too, where it does nothing",
    ),
    (
        "Support for mismatched key_padding_mask and attn_mask is deprecated",
        "torch.nn.functional",
        "stock decoders give a float future mask and a boolean padding mask",
    ),
)


def silence_meaningless_warnings():
    """Warnings that come from fairseq's age alone are silenced, one by one.

    And fairseq's line that tensorboardX, which nothing here uses, is missing: where the plugin is
    the first to import fairseq.
    """
    logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)
    for message, module, _reason in MEANINGLESS_WARNINGS:
        warnings.filterwarnings("ignore", message=rf"\s*{re.escape(message)}", module=re.escape(module))


SHIMS = (
    silence_meaningless_warnings,
    leave_the_root_logger_alone,
    require_a_fairseq_that_can_serve,
    restore_numpy_compat,
    restore_length_buckets,
    restore_bitarray_rindex,
    read_checkpoints_safely,
    keep_bf16_off_tpu,
    log_each_line_once,
    warn_once_without_tensorboard,
    follow_the_launcher,
    refuse_another_number_of_ranks,
    refuse_to_train_alone,
    joining.name_the_ranks_that_do_not_join,
    agreement.refuse_ranks_that_disagree,
    nonfinite.name_the_first_non_finite_module,
    gradients.name_parameters_without_gradient,  # after it, so that it sees every gradient
    precision.use_half_precision_on_cpus,
    saving.write_checkpoints_whole,
    arguments.refuse_a_missing_file_to_start_from,  # before it: all ranks have waited for the file
    resuming.resume_from_the_last_whole_checkpoint,
    resuming.refuse_another_order_of_the_data,
    resuming.go_on_with_the_other_adam,
    resuming.go_on_with_the_settings_that_are_given,
    resuming.keep_the_full_weights_of_half_precision,
    resuming.go_on_with_the_loss_scaler,
    resuming.keep_patience,
    resuming.read_a_checkpoint_together,  # after all that can fail while one is read
    watching.log_positions,
    ending.end_threads_before_python_does,
    stopping.save_and_end_on_a_signal,  # after it: what an update showed is logged first
    validate_on_several_ranks,
    refuse_asynchronous_writing_without_iopath,
    arguments.say_the_nearest_name,
    arguments.require_what_has_no_default,
    text.check_texts_before_they_are_binarised,
    data.explain_bad_dictionary,
    data.refuse_damaged_data,
    models.refuse_an_architecture_of_another_task,
    models.explain_what_from_pretrained_lacks,
    draw_new_masks_in_every_epoch,
    make_the_same_batches_after_a_resume,
    leave_fillers_out_of_an_update,
    unscale_gradients_once,
    report_lost_samples,
    say_which_samples_are_too_long,
    refuse_a_bleu_that_is_not_sacrebleu,
    refuse_text_that_is_not_utf8,
    needed.name_the_missing_flag,
    ranges.refuse_impossible_numbers,
    overrides.refuse_overrides_without_effect,
    launching.name_the_wrong_variable,
    first_batch.explain_a_first_batch_that_does_not_fit,
    errors_in_one_line,  # last, so that it sees the errors of all others
)
