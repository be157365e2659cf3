"""fairseq_relpos.mends: every change of fairseq has a name and a switch, and without them fairseq is stock."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import preloaded
import pytest
import pythons
import torch
from fairseq.tasks import TASK_REGISTRY, FairseqTask
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq_data import USER_DIR, binarise_translation, masked_lm
from forked import Run, free_port

from fairseq_relpos.mends import agreement, catalogue, launching, precision, switches
from fairseq_relpos.mends.catalogue import BY_NAME, KINDS, MENDS
from fairseq_relpos.mends.replace import commands_with

TESTS = Path(__file__).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("mends")


@pytest.fixture
def choose(monkeypatch):
    """Sets the active mends of this process, for one test."""
    return lambda value: monkeypatch.setattr(catalogue, "_active", catalogue.chosen_by(value))


def test_all_is_the_default_and_needed_leaves_numbers_alone(choose):
    choose("")
    assert catalogue.active() == set(BY_NAME)
    choose("needed")
    assert catalogue.numbers() == [] and catalogue.on("numpy-compat") and not catalogue.on("signals")
    choose("-patience, -signals")
    assert set(BY_NAME) - catalogue.active() == {"patience", "signals"}


def test_every_mend_is_of_a_kind_and_says_what_stock_does():
    assert len(BY_NAME) == len(MENDS)
    for mend in MENDS:
        assert mend.kind in KINDS and mend.stock and mend.here and mend.versions


@pytest.mark.parametrize("value", ["pateince", "-pateince", "needed,-patience", "none"])
def test_an_unknown_mend_is_one_line_with_the_nearest_names(value):
    with pytest.raises(ValueError, match="is not known; give all, needed, or -NAME") as error:
        catalogue.chosen_by(value)
    assert "\n" not in str(error.value)
    assert ("-patience" in str(error.value)) == ("pat" in value)


def test_the_flag_is_taken_in_both_forms_and_reaches_processes_that_are_started(monkeypatch):
    monkeypatch.setattr(catalogue, "_active", None)
    monkeypatch.setenv(catalogue.VARIABLE, "all")
    assert catalogue.take_flag(["data", "--mends", "-patience", "--lr", "1"]) == ["data", "--lr", "1"]
    assert not catalogue.on("patience") and os.environ[catalogue.VARIABLE] == "-patience"
    assert catalogue.take_flag(["--mends=needed"]) == []
    assert not catalogue.on("signals")
    with pytest.raises(ValueError, match="--mends has no value"):
        catalogue.take_flag(["--mends"])


def test_a_needed_mend_that_is_off_says_what_will_break(choose):
    choose("-numpy-compat")
    (line,) = catalogue.warnings()
    assert "numpy-compat is off" in line and "--sample-break-mode eos" in line and "\n" not in line
    choose("-patience")
    assert catalogue.warnings() == []


def test_a_checkpoint_records_what_changes_numbers_and_a_resume_compares_it(choose):
    choose("-patience")
    kept = switches.record()
    assert "full-weights" in kept[switches.RECORD] and "patience" not in kept[switches.RECORD]
    switches.compare("x.pt", kept)
    switches.compare("of an older version.pt", {})
    choose("-new-masks")
    differing = (
        "x.pt was made with other --mends.*: new-masks were on, now off; patience were off, now on; give the same"
    )
    with pytest.raises(ValueError, match=differing):
        switches.compare("x.pt", kept)


def test_a_mend_that_cannot_change_a_task_refuses_none_of_its_checkpoints(choose):
    choose("-same-noise,-beams-of-a-search")
    kept = switches.record()
    choose("")
    switches.compare("x.pt", kept, "masked_lm")
    for task in ("denoising", "translation", "a task of somebody", None):
        with pytest.raises(ValueError, match="were off, now on"):
            switches.compare("x.pt", kept, task)


#: those of the first version that is recorded in a checkpoint
FIRST = (
    "every-batch-counts",
    "full-weights",
    "given-adam-settings",
    "half-precision-on-cpus",
    "launcher",
    "loss-scaler",
    "new-masks",
    "no-more-updates",
    "patience",
    "same-batches",
    "unscale-once",
)


@pytest.mark.parametrize("task", ["masked_lm", "language_modeling", "sentence_prediction"])
def test_runs_of_earlier_versions_resume(choose, task):
    """A mend that changes numbers names the tasks that it cannot change, or all runs before it are refused."""
    choose("")
    switches.compare("x.pt", {switches.RECORD: list(FIRST)}, task)


def test_in_a_program_the_flag_comes_too_late_where_it_would_change_something(choose):
    choose("all")
    settings = argparse.Namespace(mends="all")
    switches.refuse_a_late_flag(settings)
    assert not hasattr(settings, "mends")
    with pytest.raises(ValueError, match="--mends needed comes too late in this program.*: set the variable"):
        switches.refuse_a_late_flag(argparse.Namespace(mends="needed"))


def test_help_shows_the_flag(tmp_path):
    run = Run(["data", "--user-dir", USER_DIR, "--help"], tmp_path / "log")
    assert run.wait() == 0 and "--mends all|needed|-NAME,-NAME" in run.printed()


def test_the_vocabulary_of_whole_words_is_found_beside_the_data(tmp_path):
    task = MaskedLMTask.__new__(MaskedLMTask)
    task.cfg = argparse.Namespace(data=str(tmp_path), mask_whole_words=False)
    assert not hasattr(task, "args")  # as in stock fairseq, whose users ask for it
    task.cfg.mask_whole_words = True
    with pytest.raises(ValueError, match="--mask-whole-words: .* put spm.model there, or encoder.json and vocab.bpe"):
        _ = task.args
    (tmp_path / "spm.model").touch()
    assert task.args.bpe == "sentencepiece" and task.args.sentencepiece_model == str(tmp_path / "spm.model")
    task.args = "those of a subclass"
    assert task.args == "those of a subclass"


def test_a_step_of_somebodys_task_gets_its_own_arguments_and_precision(monkeypatch):
    class Task(FairseqTask):
        def valid_step(self, sample, model, criterion, ema_model=None):
            return ema_model

        def train_step(self, sample, model, criterion, optimizer, update_num, ignore_grad=False):
            return torch.is_autocast_enabled("cpu")

    monkeypatch.setitem(TASK_REGISTRY, "of somebody", Task)
    launching.validate_on_several_ranks()
    precision.autocast_on_cpus()
    task, model = Task(None), torch.nn.Linear(1, 1)
    assert task.valid_step(torch.ones(2), None, None, ema_model="EMA") == "EMA"
    assert task.valid_step({}, None, None, ema_model="EMA") == (0, 0, {})
    assert not task.train_step(None, model, None, None, 1)
    with torch.autocast("cpu", torch.bfloat16):
        assert task.train_step(None, model, None, None, 1)


def test_sizes_without_numbers_have_no_digest():
    class Somebodys(list):
        @property
        def sizes(self):
            raise NotImplementedError

    ragged, empty = Somebodys("ab"), Somebodys("")
    assert agreement.samples(ragged) == "2 samples" and agreement.samples(empty) == "0 samples"
    for sizes in (np.array([(1, 2), (3,)], dtype=object), [[1, 2], [3]], np.zeros((0, 2))):
        assert agreement.samples(type("Own", (list,), {"sizes": sizes})("ab")) == "2 samples"
    with_sizes = [type("Own", (list,), {"sizes": sizes})("ab") for sizes in ([1, 2], [1, 3])]
    assert len({agreement.samples(one) for one in with_sizes}) == 2


def test_each_mend_has_a_test_that_fails_without_it(benchmark_module):
    """benchmarks/mends.py runs them without it."""
    tests = benchmark_module("mends").TESTS
    assert set(tests) == set(BY_NAME)
    for test in tests.values():
        file, _, name = test.partition("::")
        assert f"def {name}" in (TESTS / file).read_text(encoding="utf-8"), test


@pytest.mark.parametrize("second", ["-agreement,-new-masks", "-new-masks"])
def test_ranks_with_other_mends_end_in_one_line(second, data, tmp_path):
    """One of them may have the comparison of all other settings off."""
    port, runs = free_port(), []
    for rank, mends in enumerate(["all", second]):
        environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANK": str(rank)}
        more = "--distributed-world-size 2 --max-update 2 --distributed-backend gloo --distributed-no-spawn".split()
        more += f"--distributed-init-method tcp://127.0.0.1:{port} --distributed-rank {rank}".split()
        more += ["--ddp-backend", "legacy_ddp"]
        environment["FAIRSEQ_RELPOS_MENDS"] = mends
        runs.append({"arguments": masked_lm(data, tmp_path / "run", *more), "environment": environment})
    processes = []
    for rank, run in enumerate(runs):
        one = tmp_path / f"rank{rank}.json"
        one.write_text(json.dumps([run]))
        command = [sys.executable, TESTS / "many_runs.py", one]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes.append(subprocess.Popen(command, text=True, env=preloaded.environment(), **pipes))
    for process in processes:
        out, err = process.communicate(timeout=600)
        (line,) = [line for line in out.splitlines() if line.startswith("{")]
        found = json.loads(line)
        assert found["code"] != 0
        assert "rank 1 and rank 0 do not train the same: they differ in --mends" in found["printed"]


def test_a_subclass_of_trainer_keeps_its_own_constructor():
    from fairseq.trainer import Trainer

    from fairseq_relpos.mends.trainer import MendedTrainer

    class Own(Trainer):
        def __init__(self, word):
            self.word = word

    own = Own("x")
    assert own.word == "x" and isinstance(own, Own) and isinstance(own, MendedTrainer) and own.relpos.asked == 0


# what is really replaced


def what_is_replaced(mends, *arguments):
    found = json.loads(pythons.output(TESTS / "what_is_replaced.py", mends, *arguments).splitlines()[-1])
    return set(found["found"]), set(found["listed"])


#: they call a function of a library, or set what is no function
NO_FUNCTION = {
    *("warnings.filters", "logging.root", "torch.serialization.add_safe_globals"),
    *("fairseq.data.denoising_dataset.torch", "fairseq.tasks.denoising.DenoisingConfig.permute_sentences"),
    "fairseq.tasks.masked_lm.MaskedLMTask.args",
}


@pytest.mark.slow
@pytest.mark.parametrize("mends", ["all", "needed"])
def test_what_is_replaced_is_in_the_catalogue(mends, data, tmp_path):
    arguments = masked_lm(data, tmp_path / "run", "--max-update", 1, "--disable-validation")
    found, listed = what_is_replaced(mends, *arguments)
    assert found - NO_FUNCTION == listed - NO_FUNCTION
    assert ("fairseq.distributed.utils.distributed_init" in found) == (mends == "all")


def test_importing_the_mathematics_replaces_nothing():
    assert what_is_replaced("encodings") == (set(), set())


def test_a_program_that_begins_with_the_mathematics_gets_the_architectures():
    program = (
        "import sys\n"
        "import fairseq_relpos.encodings\n"
        "assert 'fairseq' not in sys.modules\n"
        "import importlib.util\n"
        "assert importlib.util.find_spec('fairseq') is not None  # somebody only looks\n"
        "from fairseq.models import ARCH_MODEL_REGISTRY\n"
        "from fairseq.trainer import Trainer\n"
        "assert Trainer.__new__ is object.__new__\n"
        "fairseq_relpos.register()\n"
        "assert 'roberta_t5' in ARCH_MODEL_REGISTRY and Trainer.__new__ is not object.__new__\n"
    )
    pythons.output("-c", program)


def test_list_imports_no_fairseq():
    program = (
        "import sys\n"
        "from fairseq_relpos.cli import main\n"
        "for command in (['list'], ['show', 't5'], ['path'], ['mends']):\n"
        "    assert main(command) == 0\n"
        "assert 'fairseq' not in sys.modules\n"
    )
    pythons.output("-c", program)


# stock fairseq


@pytest.fixture(scope="module")
def runs(folder, data):
    """name -> what many_runs.py says of it: trainings of stock fairseq, and of the plugin with ``needed``."""
    pairs = binarise_translation(folder / "translation")
    wanted = {}
    for side, more in (("stock", []), ("needed", ["--user-dir", str(USER_DIR), "--mends", "needed"])):

        def lm(name, *flags, side=side, more=more):
            # blocks without regard to lines, which stock fairseq can, beside numpy 2
            blocks = "--sample-break-mode none --tokens-per-sample 32 --max-positions 34 --max-epoch 3".split()
            arguments = masked_lm(data, folder / side / name, *blocks, *flags)
            at = arguments.index("--user-dir")
            wanted[side, name] = [*arguments[:at], *arguments[at + 2 :], *more]

        lm("no loader")
        lm("two loaders", "--num-workers", 2)
        lm("stopped", "--max-epoch", 2)
        lm("resumed", "--save-dir", folder / side / "stopped")
        wanted[side, "translation"] = [
            *[str(pairs), "--save-dir", str(folder / side / "translation"), "--cpu", "--seed", "1"],
            *"--arch transformer --encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 16".split(),
            *"--decoder-embed-dim 16 --encoder-ffn-embed-dim 32 --decoder-ffn-embed-dim 32".split(),
            *"--encoder-attention-heads 2 --decoder-attention-heads 2 --optimizer adam --lr 0.01".split(),
            *"--max-tokens 100 --max-epoch 3 --num-workers 0 --no-progress-bar --update-freq 2".split(),
            *more,
        ]
    file = folder / "runs.json"
    environment = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}  # or stock fairseq reads no checkpoint of its own
    file.write_text(json.dumps([{"arguments": run, "environment": environment} for run in wanted.values()]))
    lines = [line for line in pythons.output(TESTS / "many_runs.py", file).splitlines() if line.startswith("{")]
    found = dict(zip(wanted, map(json.loads, lines)))
    for name, run in found.items():
        assert run["code"] == 0, (name, run["printed"])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["no loader", "two loaders", "stopped", "translation"])
def test_with_needed_alone_stock_architectures_train_as_in_stock_fairseq(name, runs, folder):
    """ "stopped" went on in its third epoch."""
    last = f"{name}/checkpoint_last.pt"
    stock, needed = (torch.load(folder / side / last, weights_only=False) for side in ("stock", "needed"))
    assert stock["model"].keys() == needed["model"].keys()
    for key, weight in stock["model"].items():
        assert torch.equal(weight, needed["model"][key]), key
    assert stock["optimizer_history"][-1]["num_updates"] == needed["optimizer_history"][-1]["num_updates"] > 5
    before = {name: value for name, value in needed["extra_state"].items() if name != switches.RECORD}
    assert before.keys() == stock["extra_state"].keys() and needed["extra_state"][switches.RECORD] == []
    assert "only the mends that today's stack needs are on" in runs["needed", name]["printed"]


def test_a_program_may_have_a_module_under_the_name_of_a_function(monkeypatch):
    """As after ``from fairseq_cli import validate``."""
    before = len(commands_with("validate"))
    monkeypatch.setattr(sys.modules["__main__"], "validate", argparse, raising=False)
    assert len(commands_with("validate")) == before
