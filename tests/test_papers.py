"""docs/papers.md has every table and figure of the papers; its commands can be started, and its numbers are ours."""

import argparse
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from checkouts import shell

from fairseq_relpos import cli
from fairseq_relpos.cli import params
from fairseq_relpos.encodings import ENCODINGS, hyperparameters
from fairseq_relpos.finetuning import classification_data, glue

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/papers.md"
#: what the papers have
WANTED = [
    *(f"{paper} {kind} {number}" for paper, kind, last in (
        ("TUPE", "Table", 4), ("TUPE", "Figure", 6), ("Huang", "Table", 5), ("Huang", "Figure", 5), ("M4M", "Table", 7),
        ("AT5", "Table", 6), ("AT5", "Figure", 5), ("Qu", "Table", 7), ("Qu", "Figure", 6),
    ) for number in range(1, last + 1)),
    "TUPE Appendix A", "TUPE Appendix D", "M4M Appendix B", "AT5 Appendix",
]  # fmt: skip
#: in front of the commands of the page: what they start is noted instead, with what the environment says
NOTING = r"""
note() { printf '%s\0' $(($# + 6)) "${SETTINGS-}" "${MACHINE-}" "${START_FROM-}" "${LAUNCH-}" "${FOLD-}" "${GPUS-}" \
  "$@" >&9; }
bash() { note bash "$@"; }
python() { note python "$@"; }
fairseq-relpos() { note fairseq-relpos "$@"; }
"""
NAMES = ("SETTINGS", "MACHINE", "START_FROM", "LAUNCH", "FOLD", "GPUS")
SETTINGS_THAT_STAY = "export -p | grep -E ' (SETTINGS|DATA|RUNS|SEED|FOLD|GPUS|MACHINE|LAUNCH)=' >&2"
TASKS_OF = {"glue": glue.TASKS, "text_classification": classification_data.TASKS}


@pytest.fixture(scope="module")
def papers(script_module):
    return script_module("papers")


@pytest.fixture(scope="module")
def index(papers):
    """name -> entry"""
    return {f"{p.name} {what}": values for p in papers.read()[1] for what, values in p.entries.items()}


def test_every_table_and_figure_is_there_and_the_contents_lead_to_each(index):
    page = PAGE.read_text(encoding="utf-8")
    contents, _, body = page.partition("\n## Data")
    headings = re.findall("^#+ (.+)$", body, re.MULTILINE)
    assert sorted(WANTED) == sorted(index) and set(WANTED) <= set(headings)
    linked = set(re.findall(r"\]\(#(.+?)\)", contents))
    assert {name.lower().replace(" ", "-") for name in WANTED} < linked
    first_screen = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:30]
    assert "docs/papers.md" in "\n".join(first_screen)


def rows_of_page(name):
    """The head and the rows of the table of an entry."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n### {name}\n")[1].split("\n### ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return head, rows


def test_every_number_of_ours_is_the_one_in_its_results_file(papers, index):
    checked = 0
    for name, values in index.items():
        ours = [line for line in papers.lines_of(values, "ours") if (ROOT / line.split(" | ")[0]).exists()]
        ours += [line for line in papers.lines_of(values, "ours") if line.startswith("params")]
        if not ours:
            continue
        head, rows = rows_of_page(name)
        for place, title in enumerate(head):
            file = re.search(r"\]\(\.\./(.+?)\)", title)
            for row in rows:
                encoding = re.findall("`(.+?)`", row[0])
                if title.startswith("**here**") and row[place]:
                    assert is_in_file(file and file[1], encoding[0], row[place], name), (name, row)
                    checked += 1
    assert checked > 60


def is_in_file(file, encoding, cell, name):
    if file is None:
        ((_, _, hparams, *_),) = [row for row in params.PAPERS if row[:2] == (name, encoding)]
        return int(cell.replace(",", "")) == params.count(f"roberta_{encoding}", 512, **hparams)["model"]
    number = re.sub(r" \(\d+ (seed|fold)s?\)$", "", cell)
    lines = [
        line for line in (ROOT / file).read_text(encoding="utf-8").splitlines() if line.startswith(f"| {encoding} |")
    ]
    return any(f"| {number} " in line for line in lines)


ENTRY = """
[TUPE]
paper = ke2021tupe
title = TUPE
[TUPE Table 1]
measures = losses
numbers =
    | loss
    T5 (`t5`) | 1.0
    AT5 (`at5`) | 2.0
