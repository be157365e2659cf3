"""Errors of the programs for fine-tuning."""

import errno
import os
from pathlib import Path

import pytest

from fairseq_relpos.atomic_files import whole_file
from fairseq_relpos.criterions.metrics import need_finite
from fairseq_relpos.finetuning.errors import in_one_line


def test_a_full_disk_is_one_line_that_names_the_file(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(SystemExit) as end, in_one_line(), whole_file(tmp_path / "valid.npz"):
        raise full
    assert f"{tmp_path}/valid.npz cannot be written: No space left on device" in end.value.code
    with pytest.raises(SystemExit) as end, in_one_line():
        raise full
    assert end.value.code == "the disk: No space left on device: make room and run this again"


def test_a_run_that_has_diverged_ends_with_a_code_of_its_own(capsys):
    with pytest.raises(SystemExit) as end, in_one_line():
        need_finite([1.0, float("nan")])
    assert end.value.code == 76 and "the run has diverged" in capsys.readouterr().err


def test_what_cannot_be_written_is_called_as_the_user_called_it(tmp_path):
    with pytest.raises(FileNotFoundError, match="'.*/./none/a.json'$"), whole_file(f"{tmp_path}/./none/a.json") as part:
        Path(part).write_text("")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):  # root could replace what is no file
        with pytest.raises(OSError, match=f"it is a folder or a device: give the name of a file: '.*/{name}'"):
            with whole_file(tmp_path / name) as part:
                open(part, "w").close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]
