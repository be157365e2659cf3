import os

# before torch: two test processes share the cores
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest  # noqa: E402
import torch  # noqa: E402


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