laptop =
    bash examples/electra/run.sh train t5
minutes = 2
ours =
    examples/electra/RESULTS.md | Losses | loss | ours
differs = [[examples/electra/RESULTS.md ~ (\\d+) updates]] updates
"""


@pytest.mark.parametrize(
    "change, message",
    [
        ("", "no results file examples/electra/RESULTS.md: let `run.sh report` write it"),
        ("picure = a.png\n", "unknown key picure; give after, data, "),
        ("data = nothing\n", "no section [data nothing]"),
        ("after = TUPE Table 9\n", "after = TUPE Table 9: no such entry"),
    ],
)
def test_what_is_wrong_is_one_line(papers, tmp_path, monkeypatch, change, message):
    (tmp_path / "papers.ini").write_text(ENTRY + change)
    monkeypatch.setattr(papers, "ROOT", tmp_path)
    with pytest.raises(papers.Wrong) as end:
        papers.page(tmp_path / "papers.ini")
    assert str(end.value).startswith(f"[TUPE Table 1]: {message}") and "\n" not in str(end.value)


def test_a_missing_results_file_ends_make_docs_with_one_line(papers, script_module, tmp_path, monkeypatch):
    make_docs = script_module("make_docs")
    (tmp_path / "papers.ini").write_text(ENTRY.replace("electra/RESULTS.md", "electra/MISSING.md"))
    monkeypatch.setattr(papers.page, "__defaults__", (tmp_path / "papers.ini",))
    monkeypatch.setattr(make_docs, "citation", lambda: "another text, which would be written")
    before = (ROOT / "CITATION.cff").read_bytes()
    with pytest.raises(SystemExit, match=r"\Amake_docs.py: error: papers.ini \[TUPE Table 1\]: no results file .*\Z"):
        make_docs.main()
    assert (ROOT / "CITATION.cff").read_bytes() == before


def test_a_column_of_ours_needs_two_encodings(papers, tmp_path, monkeypatch):
    monkeypatch.setattr(papers, "ROOT", tmp_path)
    (tmp_path / "papers.ini").write_text(ENTRY)
    (tmp_path / "examples/electra").mkdir(parents=True)
    results = "90 updates\n## Losses\n| encoding | seeds | loss |\n|---|---|---|\n| t5 | 1 2 | 0.5 ± 0.1 |\n"
    (tmp_path / "examples/electra/RESULTS.md").write_text(results)
    with pytest.raises(papers.Wrong, match=r"Table 1\]: fewer than two encodings .* have a number in \[ours\]"):
        papers.page(tmp_path / "papers.ini")
    (tmp_path / "examples/electra/RESULTS.md").write_text(results + "| at5 | 1 2 | 0.4 ± 0.1 |\n")
    page = papers.page(tmp_path / "papers.ini")
    assert "| numbers |" in page and "| T5 (`t5`) | 0.5 ± 0.1 (2 seeds) | 1.0 |" in page and "90 updates" in page
    assert "bash examples/electra/run.sh train t5" in page


# --- the commands ---


@pytest.fixture(scope="module")
def calls(papers, index, tmp_path_factory):
    """The folder in which the page's commands have run, and (environment, words) of each program they start."""
    place = tmp_path_factory.mktemp("commands")
    blocks = [(values, "commands") for values in papers.read()[0].values()]
    blocks += [(values, key) for values in index.values() for key in ("full", "laptop")]
    script = [
        "exec 9>calls",
        NOTING,
        *("\n".join(["(", *papers.lines_of(*block), SETTINGS_THAT_STAY, ")"]) for block in blocks),
    ]
    (place / "commands").write_text("\n".join(script))
    clean = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(["bash", "commands"], cwd=place, env=clean, capture_output=True, text=True)
    assert done.stderr == "", "a command is wrong, or leaves a setting behind in the shell"
    rest, found = (place / "calls").read_text(encoding="utf-8").split("\0")[:-1], []
    while rest:
        end = 1 + int(rest[0])
        found.append((dict(zip(NAMES, rest[1:7])), rest[7:end]))
        rest = rest[end:]
    assert len(found) > 300
    return place, found


