import pytest
import torch  # noqa: F401  forked runs find it imported
from fairseq_cli import train  # noqa: F401
from fairseq_data import binarise

import fairseq_relpos.models  # noqa: F401  registers the architectures


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return binarise(tmp_path_factory.mktemp("training"))
