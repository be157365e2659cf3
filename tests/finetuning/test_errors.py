"""Errors of the programs for fine-tuning."""

import errno

import pytest

from fairseq_relpos.atomic_files import whole_file
from fairseq_relpos.finetuning.errors import in_one_line


def test_a_full_disk_is_one_line_that_names_the_file(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(SystemExit) as end, in_one_line(), whole_file(tmp_path / "valid.npz"):
        raise full
    assert f"{tmp_path}/valid.npz cannot be written: No space left on device" in end.value.code
    with pytest.raises(SystemExit) as end, in_one_line():
        raise full
    assert end.value.code == "the disk: No space left on device: make room and run this again"