def printed_by(script, words):
    """The words after `run.sh command` for the trainings that these words start; none where they start none."""
    recipe, action = Path(script).parent.name, words[0] if words else ""
    if script.endswith("compare.sh"):
        return [["reber", name] if recipe == "artificial_tasks" else [name] for name in words]
    if action == "sweep":
        return [[task, checkpoint] for task in words[1].split() for checkpoint in words[2:]]
    return [words[1:]] if action in ("train", "evaluate", "test", "finetune", "command") else []


@pytest.mark.slow
def test_every_training_of_the_page_can_be_printed(calls, checkout):
    place, found = calls
    for path in checkout.iterdir():
        (place / path.name).symlink_to(path)
    for start in {environment["START_FROM"] for environment, _ in found} - {""}:
        (place / start).parent.mkdir(parents=True, exist_ok=True)
        (place / start).touch()
    tried = {}
    for environment, (program, script, *words) in found:
        if program != "bash":
            continue
        assert (ROOT / script).is_file(), script
        for of_command in printed_by(script, words):
            assert any(word in ENCODINGS or word.endswith(".pt") for word in of_command), (script, of_command)
            assert of_command[0] in TASKS_OF.get(Path(script).parent.name, of_command)
            if "--position-hparams" in of_command:
                name = next(word for word in of_command if word in ENCODINGS)
                key, _, value = of_command[-1].partition("=")
                assert key in hyperparameters(ENCODINGS[name]) and value, of_command
                continue
            # one for each file of settings: another encoding, task, fold or number is parsed in the same way
            key = (Path(script).parent, re.sub(r"\d", "", environment["SETTINGS"]), environment["MACHINE"])
            tried.setdefault(key, (environment, of_command))
    assert len(tried) > 25

    def check(recipe, environment, words):
        line = " ".join(["bash", f"{recipe}/run.sh", "command", *(f"'{word}'" for word in words)])
        environment = {**environment, "SUPERVISED": "yes", "GPUS": environment["GPUS"] or "1"}
        done = shell(checkout, line, cwd=place, **environment)
        assert done.returncode == 0 and "--user-dir" in done.stdout, (line, done.stderr)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda item: check(item[0][0], *item[1]), tried.items()))


def test_every_other_recipe_command_has_words_that_its_script_knows(calls):
    for _, (program, script, *words) in calls[1]:
        if program == "bash" and not printed_by(script, words):
            text = "".join(path.read_text() for path in (ROOT / script).parent.glob("*.sh"))
            text += "".join(path.read_text() for path in ROOT.glob("examples/*common/*.sh"))
            for word in words:
                known = word.startswith("--") or (script.endswith("run.sh") and word == words[0])
                assert not known or re.search(rf"(?<![\w-]){word}(?![\w-])", text), (script, words)
        elif program == "python":
            assert (ROOT / script).is_file(), script


class Parsed(Exception):
    """The arguments are fine."""


def test_every_command_line_of_the_package_and_of_the_benchmarks_parses(calls, monkeypatch, benchmark_module):
    parse = argparse.ArgumentParser.parse_args

    def only_parse(parser, arguments=None, namespace=None):
        parse(parser, arguments, namespace)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", only_parse)
    commands = {tuple(words) for _, words in calls[1]}
    ours = [words for program, *words in commands if program == "fairseq-relpos"]
    benchmarks = [words for program, *words in commands if program == "python" and words[0].startswith("benchmarks")]
    assert len(ours) > 15 and benchmarks
    for words in ours:
        with pytest.raises(Parsed):
            cli.main(words)
        assert words[0] != "show" or words[1] in ENCODINGS
    for script, *words in benchmarks:
        monkeypatch.setattr(sys, "argv", [script, *words])
        with pytest.raises(Parsed):
            benchmark_module(Path(script).stem).main()
