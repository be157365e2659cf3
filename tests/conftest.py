import contextlib
import importlib
import logging
import os
import signal
import sys
from pathlib import Path

# before torch: two test processes share the cores
os.environ.setdefault("OMP_NUM_THREADS", "1")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # started in the background of a shell: processes that tests send Ctrl-C to would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

import checkouts  # noqa: E402
import preloaded  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
from fairseq_data import binarise  # noqa: E402

if not torch.cuda.is_available():
    # Triton decides on import whether its functions can be interpreted (tests/backends), and
    # some test may lead torch to import it before
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        with contextlib.suppress(ImportError):
            import triton.language  # noqa: F401


def pytest_unconfigure():
    preloaded.stop()


@pytest.fixture(autouse=True)
def root_logger():
    """A command of fairseq that is run in this process may set up the root logger, for the output of one test."""
    root = logging.getLogger()
    before = root.handlers[:]
    yield
    for handler in [handler for handler in root.handlers if type(handler) is logging.StreamHandler]:
        if handler not in before:
            root.removeHandler(handler)


@pytest.fixture(autouse=True)
def signals():
    """Handlers that a program sets in this process; processes that later tests fork would inherit them."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A tiny corpus, binarised."""
    return binarise(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    return checkouts.make(tmp_path_factory.mktemp("a checkout"))


@contextlib.contextmanager
def importing_from(folder):
    """Imports modules of this folder, which import one another by their bare names, as those of other folders do."""
    names = [path.stem for path in folder.glob("*.py")]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        for name in names:
            patch.delitem(sys.modules, name, raising=False)
        yield importlib.import_module
        for name in names:
            sys.modules.pop(name, None)


@pytest.fixture
def benchmark_module():
    with importing_from(Path(__file__).parents[1] / "benchmarks") as import_module:
        yield import_module


@pytest.fixture(scope="module")
def script_module():
    with importing_from(Path(__file__).parents[1] / "scripts") as import_module:
        yield import_module
