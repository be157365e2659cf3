import subprocess
import sys
from types import SimpleNamespace

from training_logs import inner, log_of, valid

from fairseq_relpos.reports import watch


def test_it_ends_with_the_processes_and_shows_what_they_wrote_last(tmp_path, capsys):
    log_of(tmp_path / "a", inner(10, 2), valid(10, 1))
    trainer = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    trainer.terminate()
    trainer.wait()
    watch.run([tmp_path / "a", tmp_path / "not_begun"], [trainer.pid])
    assert capsys.readouterr().out.split() == "a 10 of 40 updates, training loss 1.39, valid 0.69 nats".split()


def test_a_running_process_is_waited_for_and_its_last_losses_are_shown(tmp_path, capsys, monkeypatch):
    log_of(tmp_path / "a", inner(10, 2))
    trainer, waits = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE), []

    def sleep(seconds):
        """While it waits for the third time, the training goes on and ends."""
        waits.append(seconds)
        if len(waits) == 3:
            log_of(tmp_path / "a", inner(20, 1))
            trainer.communicate(b"\n")  # an ended child exists until then

    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: 99 + sum(waits), sleep=sleep))
    watch.run([tmp_path / "a"], [trainer.pid])
    assert waits == [watch.POLL_SECONDS] * 3
    shown = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["10", "20"]


def test_validation_losses_are_without_label_smoothing(tmp_path):
    log_of(tmp_path / "a", inner(10, 4), valid(10, 3) | {"valid_nll_loss": "2"})
    assert watch.progress(watch.read_if_begun(tmp_path / "a")).endswith("valid 1.39 nats")


def test_the_time_left_follows_from_the_pace_of_the_last_updates(tmp_path):
    def left(updates, pace):
        log = log_of(tmp_path / f"{updates}-{pace}", inner(updates, 2) | {"ups": str(pace)})
        return watch.time_left(watch.read_if_begun(log))

    assert left(10, 0.5) == ", about 60 s left" and left(10, 0.125) == ", about 4 min left"
    assert left(40, 0.5) == left(10, 0) == ""
