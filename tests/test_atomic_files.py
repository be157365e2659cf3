"""Folders that are written as a whole."""

import multiprocessing
import os
import shutil
import signal

from fairseq_relpos import atomic_files
from fairseq_relpos.atomic_files import whole_folder


def write(out, how_it_ends):
    with whole_folder(out) as part:
        (part / "model.pt").write_text("half")
        how_it_ends(out)


def kill(out):
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_run_has_left_of_a_folder_is_gone_after_the_next_run(tmp_path):
    killed = multiprocessing.get_context("fork").Process(target=write, args=(tmp_path / "out", kill))
    killed.start()
    killed.join()
    (left,) = tmp_path.iterdir()
    assert left.name.startswith("out.part")
    others = {"out.part", "out.part-of-mine", f"other{left.name[3:]}"}
    for name in others:
        (tmp_path / name).mkdir()
    write(tmp_path / "out", lambda out: None)
    assert set(os.listdir(tmp_path)) == {"out", *others} and os.listdir(tmp_path / "out") == ["model.pt"]


def test_a_run_removes_nothing_of_one_that_still_writes_the_same_folder(tmp_path):
    def another_run(out):
        mine = os.listdir(tmp_path)
        write(out, lambda out: None)
        assert set(os.listdir(tmp_path)) == {*mine, "out"}
        shutil.rmtree(out)

    write(tmp_path / "out", another_run)
    assert os.listdir(tmp_path) == ["out"]


def test_a_run_removes_nothing_of_one_that_is_about_to_lock_the_same_folder(tmp_path, monkeypatch):
    own = atomic_files.own

    def another_run_first(opened):
        monkeypatch.setattr(atomic_files, "own", own)
        write(tmp_path / "out", lambda out: None)
        shutil.rmtree(tmp_path / "out")
        own(opened)

    monkeypatch.setattr(atomic_files, "own", another_run_first)
    write(tmp_path / "out", lambda out: None)
    assert os.listdir(tmp_path) == ["out"] and os.listdir(tmp_path / "out") == ["model.pt"]


def test_what_is_left_is_locked_while_it_is_removed(tmp_path, monkeypatch):
    left = tmp_path / f"out.part{'0' * 12}"
    left.mkdir()
    locked = []

    def rmtree(path, **settings):
        if path == left:
            with atomic_files.left_over(path) as ended:
                locked.append(not ended)
        real(path, **settings)

    real = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", rmtree)
    write(tmp_path / "out", lambda out: None)
    assert locked == [True] and os.listdir(tmp_path) == ["out"]
