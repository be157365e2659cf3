import subprocess
import sys
import threading
import time
from argparse import Namespace

from training_logs import inner, log_of, valid

from fairseq_relpos.reports import watch


def test_it_ends_with_the_processes_and_shows_what_they_wrote_last(tmp_path, capsys):
    log_of(tmp_path / "a", inner(10, 2), valid(10, 1))
    trainer = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    trainer.terminate()
    trainer.wait()
    watch.run(Namespace(runs=[tmp_path / "a", tmp_path / "not_begun"], until_exit=[trainer.pid]))
    assert capsys.readouterr().out.split() == "a 10 of 40 updates, loss 1.39, valid 0.69 nats".split()


def test_a_running_process_is_waited_for_and_its_last_losses_are_shown(tmp_path, capsys):
    log_of(tmp_path / "a", inner(10, 2))
    started = time.monotonic()
    trainer = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1.5)"])

    def write_and_end():
        time.sleep(1)
        log_of(tmp_path / "a", inner(20, 1))
        trainer.wait()  # an ended child exists until then

    threading.Thread(target=write_and_end).start()
    watch.run(Namespace(runs=[tmp_path / "a"], until_exit=[trainer.pid]))
    assert time.monotonic() - started > 1.4
    shown = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["10", "20"]


def test_the_time_left_follows_from_the_pace_of_training_alone(monkeypatch, tmp_path, capsys):
    now = [100.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: now[0])
    lines = watch.Lines()
    # of 40: 10 are from an earlier start, and the next 5 took Python's start, too
    for seconds, updates in ((0, 10), (100, 15), (160, 20), (240, 39)):
        now[0] = 100.0 + seconds
        log_of(tmp_path / "a", inner(updates, 2))
        lines.update(0, watch.read_if_begun(tmp_path / "a"))
        lines.flush(ended=False)
    lines.flush(ended=True)
    first, second, third, fourth, last = capsys.readouterr().out.splitlines()
    assert "left" not in first + second + last
    assert third.endswith(", about 4 min left") and fourth.endswith(", about 6 s left")
