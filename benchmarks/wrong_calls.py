"""Hundreds of wrong calls and damaged files: each has to end in one line, and leave nothing behind.

    python benchmarks/wrong_calls.py --calls 300 --json benchmarks/results/wrong_calls.json
    python benchmarks/wrong_calls.py --only 17          # one of them again, and what it prints
    python benchmarks/report.py         # benchmarks/results/*.json -> benchmarks/RESULTS.md

A tiny corpus, data and trained models are made; then every command is called with something wrong
(wrong_call_kinds.py), in a folder of its own and a forked process, which has imported all there is.
A call is a finding if it prints a traceback, if its last line says no error, or too many lines, if
it runs code of a file, leaves a file behind, does not end, or succeeds. It may succeed on a damaged
file only with the result of the whole one, or where nothing in the file can show the damage: other
words in a text, other numbers of words of the vocabulary in a .bin.
"""

import argparse
import collections
import contextlib
import hashlib
import importlib.util
import logging
import os
import random
import re
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch; it has to be forked, too

# not by names such as validate, for which the plugin looks in __main__
import fairseq_cli.eval_lm
import fairseq_cli.generate
import fairseq_cli.interactive
import fairseq_cli.preprocess
import fairseq_cli.train
import fairseq_cli.validate
import numpy as np
import torch
from result_file import add_result, save
from wrong_call_kinds import BASES, KINDS, PREPARATION, Call

from fairseq_relpos import cli, mends, register

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests/fixtures/golden"
SECONDS = 60
#: lines of standard error that a reader sees at once
FEW_LINES = 6
#: an address space, so that a number with too many digits ends in an error and not in swapping
MEMORY = 12 << 30


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="these calls alone, and what they print")
    add_result(parser)
    args = parser.parse_args()
    import_all()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        rows = []
        for number, call, done, finding in judged(args.only or range(args.calls), args.seed, Path(folder)):
            about = {"call": number, "kind": call.kind, "base": call.base, "what": call.what, "finding": finding}
            rows.append({**about, **done.shown()})
            if finding or args.only:
                print(
                    f"{number} [{call.kind}] {call.base}: {call.what}\n    {finding or 'fine'}\n"
                    f"    {rows[-1]['command']}\n    exit code {done.code}: {done.last_line()}",
                    flush=True,
                )
            if args.only:
                print(done.printed, done.errors, sep="\n")
    rows.sort(key=lambda row: row["call"])
    kinds = summary(rows)
    findings = [row for row in rows if row["finding"]]
    print(
        f"{len(rows)} calls, {len(findings)} findings; "
        f"again: python benchmarks/wrong_calls.py --seed {args.seed} --only N"
    )
    save("wrong_calls", args, kinds, settings={"calls": len(rows), "seed": args.seed}, findings=findings)
    return 1 if findings else 0


def judged(numbers, seed, folder, try_all_without=True):
    """(number, call, Done, what is wrong about it) of the calls of these numbers. try_all_without: see first that
    each command succeeds with nothing wrong, and not only those of which the result is compared."""
    register()
    mends.apply()  # once more, for what fairseq's commands have imported since
    whole = prepare(folder)
    calls = [(number, wrong_call(seed, number)) for number in numbers]
    bases = {call.base for _, call in calls if try_all_without or call.damaged}
    expected = whole_outcomes(bases, whole, folder)
    for number, call, done in run_in_copies(calls, whole, folder):
        yield number, call, done, judge(call, done, expected)


def wrong_call(seed, number) -> Call:
    chance = random.Random(f"{seed} {number}")
    return KINDS[number % len(KINDS)](chance)


def summary(rows):
    kinds = collections.defaultdict(list)
    for row in rows:
        kinds[row["kind"]].append(row)
    found = []
    for kind, of_kind in kinds.items():
        fine = [row["code"] for row in of_kind if not row["finding"]]
        findings = len(of_kind) - len(fine)
        counts = {"calls": len(of_kind), "refused": len(fine) - fine.count(0), "no_harm": fine.count(0)}
        found.append({"kind": kind, **counts, "findings": findings})
    return found


# what is called


