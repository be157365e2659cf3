"""fairseq's own tests without the plugin and with it, test by test.

    git clone --branch v0.12.2 https://github.com/facebookresearch/fairseq /some/where/fairseq-v0.12.2
    python benchmarks/fairseq_tests.py --clone /some/where/fairseq-v0.12.2 --json benchmarks/results/fairseq_tests.json
    python benchmarks/report.py         # benchmarks/results/*.json -> benchmarks/RESULTS.md

The tests are the clone's, the fairseq that they test is the installed one. With the plugin, pytest imports
fairseq_relpos.models before it reads the tests. Files with a test that differs run once more, alone, for some
tests draw random numbers and fail now and then. The exit code is 1 where a test passes without the plugin alone.
"""

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from collections import defaultdict
from pathlib import Path

from machine import add_result, save
from tqdm import tqdm

import fairseq_relpos

#: files of which one pytest runs so many tests
LONG, AT_ONCE = ("test_binaries.py",), 8
WAYS = {"without": [], "with": ["-p", "fairseq_relpos.models"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clone", type=Path, required=True, help="a clone of fairseq, outside this repository")
    parser.add_argument("--only", help="of these files or tests: a regular expression")
    parser.add_argument("--seconds", type=float, default=900, help="for one pytest")
    add_result(parser)
    args = parser.parse_args()
    if not (args.clone / "tests").is_dir():
        sys.exit(f"fairseq_tests.py: error: {args.clone} has no folder tests: give a clone of fairseq")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        # without its folder fairseq, which would be imported in place of the installed one
        for name in ("tests", "scripts", "examples"):
            shutil.copytree(args.clone / name, folder / name, symlinks=True)
        outcomes = compare(folder, args)
    alike = defaultdict(list)
    for test, found in sorted(outcomes.items()):
        alike[found["without"], found["with"]].append(test)
    rows = [
        {"without": without, "with": with_, "number": len(tests), "tests": tests if without != with_ else []}
        for (without, with_), tests in sorted(alike.items())
    ]
    settings = {"clone": args.clone.name, **{key: vars(args)[key] for key in ("only", "note") if vars(args)[key]}}
    save("fairseq_tests", args, rows, settings=settings)
    return 1 if any(row["without"] == "passed" for row in rows if row["tests"]) else 0


def compare(folder, args):
    """{test: {"without": outcome, "with": outcome}}"""
    wanted = [piece for piece in pieces_of(folder) if re.search(args.only or "", " ".join(piece))]
    outcomes, files = {}, {}
    for piece in tqdm(wanted, unit="piece"):
        found = {way: run(folder, piece, way, args.seconds) for way in WAYS}
        for test in found["without"].keys() | found["with"].keys():
            outcomes[test] = {way: found[way].get(test, "not run") for way in WAYS}
            files[test] = argument_of(test, piece)
        passed = [sum(outcome == "passed" for outcome in found[way].values()) for way in WAYS]
        tqdm.write(f"{piece[0]} ...: {passed[0]} pass without the plugin, {passed[1]} with it")
    differing = [test for test, found in outcomes.items() if found["without"] != found["with"]]
    for file in tqdm(sorted({files[test] for test in differing}), desc="once more", unit="file"):
        again = {way: run(folder, [file], way, args.seconds) for way in WAYS}
        for test in differing:
            for way in WAYS if files[test] == file else ():
                second = again[way].get(test, "not run")
                # one that passes now and fails then does so by chance, with and without the plugin
                outcomes[test][way] = "passed" if "passed" in (second, outcomes[test][way]) else second
    return outcomes


def pieces_of(folder):
    """The arguments of each pytest: the files of a folder, or some tests of a long file."""
    pieces = defaultdict(list)
    for path in sorted(folder.glob("tests/**/test_*.py")):
        file = str(path.relative_to(folder))
        if path.name in LONG:
            tests = list(tests_in(path))
            for first in range(0, len(tests), AT_ONCE):
                pieces[file, first] = [f"{file}::{test}" for test in tests[first : first + AT_ONCE]]
        else:
            pieces[path.parent].append(file)
    return list(pieces.values())


def tests_in(path):
    for node in ast.parse(path.read_text()).body:
        for member in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(member, ast.FunctionDef) and member.name.startswith("test"):
                yield f"{node.name}::{member.name}"


def argument_of(test, piece):
    """Which of them runs this test."""
    name = test.strip(".").replace(".", "/") + "/"
    return next((part for part in piece if name.startswith(part.replace(".py", "").replace("::", "/") + "/")), piece[0])


def run(folder, piece, way, seconds):
    """{test: its outcome}. Where a piece takes too long or crashes, each part of it runs alone."""
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "--continue-on-collection-errors", *WAYS[way]]
    command += [*piece, f"--junitxml={report}"]
    package = str(Path(fairseq_relpos.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": package, "OMP_NUM_THREADS": "1"}
    why = None
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        why = None if report.exists() else f"ended with exit code {done.returncode}"
    except subprocess.TimeoutExpired:
        why = f"not done after {seconds:g} s"
    if why and len(piece) > 1:
        return {test: found for file in piece for test, found in run(folder, [file], way, seconds).items()}
    if why:
        return {piece[0]: why}
    return {f"{case.get('classname')}.{case.get('name')}": outcome(case) for case in xml.parse(report).iter("testcase")}


def outcome(case):
    found = {child.tag for child in case}
    for tag, word in (("error", "failed"), ("failure", "failed"), ("skipped", "skipped")):
        if tag in found:
            return word
    return "passed"


if __name__ == "__main__":
    sys.exit(main())
