"""A program in the preloaded Python does what it does in a Python of its own."""

import os
import signal
import subprocess
import sys

import preloaded
import pytest

#: what a program sees of how it was started
SEES = """
import os, signal, sys
print(sys.argv, sys.orig_argv[1:], __name__, sys.stdin.read(), os.getcwd(), os.environ["GIVEN"], flush=True)
print([folder for folder in sys.path if "handing_over" not in folder])
print(sorted(os.listdir("/proc/self/fd")), repr(signal.getsignal(signal.SIGHUP)), sys.stdout.encoding)
print("an error", file=sys.stderr)
"""


def both(command, folder, shell="", **more):
    """The ends of a Python of its own and of the preloaded one: (code, stdout, stderr)."""
    ends = []
    for variables in (dict(os.environ), preloaded.environment()):
        done = subprocess.run(
            ["bash", "-c", f'{shell} "$@"', "bash", sys.executable, *command],
            capture_output=True,
            text=True,
            cwd=folder,
            input="given",
            env={**variables, "GIVEN": "yes", **more},
        )
        ends.append((done.returncode, done.stdout, done.stderr))
    return ends


@pytest.mark.parametrize("words", [["-c", SEES], ["-u", "program.py"], ["-m", "program"]])
def test_it_sees_the_same(tmp_path, words):
    (tmp_path / "program.py").write_text(SEES)
    own, ours = both([*words, "--flag", "a b"], tmp_path, 'exec 9>lock; trap "" HUP;')
    assert own == ours and own[0] == 0 and "a b" in own[1] and "SIG_IGN" in own[1] and "an error\n" == own[2]


@pytest.mark.parametrize("end", ["sys.exit(7)", "sys.exit('no')", "os.kill(os.getpid(), 9)", "os.abort()", "pass"])
def test_it_ends_the_same(tmp_path, end):
    own, ours = both(["-c", f"import os, sys, atexit; atexit.register(print, 'end'); {end}"], tmp_path)
    assert own == ours


def test_finalizers_of_the_program_are_called_at_its_end(tmp_path):
    program = "import sys, weakref; weakref.finalize(sys, print, 'finalized'); print('end')"
    own, ours = both(["-c", program], tmp_path)
    assert own == ours == (0, "end\nfinalized\n", "")


def test_an_exception_has_the_same_last_line_and_a_limit_holds(tmp_path):
    own, ours = both(["-c", "open('large', 'w').write('x' * 9999)"], tmp_path, "ulimit -f 1;")
    assert own[0] == ours[0] == 1 and own[2].splitlines()[-1] == ours[2].splitlines()[-1]
    assert "File too large" in ours[2]


def test_torch_is_there_and_the_plugin_is_not(tmp_path):
    own, ours = both(["-c", "import sys; print('torch' in sys.modules, 'fairseq_relpos' in sys.modules)"], tmp_path)
    assert own[1] == "False False\n" and ours[1] == "True False\n"


@pytest.mark.parametrize("variable", ["PYTHONHASHSEED", "LC_ALL", "OMP_NUM_THREADS"])
def test_what_counts_when_python_starts_needs_a_python_of_its_own(tmp_path, variable):
    command = ["-c", "import sys; print('torch' in sys.modules)"]
    own, ours = both(command, tmp_path, **{variable: {"LC_ALL": "C"}.get(variable, "3")})
    assert own == ours == (0, "False\n", "")


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGKILL])
def test_signals_reach_it(tmp_path, sent):
    program = (
        "import os, signal, sys, time\n"
        "for number in (signal.SIGTERM, signal.SIGINT): signal.signal(number, lambda *_: sys.exit(75))\n"
        "print(os.getpid(), flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=preloaded.environment(), stdout=subprocess.PIPE, text=True
    )
    fork = int(process.stdout.readline())
    assert fork != process.pid
    process.send_signal(sent)
    # its stdout is closed when the fork has ended, too
    process.communicate(timeout=600)
    assert process.returncode == (75 if sent in (signal.SIGTERM, signal.SIGINT) else -sent)