def import_all():
    """Imports what the calls would import one by one."""
    logging.root.handlers[:] = [logging.NullHandler()]  # fairseq has set it to DEBUG
    import matplotlib
    import tensorboard  # noqa: F401

    matplotlib.use("agg")
    for module, _ in cli.COMMANDS.values():
        importlib.import_module(module)


def average_checkpoints():
    spec = importlib.util.spec_from_file_location("average", ROOT / "scripts/average_checkpoints.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main()


COMMANDS = {
    **{
        f"fairseq-{name.replace('_', '-')}": getattr(fairseq_cli, name).cli_main
        for name in ("train", "validate", "generate", "interactive", "preprocess", "eval_lm")
    },
    "fairseq-relpos": cli.main,
    "average_checkpoints.py": average_checkpoints,
}


def prepare(folder):
    """A folder with texts, data, and models that were trained for some updates."""
    whole = folder / "whole"
    shutil.rmtree(whole, ignore_errors=True)
    for name in ("text", "run"):
        (whole / name).mkdir(parents=True)
    chance = random.Random(1)
    words = [f"w{i}" for i in range(40)]
    (whole / "text/dict.txt").write_text("".join(f"{word} 1\n" for word in words))
    for split, count in (("train", 64), ("valid", 16), ("test", 12)):
        lines = [chance.choices(words, k=chance.randint(3, 14)) for _ in range(count)]
        (whole / f"text/{split}.a").write_text("".join(f"{' '.join(line)}\n" for line in lines))
        (whole / f"text/{split}.b").write_text("".join(f"{' '.join(line[::-1])}\n" for line in lines))
    for call in PREPARATION:
        succeed(call, run(call, whole))
    for name, source in (
        ("lm.pt", "run/checkpoint_last.pt"),
        ("lm2.pt", "run/checkpoint_1_2.pt"),
        ("mt.pt", "mt_run/checkpoint_last.pt"),
        ("clm.pt", "clm_run/checkpoint_last.pt"),
    ):
        shutil.copy(whole / source, whole / name)
    for name in ("mt_run", "clm_run"):
        shutil.rmtree(whole / name)
    shutil.copy(GOLDEN / "tupe_r/checkpoint.pt", whole / "tupe.pt")
    shutil.copy(GOLDEN / "tupe_dict.txt", whole / "tupe_dict.txt")
    return whole


def whole_outcomes(names, whole, folder):
    """Each of these commands with nothing wrong has to succeed: what comes out."""
    calls = [(base.base, base) for base in BASES if base.base in names]
    return {name: succeed(call, done).outcome for name, call, done in run_in_copies(calls, whole, folder)}


def succeed(call, done):
    if done.code:
        sys.exit(f"wrong_calls.py: error: {call.base} has to succeed: {done.printed}{done.errors}")
    return done


# running


def run_in_copies(calls, whole, folder):
    """(number, call, Done) of each, in a copy of the folder ``whole`` that is removed afterwards."""
    for number, call in calls:
        place = folder / f"call_{number}"
        shutil.copytree(whole, place)
        yield number, call, run(call, place)
        shutil.rmtree(place)


def run(call, folder):
    """Runs the call in a forked process. Its data loaders end with it."""
    if call.change:
        call.change(folder)
    before, output, started = contents(folder), folder.with_name("output"), time.monotonic()
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        os._exit(child(call, folder, output))
    code = None
    while code is None and time.monotonic() < started + SECONDS:
        time.sleep(0.01)
        ended, status = os.waitpid(process, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status) if ended else None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    if code is None:
        os.waitpid(process, 0)
    return Done(call, folder, output, before, code)


def child(call, folder, output):
    os.setsid()
    os.chdir(folder)
    for number, end in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(output.with_suffix(end), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", closefd=False)
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)
    logging.root.handlers[:] = []
    logging.basicConfig(stream=sys.stdout, level="INFO")
    os.environ.update(HOME=str(folder), CUDA_VISIBLE_DEVICES="")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    if call.room is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit_the_files(call.room)
    sys.argv = [call.command, *call.arguments]
    try:
        return COMMANDS[call.command]() or 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def limit_the_files(room):
    """Limits the size of files, but not of the output, which a full disk does not limit: it goes through a pipe."""
    for number in (1, 2):
        read, write = os.pipe()
        target = os.dup(number)
        if os.fork() == 0:
            os.close(write)
            while content := os.read(read, 1 << 16):
                os.write(target, content)
            os._exit(0)
        os.dup2(write, number)
        os.close(write)
        os.close(read)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))


