"""fairseq-relpos: what its commands print, and how they fail."""

import importlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest
import pythons
from refusals import assert_refused

from fairseq_relpos.architectures import architectures_of
from fairseq_relpos.cli import COMMANDS, main
from fairseq_relpos.cli.docstrings import equation, explanation
from fairseq_relpos.encodings import ENCODINGS, hyperparameters

PACKAGE = Path(__file__).parents[2] / "fairseq_relpos"


def test_list_has_every_encoding_with_its_equation(capsys):
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1) for line in lines] == [[n, equation(ENCODINGS[n])] for n in sorted(ENCODINGS)]
    assert all("e_ij" in line or "x_i" in line for line in lines)


@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_show_has_equation_hyperparameters_and_architectures(name, capsys):
    assert main(["show", name]) == 0
    printed = capsys.readouterr().out
    assert all(arch in printed for arch in architectures_of(name)) and "Hyperparameters" in printed


@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_each_option_of_an_encoding_is_explained_on_its_own_page(name):
    page = f"{equation(ENCODINGS[name])}\n{explanation(ENCODINGS[name])}"
    options = hyperparameters(ENCODINGS[name])
    assert [option for option in options if option not in page] == []
    for value in ("cls=first", "cls_reset=paper", "theta=free"):
        assert value in page or value.partition("=")[0] not in options, value
    assert "reset(" not in page or "reset returns theta_1 if i is [CLS], else theta_2 if j is" in page


def test_the_equation_of_tupe_r_is_that_of_its_default():
    """In the authors' code, cls_reset=code, b is added after the reset."""
    assert hyperparameters(ENCODINGS["tupe_r"])["cls_reset"].default == "code"
    assert "+ reset((p_i U^Q).(p_j U^K) / sqrt(2d)) + b_{h, r} " in equation(ENCODINGS["tupe_r"])


def test_show_resolves_what_depends_on_the_length(capsys):
    main(["show", "t5_nob"])
    printed = capsys.readouterr().out
    assert "max_distance=None (at 512 positions: 511)   an integer" in printed
    assert "heads=each   each or shared" in printed and "Cost: as t5" in printed


