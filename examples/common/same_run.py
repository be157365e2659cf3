"""Whether a training is the same run as before and may resume, and the training itself.

    same_run.py show COMMAND...                prints it for a shell
    same_run.py run WHAT RUN N START... COMMAND...    trains or resumes, unless the run is finished; another run than
                                               before is refused. The N words of START make the checkpoint that a new
                                               training begins with
    same_run.py check RUN COMMAND...           refuses another run than before
    same_run.py diverged RUN COMMAND...        exit code 0: the last training was this one, and has diverged
    same_run.py finetune WHAT RUN START... -- COMMAND... -- PREDICT...    the same for a fine-tuning: what START prints
                                               replaces $flags of COMMAND; PREDICT writes RUN/results.json
    same_run.py pack RUNS FOLDER               packs the inputs of a report into FOLDER/runs.tar.xz, to repeat or extend
                                               it: tar -xJf FOLDER/runs.tar.xz -C RUNS

COMMAND has --save-dir, the run with the checkpoints. PLACE is this folder, or on other nodes than the first a folder in
it, because they would wait for the lock of the first and overwrite its files. It stores of a training:

    command, trained       the last that was begun and the last that has ended, their words in single quotes
    diverged               the same, if the last has ended with numbers that are not finite (exit code 76)
    conditions             what it depends on and its command does not say: CONDITIONS of the environment
    commit.txt, output.txt of the code, and what it has printed
    machine.txt            the processor, and the versions of Python and of the packages that matter; a line for each
                           machine that has trained it
"""

import contextlib
import difflib
import io
import json
import os
import platform
import re
import runpy
import shlex
import subprocess
import sys
import tarfile
import traceback
from pathlib import Path

from messages import fail, in_one_line, say, script
from stopping import DIVERGED, STOPPED, locked, on_a_signal, stoppable

from fairseq_relpos.atomic_files import whole_file, write_text
from fairseq_relpos.reports import machine, run_settings

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = 110
#: flags of where a run lies, and of where it began
OF_A_PLACE = "save-dir|log-file|distributed-world-size|finetune-from-model"


def in_words(command):
    """As it is kept with a run, the same wherever the repository lies."""
    return " ".join("'" + word.replace(str(ROOT), ".").replace("'", "'\\''") + "'" for word in command)


def flags_of(text, left_out):
    """Splits a command: the words before the flags, then each flag with its values, without those ``left_out``."""
    groups = [[]]
    for word in shlex.split(text):
        if word.startswith("--"):
            groups.append([])
        groups[-1].append(word)
    left_out = re.compile(f"--({left_out})(=.*)?", re.DOTALL)
    return [group for group in groups if not (group and left_out.fullmatch(group[0]))]


def in_order(flags):
    """The order of flags does not matter, except that of a repeated one: the last counts."""
    return sorted(flags, key=lambda flag: flag[0].split("=")[0] if flag else "")


def settings_of(text):
    """The flags after --user-dir that make another model or another training, a line each."""
    flags = flags_of(text, run_settings.NO_SETTING)
    start = next((number for number, flag in enumerate(flags) if flag[:1] == ["--user-dir"]), len(flags) - 1)
    return [" ".join(f"'{word}'" for word in flag) for flag in in_order(flags[start + 1 :])]


def to_compare(command, conditions):
    """Settings that a resume may not change, a line each. The batch is the command's unless the conditions have it."""
    lines = settings_of(command) + conditions.splitlines()
    if not any(line.startswith("batch ") for line in lines):
        lines.append(f"batch {run_settings.batch_of(run_settings.flags_of(command))}")
    return lines


def environment():
    """That of a training. It concerns speed alone, so it is no condition of a run."""
    if os.environ.get("ALLOCATOR") != "tuned":
        return None
    library, version = platform.libc_ver()
    if library == "glibc" and tuple(map(int, version.split("."))) < (2, 35):  # which refuses a part of it
        print(
            f"same_run: ALLOCATOR=tuned needs glibc 2.35, this is {version}: the allocator stays as it is",
            file=sys.stderr,
        )
        return None
    lines = Path(__file__).with_name("allocator.env").read_text(encoding="utf-8").splitlines()
    return {**dict(line.split("=") for line in lines if not line.startswith("#")), **os.environ}


def place_of_node(run):
    launch = os.environ.get("LAUNCH", "")
    if number := re.search(r"--node[-_]rank[= ]+0*([1-9][0-9]*)", launch):
        return Path(run, f"node{number[1]}")
    if "--rdzv" in launch:  # torchrun counts the nodes itself
        return Path(run, platform.node())
    return Path(run)


def read(*paths):
    """The first that there is."""
    return next((path.read_text(encoding="utf-8").strip("\n") for path in paths if path.exists()), None)


