"""A checkpoint of which a byte has changed is refused wherever it is read."""

import zipfile

import pytest
import torch
from fairseq import checkpoint_utils
from small_models import roberta

import fairseq_relpos.models  # noqa: F401  registers the architectures
from fairseq_relpos.checkpoints.loading import load_checkpoint


@pytest.fixture
def damaged(tmp_path):
    """One bit of a weight is another, which torch reads without a word."""
    path = tmp_path / "model.pt"
    torch.save({"model": roberta("roberta_t5").state_dict(), "args": None, "cfg": {}}, path)
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda member: member.file_size)
    content = bytearray(path.read_bytes())
    content[largest.header_offset + 1000] ^= 1
    path.write_bytes(content)
    torch.load(path, weights_only=True)
    return path


@pytest.mark.parametrize("read", (load_checkpoint, lambda path: checkpoint_utils.load_checkpoint_to_cpu(str(path))))
def test_weights_that_do_not_fit_their_checksum_are_refused(damaged, read):
    with pytest.raises(ValueError, match="model.pt is damaged .*does not fit its checksum.* copy or download"):
        read(damaged)
