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


def test_a_running_process_is_waited_for(tmp_path):
    started = time.monotonic()
    trainer = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1.5)"])
    threading.Thread(target=trainer.wait).start()  # an ended child exists until it is waited for
    watch.run(Namespace(runs=[tmp_path], until_exit=[trainer.pid]))
    assert time.monotonic() - started > 1.4