class SameRun:
    def __init__(self, place, command):
        self.place, self.command = Path(place), command
        saves = [value for flag, value in zip(command, command[1:]) if flag == "--save-dir"]
        self.run = Path(saves[0]) if saves else self.place
        self.words = in_words(command)
        self.conditions = os.environ.get("CONDITIONS", "").strip("\n")

    def conditions_before(self):
        """Those of a run from before they were kept cannot be compared."""
        kept = read(self.place / "conditions", self.run / "conditions")
        return self.conditions if kept is None else kept

    def is_trained(self, mark="trained"):
        """Wherever the run lies."""
        words = read(self.place / mark)
        if (
            words is None
            or in_order(flags_of(words, OF_A_PLACE)) != in_order(flags_of(self.words, OF_A_PLACE))
            or self.conditions_before() != self.conditions
        ):
            return False
        begun = read(self.place / "command") or words
        if mark == "trained" and run_settings.end_of(begun) != run_settings.end_of(words):
            longer = f"--max-update {run_settings.end_of(begun)}"
            fail(f"{self.run} was trained, resumed with {longer} and stopped: give {longer} to resume it")
        return True

    def need_same_settings(self):
        """With others fairseq would resume all the same, and the report would tell of a training that there was not."""
        before = read(self.place / "command", self.place / "trained", self.run / "command")
        begun = (self.place / "trained").exists() or any(self.run.glob("checkpoint*.pt"))
        if before is None or not begun:
            return
        was, now = to_compare(before, self.conditions_before()), to_compare(self.words, self.conditions)
        changed = []
        for kind, first, last, start, end in difflib.SequenceMatcher(None, was, now, autojunk=False).get_opcodes():
            if kind != "equal":
                changed += [f"was {line}" for line in was[first:last]] + [f"is {line}" for line in now[start:end]]
        if changed:
            remedy = "set RUNS to another folder, or remove this one"
            fail(f"{self.run} was begun with other settings ({' '.join(changed)}): {remedy}")

    def train(self):
        self.need_same_settings()
        self.place.mkdir(parents=True, exist_ok=True)
        before, saved = read(self.place / "command"), self.saved()
        self.keep("command", self.words)
        (self.place / "diverged").unlink(missing_ok=True)
        if self.conditions:
            self.keep("conditions", self.conditions)
        describe = "git describe --always --dirty 2>/dev/null || echo unknown"
        self.keep("commit.txt", subprocess.check_output(describe, shell=True, cwd=ROOT, text=True).strip())
        machines = (read(self.place / "machine.txt") or "").splitlines()
        self.keep("machine.txt", "\n".join(dict.fromkeys([*machines, machine.describe()])))
        output = self.place / "output.txt"
        try:
            with open(output, "ab") as file:  # a resume keeps what the starts before it have printed
                begin = file.tell()
                code = stoppable(self.command, os.kill, stdout=file, stderr=subprocess.STDOUT, env=environment())
        except OSError as error:
            fail(f"{error.filename or self.command[0]}: {error.strerror}")
        lines = output.read_bytes()[begin:].decode("utf-8", "replace").splitlines()
        if code == STOPPED:
            sys.exit(STOPPED)
        message = f"{lines[-1] if lines else f'exit code {code}'} (all of it in {output})"
        if code == DIVERGED:
            self.keep("diverged", self.words)
            print(f"{script()}: error: {message}", file=sys.stderr)
            sys.exit(DIVERGED)
        if code != 0:
            if before is not None and self.saved() == saved:  # it has not begun
                self.keep("command", before)
            fail(message)
        self.keep("trained", self.words)  # only now: it says that all updates are done
        if "--rdzv" in os.environ.get("LAUNCH", ""):  # no node is the first, so each keeps the files with the run
            for name in ("command", "conditions", "commit.txt", "machine.txt", "trained"):
                if (text := read(self.place / name)) is not None:
                    write_text(self.run / name, f"{text}\n")

    def saved(self):
        """When the last checkpoint was written."""
        last = self.run / "checkpoint_last.pt"
        return last.stat().st_mtime_ns if last.exists() else None

    def keep(self, name, text):
        write_text(self.place / name, f"{text}\n")


def run(what, folder, count, *words):
    """Trains, unless the run is finished."""
    warm_start, command = list(words[: int(count)]), list(words[int(count) :])
    place = place_of_node(folder)
    with locked(place):
        training = SameRun(place, command)
        if training.is_trained():
            return say(f"{folder} is trained")
        if warm_start and not Path(folder, "checkpoint_last.pt").exists():
            logged(Path(folder, "start.txt"), warm_start)
        say(f"training {what}: {folder}/train.log")
        training.train()


def check(folder, *command):
    """Refuses another run than before."""
    SameRun(folder, list(command)).need_same_settings()


