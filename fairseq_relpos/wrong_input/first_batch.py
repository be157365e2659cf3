"""A model, criterion and task that turn out not to fit when the first batch comes."""

import contextlib
import os

from ..shims import commands_with, replace


def explain_a_first_batch_that_does_not_fit():
    """A criterion that calls the model otherwise than it can be called is named, and a
    --best-checkpoint-metric that no validation has.

    All versions: a traceback, and crash.pt with the weights of a model that has made no update.
    """
    from fairseq.trainer import Trainer

    @replace(Trainer, "train_step")
    def say_what_does_not_fit(stock, self, *args, **kwargs):
        crash = os.path.join(self.cfg.checkpoint.save_dir, "crash.pt")
        was_there = os.path.exists(crash)
        try:
            return stock(self, *args, **kwargs)
        except (TypeError, ValueError) as error:
            if self.get_num_updates() or isinstance(error.__cause__, FloatingPointError):
                raise
            if not was_there and self.is_data_parallel_master:
                with contextlib.suppress(OSError):
                    os.remove(crash)
            if isinstance(error, TypeError) and "forward()" in str(error):
                raise ValueError(does_not_fit(self.cfg, error)) from error
            raise

    for command in commands_with("validate"):
        replace(command, "validate")(_explain_the_metric)


def does_not_fit(cfg, error):
    names = [f"--{part} {getattr(getattr(cfg, part, None), '_name', '?')}" for part in ("criterion", "task")]
    return f"{' and '.join(names)} do not go with --arch {getattr(cfg.model, '_name', '?')}: {error}"


def _explain_the_metric(stock, cfg, *args, **kwargs):
    metric = cfg.checkpoint.best_checkpoint_metric
    try:
        return stock(cfg, *args, **kwargs)
    except KeyError as error:
        if error.args != (metric,):
            raise
        raise ValueError(
            f"--best-checkpoint-metric {metric}: the validation has no such number; "
            f"its line in the log names those it has"
        ) from None