def test_params_are_those_of_bert_base(capsys):
    assert main(["params", "--arch", "roberta_tupe_r", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["roberta_tupe_r"]["model"] == 1_577_100
    assert main(["params", "--arch", "roberta_t5_nob_large", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["roberta_t5_nob_large"]["model"] == 1023 * 16


def test_params_stand_beside_the_papers_figures(capsys):
    assert main(["params"]) == 0
    listed, papers = capsys.readouterr().out.split("The papers' figures")
    others = [line.split()[0] for line in listed.splitlines()[1:] if line and not line.startswith("roberta_")]
    assert others == ["transformer_cope", "transformer_fox", "transformer_path"]
    lines = papers.splitlines()[1:]
    assert len(lines) == 13
    # where ours differs a note says why; M4M's DeBERTa counts one matrix of two
    differing = {line.split()[3]: line for line in lines if line.split("ours")[1].split()[1:]}
    assert set(differing) == {"learned", "deberta", "tupe_r"}
    assert "834,816" in differing["deberta"] and "883,968" in differing["deberta"]
    for line in lines:
        if line.split()[3] not in differing or "heads=each" in line:
            theirs, ours = line.split("ours")
            assert theirs.split()[-1] == ours.split()[0], line


def test_path_is_the_package(capsys):
    assert main(["path"]) == 0
    assert capsys.readouterr().out.strip() == str(PACKAGE)


@pytest.mark.parametrize(
    "command, what",
    [
        (["show", "t6"], "unknown position encoding 't6'; known:"),
        (["params", "--arch", "bert_t5"], "--arch bert_t5 is not known: the nearest: bart_t5, roberta_t5"),
        (["params", "--max-positions", "1"], "--max-positions 1: a length in tokens, 2 or more"),
        (["plot", "curve", "m2", "--position-hparams", "max_distance=0"], "max_distance=0: the clip"),
        (["plot", "curve", "none.pt"], "no checkpoint none.pt"),
        (["plot", "bias", "none.pt"], "no checkpoint none.pt"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(command, what, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_refused(command, what, capsys)


@pytest.mark.parametrize(
    "command, what",
    [
        ([], "required: COMMAND"),
        (["draw"], "invalid choice: 'draw'"),
        (["plot"], "required: KIND"),
        (["plot", "curve", "t5", "--reach", "far"], "argument --reach: invalid positive value: 'far'"),
        (["plot", "buckets", "--reach", "-3"], "argument --reach: -3: give a whole number, 1 or more"),
        (["params", "--max-positions", "x"], "argument --max-positions: invalid int value: 'x'"),
        (["show"], "required: name"),
    ],
)
def test_arguments_that_cannot_be_read_are_one_line_too(command, what, capsys):
    with pytest.raises(SystemExit) as stop:
        main(command)
    printed = capsys.readouterr()
    assert stop.value.code == 2 and what in printed.err and len(printed.err.splitlines()) == 1


def test_every_command_explains_itself(capsys):
    for command in COMMANDS:
        with pytest.raises(SystemExit) as stop:
            main([command, "--help"])
        assert stop.value.code == 0
        assert f"usage: fairseq-relpos {command}" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["list"], ["show", "t5"], ["params"], ["plot", "--help"]])
def test_a_pipe_that_nobody_reads_ends_a_command_quietly(command, capsys, monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert main(command) == 128 + signal.SIGPIPE
        print("and what comes after goes nowhere", file=output)
    assert not capsys.readouterr().err


def test_another_broken_pipe_is_an_error(capsys, monkeypatch):
    def broken(args):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("fairseq_relpos.cli.path.run", broken)
    assert main(["path"]) == 1
    assert "Broken pipe" in capsys.readouterr().err


def test_python_dash_m_prints_nothing_but_the_answer():
    done = pythons.run("-m", "fairseq_relpos", "path")
    assert done.returncode == 0 and done.stdout.strip() == str(PACKAGE)
    assert "INFO" not in done.stderr


@pytest.mark.parametrize(
    "module, extra", [("fairseq.data", "fairseq"), ("matplotlib.pyplot", "recipes"), ("tokenizers", "hf")]
)
def test_a_command_without_its_package_names_the_extra_in_one_line(module, extra, monkeypatch, capsys):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert main(["list"]) == 1
    error = capsys.readouterr().err
    assert f"fairseq_relpos[{extra}]" in error and len(error.splitlines()) == 1


def test_recipe_lists_writes_and_refuses(tmp_path, capsys):
    assert main(["recipe"]) == 0
    assert "roberta_small " in capsys.readouterr().out
    folder = tmp_path / "r"
    assert main(["recipe", "translation_small", str(folder)]) == 0
    for name in (
        "examples/common/recipe.sh",
        "examples/common/corpus.py",
        "examples/translation_small/report.py",
        "scripts/average_checkpoints.py",
    ):
        assert (folder / name).exists()
    assert (folder / "fairseq_relpos/version.py").exists()
    assert not list(folder.glob("examples/*/*.png")) and not list(folder.glob("examples/*/*.xz"))
    capsys.readouterr()
    for words in ([str(folder)], []):
        assert main(["recipe", "translation_small", *words]) == 1
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert main(["recipe", "electra", str(tmp_path / "e")]) == 0
    assert {"roberta_small", "squad", "text_classification"} < {x.name for x in (tmp_path / "e/examples").iterdir()}
    assert main(["recipe", "roberta_pretraining", str(tmp_path / "p")]) == 0
    assert (tmp_path / "p/scripts/launch_slurm.sbatch").exists()
    assert main(["recipe", "nothing", str(tmp_path / "s")]) == 1 and not (tmp_path / "s").exists()