class Done:
    """The end of a call: exit code, output and files."""

    def __init__(self, call, folder, output, before, code):
        self.call, self.folder, self.code = call, folder, code
        self.printed, self.errors = (output.with_suffix(end).read_text(errors="replace") for end in (".out", ".err"))
        after = contents(self.folder)
        self.canary = "canary" in after
        self.new = sorted(after.keys() - before.keys())
        self.changed = sorted(name for name in before if after.get(name) != before[name])
        written = {name: after[name] for name in (*self.new, *self.changed) if name in after}
        self.outcome = (shown_results(self.call, self.printed), results(self.folder, written))

    def last_line(self):
        return next((line for line in reversed(self.errors.splitlines()) if line.strip()), "")

    def shown(self):
        command = shlex.join([self.call.command, *self.call.arguments])
        return {"command": command.replace(str(ROOT) + "/", ""), "code": self.code, "last_line": self.last_line()[:500]}


def contents(folder):
    """Path -> digest of every file."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


#: what a run shows that is not the same each time
LOG = re.compile(r"(^|/)(preprocess\.log|__pycache__/.*|\.cache/.*|\.config/.*|events\.out.*)$")
RESULT = re.compile(r"^[HDT]-\d+\t.*|BLEU.*|Loss \(base 2\): [\d.]+|\b(?:nll_)?loss [\d.]+", re.M)


def shown_results(call, printed):
    return printed if call.command == "fairseq-relpos" else RESULT.findall(printed)


def results(folder, written):
    """Path -> digest; of a checkpoint those of its weights, since it has the time in it."""
    found = {}
    for name, digest in written.items():
        if name.endswith(".pt") and zipfile.is_zipfile(folder / name):
            weights = torch.load(folder / name, map_location="cpu", weights_only=False)["model"]
            digest = {key: hashlib.sha256(value.numpy().tobytes()).hexdigest() for key, value in weights.items()}
        if not LOG.search(name):
            found[name] = digest
    return found


# judging

HALF = re.compile(r"\.tmp|\.part|crash\.pt|\.whole$|\.lock$")


def judge(call, done, expected):
    """Says what is wrong about the end of the call; "" if nothing."""
    problems = []
    if done.canary:
        problems.append("RAN CODE OF A FILE")
    if done.code is None:
        problems.append(f"no end in {SECONDS} s")
    elif done.code < 0:
        problems.append(f"ended by signal {-done.code}")
    elif done.code == 0:
        problems += unseen(call, done, expected)
    if "Traceback (most recent call last)" in done.printed + done.errors:
        problems.append("traceback")
    elif done.code:
        lines = [line for line in done.errors.splitlines() if line.strip()]
        if "error" not in done.last_line().lower():
            problems.append("the last line says no error")
        if len(lines) > FEW_LINES:
            problems.append(f"{len(lines)} lines of errors")
    half = [name for name in done.new if HALF.search(name)]
    if done.code != 0:
        half += [name for name in done.new if name not in half and not LOG.search(name)]
        half += list(done.changed)
    if half:
        problems.append(f"left behind: {' '.join(half[:4])}")
    return "; ".join(problems)


def unseen(call, done, expected):
    """Why a success is no good."""
    if not call.damaged:
        return ["success"]
    if done.outcome == expected[call.base] or cannot_be_seen(done.folder, call.damaged):
        return []
    return ["success with another result"]


def cannot_be_seen(folder, name):
    """A text and token numbers have nothing that would show other words and numbers."""
    path = folder / name
    if path.suffix == ".bin":
        whole = (folder.parent / "whole" / name).read_bytes()
        tokens = np.frombuffer(path.read_bytes(), np.uint16) if len(whole) % 2 == 0 == path.stat().st_size % 2 else []
        words = 41 if name.startswith("lm") else 40
        return len(path.read_bytes()) == len(whole) and max(tokens) < words + 4
    if path.suffix in (".pt", ".idx"):
        return False
    try:
        path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return path.suffix == ".log"
    return True


if __name__ == "__main__":
    sys.exit(main())