def diverged(run, *command):
    sys.exit(not SameRun(run, list(command)).is_trained("diverged"))


def logged(log, command):
    """Runs a command. Its output goes to the log, whose last line has the error."""
    with open(log, "w") as file:
        code = subprocess.call(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
    end_with(code, log)


def end_with(code, log):
    """Ends the program with the last line of the log, unless the code is 0."""
    if code:
        lines = Path(log).read_text(encoding="utf-8", errors="replace").splitlines()
        print(f"{script()}: error: {lines[-1] if lines else code} (all of it in {log})", file=sys.stderr)
        sys.exit(DIVERGED if code == DIVERGED else 1)


def finetune(what, run, *words):
    """Fine-tunes and scores. START and PREDICT run in this process, which saves two starts of torch and fairseq."""
    text = "\0".join(words).split("\0--\0")
    start, command, predict = (part.split("\0") for part in text)
    run = Path(run)
    run.mkdir(parents=True, exist_ok=True)
    at = command.index("$flags")
    command[at : at + 1] = run_module(start, run / "start.log").split()
    with locked(run):
        training = SameRun(run, command)
        if training.is_trained():
            say(f"{run} is trained")
        else:
            say(f"training {what}: {run}/train.log")
            training.train()
            on_a_signal(lambda: os._exit(STOPPED))  # there is no training to pass it on to
    results, best = run / "results.json", run / "checkpoint_best.pt"
    if not results.exists() or best.exists() and results.stat().st_mtime <= best.stat().st_mtime:
        run_module(predict, run / "predict.log")


def run_module(words, log):
    """Runs `python -m MODULE ARGUMENTS` in this process. Returns what it prints; its errors go to the log."""
    printed, error, code = io.StringIO(), os.dup(2), 0
    with open(log, "w") as file, contextlib.redirect_stdout(printed):
        os.dup2(file.fileno(), 2)
        sys.argv = words[2:]
        try:
            runpy.run_module(words[2], run_name="__main__", alter_sys=True)
        except SystemExit as end:
            code = end.code
            if isinstance(code, str):
                print(code, file=sys.stderr)
        except Exception:
            traceback.print_exc()
            code = 1
        finally:
            sys.stderr.flush()
            os.dup2(error, 2)
            os.close(error)
    end_with(code, log)
    return printed.getvalue()


def show(*command):
    """With lines that a shell takes for one. Paths in the repository begin where this is run."""
    here = f"{ROOT}/" if Path.cwd() == ROOT else None
    for flag, value in zip(command, command[1:]):
        if flag == "--log-file":
            print(f"mkdir -p {shlex.quote(os.path.dirname(value))}")  # which fairseq-train does not make
    lines = [""]
    for flag in flags_of(" ".join(map(shlex.quote, command)), "(?!)"):
        text = " ".join(shlex.quote(word.replace(here, "") if here else word) for word in flag)
        if lines[-1] and len(lines[-1]) + len(text) > COLUMNS:
            lines.append(" ")
        lines[-1] += f" {text}" if lines[-1] else text
    print(" \\\n".join(lines))


NOT_PACKED = (
    *("*.pt", "lock", "output.txt", "errors.txt", "*.errors"),  # weights and output
    # texts of a test set, which we may not have the right to distribute, and answers, which no report reads
    *("*.generate.txt", "valid.penalty*", "predictions.*", "*.predictions.*"),
    *("*.part*", "runs.tar.xz"),  # what is being written, and what an earlier report has packed
    *("RESULTS.md", "*.png"),  # or written
)


def to_pack(path):
    """Whether a report reads this file. A results.json of a run has its metrics, that of a report has none."""
    if path.name == "results.json" and "metrics" not in json.loads(path.read_text(encoding="utf-8")):
        return False
    return path.is_file() and not any(map(path.match, NOT_PACKED))


def pack(runs, folder):
    """Packs what a report was made of beside it, without the path of this repository."""
    runs, folder = Path(runs), Path(folder)
    if runs.resolve() == folder.resolve():
        return
    files = [path for path in sorted(runs.rglob("*")) if to_pack(path)]
    with whole_file(folder / "runs.tar.xz") as part, tarfile.open(part, "w:xz", format=tarfile.GNU_FORMAT) as packed:
        for path in files:
            content = path.read_bytes().replace(str(ROOT).encode(), b".")
            member = tarfile.TarInfo(f"./{path.relative_to(runs)}")
            member.size, member.mtime, member.mode = len(content), int(path.stat().st_mtime), 0o644
            packed.addfile(member, io.BytesIO(content))


if __name__ == "__main__":
    action, *arguments = sys.argv[1:]
    with in_one_line("." if action == "show" else arguments[1]):
        {f.__name__: f for f in (show, run, check, diverged, finetune, pack)}[action](*arguments)
