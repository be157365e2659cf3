"""The average of the weights that fairseq keeps with --store-ema."""

import contextlib
import types
from collections.abc import Iterator
from typing import Any

from .replace import replace

#: whether a Trainer with --store-ema loads a checkpoint now
loading = types.SimpleNamespace(now=False)


@contextlib.contextmanager
def wanted(store_ema: bool) -> Iterator[None]:
    """Context in which ``begin`` knows whether an average is kept."""
    loading.now = store_ema
    try:
        yield
    finally:
        loading.now = False


def begin(state: dict[str, Any]) -> None:
    """Lets the average of a file without one begin with its weights. Stock fairseq means to do so, but looks for them
    where it has removed them."""
    if loading.now and state.get("extra_state") is not None:
        state["extra_state"].setdefault("ema", state["model"])


def keep_versions() -> None:
    """Leaves the averaged model its ``version`` at each update. Stock fairseq does not average versions, and loads the
    rest; a stack whose file has no version is taken for an old one, without a norm after its last layer."""
    from fairseq.models.ema.ema import EMA

    @replace(EMA, "restore", "averaged-versions")
    def with_versions(stock, self, state_dict, *args, **kwargs):
        for key, value in self.model.state_dict().items():
            if "version" in key:
                state_dict.setdefault(key, value)
        return stock(self, state_dict, *args, **kwargs)


INSTALLERS = (keep_versions,)
