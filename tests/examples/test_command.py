"""`run.sh command` prints what `run.sh train` runs, and what the READMEs show."""

import fcntl
import importlib
import json
import re
import shlex
import tarfile
from pathlib import Path

import pytest
from checkouts import shell
from unpacking import UNPACKING

ROOT = Path(__file__).parents[2]
#: `$ COMMAND` and what it printed
COMMANDS = ROOT / "tests" / "fixtures" / "commands.txt"
PACKED = sorted(ROOT.glob("examples/*/runs.tar.xz"))
TEXT_DATA = {"valid.bin": "", "dict.txt": "a 1\n", "sources.txt": "vocabulary sentencepiece 62\n", "manifest.json": ""}
PAIRS_DATA = {"dict.en.txt": "a 1\n", "dict.de.txt": "a 1\n", "sources.txt": "x\n"}
SPLITS = {"valid10.bin": "", "valid1.bin": ""}
RUNS = [  # recipe, words, settings, what the data folder has
    ("artificial_tasks", "reber at5", "LEARNING_RATES=5e-4", {}),
    ("roberta_small", "t5 --max-update 7", ". examples/quickstart/settings.sh", {**TEXT_DATA, **SPLITS}),
    ("denoising", "t5", "MASK=0.2", TEXT_DATA),
    ("roberta_pretraining", "none --reset-dataloader", "MACHINE=cpu2 DROPOUT=0.25", TEXT_DATA),
    (
        "language_modeling",
        "lfhc",
        ". examples/language_modeling/qu.sh",
        {"dict.txt": "a 1\n", "sources.txt": "vocabulary words\n", "counts.json": "{}"},
    ),
    ("electra", "t5", "UPDATE_FREQ=2", {**TEXT_DATA, **SPLITS}),
    ("translation_small", "tupe_r", "HPARAMS=([tupe_r]='num_buckets=8 max_distance=9')", PAIRS_DATA),
    ("translation_wmt_en_de", "at5", ". examples/translation_wmt_en_de/at5.sh", PAIRS_DATA),
]


def noted(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("recipe, words, settings, files", RUNS, ids=lambda value: str(value)[:30])
def test_the_printed_command_pasted_into_a_shell_is_the_one_that_train_runs(
    checkout, tmp_path, recipe, words, settings, files
):
    (tmp_path / "mine.sh").write_text(f"{settings}\n")
    (tmp_path / "data").mkdir()
    for name, content in files.items():
        (tmp_path / "data" / name).write_text(content)
    place = {"DATA": f"{tmp_path}/data", "RUNS": f"{tmp_path}/my runs", "SETTINGS": f"{tmp_path}/mine.sh", "GPUS": "2"}
    script = f"bash examples/{recipe}/run.sh"
    printed = shell(checkout, f"{script} command {words}", **place)
    assert printed.returncode == 0, printed.stderr
    assert not (tmp_path / "my runs").exists()
    shell(checkout, f"{script} train {words}", **place, RAN=f"{tmp_path}/trained")
    pasted = shell(checkout, printed.stdout, RAN=f"{tmp_path}/pasted")
    assert pasted.returncode == 0, pasted.stderr
    (ran,) = noted(tmp_path / "trained")
    assert noted(tmp_path / "pasted")[-1] == [word.replace(f"{checkout}/", "") for word in ran]
    assert f"{tmp_path}/my runs" in ran[ran.index("--save-dir") + 1]
    # the ranks that fairseq-train starts by itself save nothing when a signal ends them
    assert ran[0] == ("fairseq-train" if ran[ran.index("--distributed-world-size") + 1] == "1" else "launch")
    if "valid10.bin" in files:
        assert ran[ran.index("--valid-subset") + 1] == "valid,valid1,valid10"


@pytest.mark.parametrize("recipe, data", [("electra", TEXT_DATA), ("translation_wmt_en_de", PAIRS_DATA)])
def test_several_machines_train_one_run(checkout, tmp_path, recipe, data):
    """The second one does not wait for the lock of the first."""
    (tmp_path / "data").mkdir()
    for name, content in data.items():
        (tmp_path / "data" / name).write_text(content)
    run = tmp_path / "runs" / "t5-seed1"
    place = {"DATA": f"{tmp_path}/data", "RUNS": f"{tmp_path}/runs", "GPUS": "16", "RAN": f"{tmp_path}/ran"}
    run.mkdir(parents=True)
    with open(run / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        launch = "launch --nnodes 2 --node_rank 1 --"
        done = shell(checkout, f"bash examples/{recipe}/run.sh train t5", **place, LAUNCH=launch)
    assert done.returncode == 0, done.stderr
    (ran,) = noted(tmp_path / "ran")
    assert ran[:7] == [*launch.split(), f"{tmp_path}/data"]
    assert ran[ran.index("--distributed-world-size") + 1] == "16"
    assert (run / "node1" / "trained").exists() and not (run / "trained").exists()


def test_elsewhere_than_in_the_repository_paths_are_whole(checkout, tmp_path):
    printed = shell(checkout, f"bash '{checkout}/examples/roberta_small/run.sh' command t5", cwd=tmp_path).stdout
    words = shlex.split(printed.replace("\\\n", ""))
    assert words[words.index("--user-dir") + 1] == f"{checkout}/fairseq_relpos"
    assert words[words.index("--save-dir") + 1] == "runs/roberta_small/t5-seed1"


#: the settings of the packed runs, where they are not those of settings.sh today
BEFORE = {
    "artificial_tasks": "PRECISION=amp\n",
    "electra": '. "$ROOT/examples/electra/small.sh"\n',
    "translation_small": "PRECISION=amp\n",
}


@pytest.mark.parametrize("packed", PACKED, ids=lambda path: path.parent.name)
def test_packed_runs_of_before_are_the_runs_of_the_recipe_today(checkout, tmp_path, monkeypatch, packed):
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "common"))
    same_run = importlib.import_module("same_run")
    monkeypatch.setattr(same_run, "ROOT", checkout)
    recipe = packed.parent
    with tarfile.open(packed) as tar:
        names = [member for member in tar if Path(member.name).name in ("trained", "command", "conditions")]
        tar.extractall(tmp_path / "packed", members=names, **UNPACKING)
    runs = sorted(path.parent for path in (tmp_path / "packed").rglob("trained"))
    assert runs
    run = next((run for run in runs if run.name.startswith("tupe_r-seed2")), runs[0])
    kept = shlex.split((run / "trained").read_text())
    encoding, _, rest = run.name.partition("-seed")
    (folder,) = run.parent.relative_to(tmp_path / "packed").parts or [""]
    of_the_grid = folder.startswith("lr")  # a learning rate, and not a task
    words = [encoding] if of_the_grid or not folder else [folder, encoding]
    rate = f"LEARNING_RATES={rest.partition('-lr')[2]}\n" if "-lr" in rest else ""
    (tmp_path / "mine.sh").write_text(BEFORE.get(recipe.name, "") + rate)
    place = {"SEED": rest[:1], "RUNS": "moved", "SETTINGS": f"{tmp_path}/mine.sh"}
    place |= {"LEARNING_RATE": folder[2:]} if of_the_grid else {}
    printed = shell(
        checkout, f"bash '{checkout}/examples/{recipe.name}/run.sh' command {' '.join(words)}", tmp_path, **place
    )
    assert printed.returncode == 0, printed.stderr
    command = shlex.split(printed.stdout[printed.stdout.index("fairseq-train") :].replace("\\\n", ""))
    assert kept[0] == command[0]
    if (run / "conditions").exists():  # those of the data, which this checkout has not got
        monkeypatch.setenv("CONDITIONS", (run / "conditions").read_text())
    assert same_run.SameRun(run, command).is_trained()
    same_run.SameRun(run, command).need_same_settings()
    command[command.index("--seed") + 1] = "99"
    with pytest.raises(SystemExit, match="was '--seed' '.' is '--seed' '99'"):
        same_run.SameRun(run, command).need_same_settings()


def shown():
    """(page, command line, what follows it) of every `run.sh command` with its output."""
    for page in [*sorted(ROOT.glob("examples/*/README.md")), ROOT / "docs" / "recipes.md"]:
        for block in re.findall(r"```\n\$ (.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            command, _, output = block.partition("\n")
            yield page, command, output


def test_every_recipe_shows_its_command_and_none_is_stale(checkout):
    found = list(shown())
    recipes = {path.parent.name for path in ROOT.glob("examples/*/run.sh")}
    assert {page.parent.name for page, _, _ in found} == recipes | {"docs"}
    for page, command, output in found:
        done = shell(checkout, command)
        assert done.stdout == output, f"{page}: {command} prints\n{done.stdout}{done.stderr}"


def commands_in(text):
    """The words and the flags of each command. Flags may come in any order; if one is repeated, the last one counts."""
    for line in text.replace("\\\n", "").splitlines():
        flags = [[]]
        for word in shlex.split(line):
            if word.startswith("--") and len(word) > 2:
                flags.append([])
            flags[-1].append(word)
        yield flags[0], sorted(flags[1:], key=lambda flag: flag[0].split("=")[0])


RECORDED = [block.split("\n", 1) for block in re.split(r"^\$ ", COMMANDS.read_text(), flags=re.MULTILINE)[1:]]


def test_the_recorded_commands_are_of_every_recipe_and_every_file_of_settings():
    asked = " ".join(command for command, _ in RECORDED)
    examples = ROOT / "examples"
    assert all(f"examples/{path.parent.name}/run.sh" in asked for path in examples.glob("*/run.sh"))
    scripts = {"run.sh", "prepare.sh", "compare.sh", "settings.sh", "recipe.sh", "finetuning.sh"}
    scripts |= {"compare_finetuned.sh", "finetuned.sh", "finetune.sh", "uncased.sh"}
    files = [path for path in examples.glob("*/*.sh") if path.name not in scripts]
    assert files and all(f"{path.parent.name}/{path.name}" in asked for path in files)
    assert all(f"MACHINE={path.stem}" in asked or path.stem == "v100x16" for path in examples.glob("*/machines/*.sh"))


@pytest.mark.slow
@pytest.mark.parametrize("command, output", RECORDED, ids=[command[-90:] for command, _ in RECORDED])
def test_every_recorded_command_is_the_same_flag_by_flag(checkout, command, output):
    done = shell(checkout, command)
    assert done.returncode == 0, done.stderr
    assert list(commands_in(done.stdout)) == list(commands_in(output.strip("\n")))


@pytest.mark.parametrize("recipe", sorted({run[0] for run in RUNS}))
def test_a_call_that_cannot_be_meant_is_one_line_and_makes_nothing(checkout, tmp_path, recipe):
    root = ROOT if recipe == "roberta_small" else checkout  # once with the package itself
    script = root / "examples" / recipe / "run.sh"
    task = "reber" if recipe == "artificial_tasks" else ""
    place = {"MACHINE": "gpu1", "GPUS": "8", "cwd": tmp_path, "HAS_NAMED": "yes"}  # no line on what has no effect
    for words, message in [
        (f"command {task} nonsense", "unknown position encoding 'nonsense'; known: "),
        (f"command {task}", "which encoding? usage: run.sh "),
        ("comand t5", "usage: run.sh train|command"),
        ("", "usage: run.sh train|command"),
        *([] if task else [("train t5", "no data in ")]),
    ]:
        done = shell(checkout, f"bash '{script}' {words}", **place)
        (line,) = done.stderr.splitlines()
        assert done.returncode == 1 and done.stdout == "" and message in line and line.startswith("run.sh: error: ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("recipe", sorted({run[0] for run in RUNS}))
def test_the_environment_wins_over_files_for_the_names_of_the_list_alone(tmp_path, recipe):
    other = "MAX_EPOCHS" if recipe == "artificial_tasks" else "UPDATES"
    (tmp_path / "my settings.sh").write_text(f"SEED=2 RUNS=mine {other}=7 _MY_OWN=1\n")
    (tmp_path / "other.sh").write_text("SEED=3\n")
    (tmp_path / "typo.sh").write_text("SEEED=3\n")
    here = ROOT / "examples" / recipe

    def values(settings, **environment):
        script = f"HERE={here}; . {here.parent}/common/recipe.sh; read_settings; echo $SEED $RUNS ${other}"
        environment = {other: "8", "SUPERVISED": "yes", "SETTINGS": settings, **environment}
        return shell(tmp_path, script, **environment)

    ours = values("").stdout.split()
    assert ours[0] == "1" and ours[1].startswith("runs/") and ours[2] != "8"
    assert values("my settings.sh").stdout == "2 mine 7\n"
    assert values("my settings.sh", SEED="9", RUNS="theirs").stdout == "9 theirs 7\n"
    assert values("other.sh").stdout.startswith("3 runs/")
    no_effect = f"bash: {other}=8 in the environment changes nothing: set it in a file, and SETTINGS=FILE\n"
    assert values("", SEED="9", EDITOR="8").stderr == no_effect
    assert values("", FOLD="2").stderr == no_effect + "bash: FOLD=2 changes nothing in this recipe\n"
    assert values("", FOLD="2", HAS_NAMED="yes").stderr == ""  # a script above this one has said it
    for settings, message in [
        ("other.sh typo.sh", f"unknown setting SEEED in typo.sh: {here}/settings.sh has all that there are"),
        ("none.sh", f"SETTINGS=none.sh is no readable file: give one like {here}/settings.sh"),
    ]:
        done = values(settings)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{no_effect}bash: error: {message}\n")


@pytest.mark.parametrize("recipe, words", [("squad", "t5 none"), ("question_generation", "t5")])
def test_names_that_are_no_settings_of_the_recipe_have_no_effect(checkout, recipe, words):
    command = f"bash examples/{recipe}/run.sh command {words}"
    others = {"GPUS": "2", "LAUNCH": "torchrun", "PRECISION": "int8"}
    assert shell(checkout, command, **others).stdout == shell(checkout, command).stdout != ""


def test_the_small_recipes_tune_the_allocator_and_only_the_two_choices_are_accepted(tmp_path):
    def chosen(recipe, **environment):
        folder = ROOT / "examples"
        script = f"HERE={folder}/{recipe}; . {folder}/common/recipe.sh; read_settings; echo $ALLOCATOR$ENVIRONMENT"
        kept = {"SUPERVISED": "yes", "SETTINGS": "", "ALLOCATOR": "", **environment}
        return shell(tmp_path, script, **kept)

    assert chosen("roberta_small").stdout == "tuned\n"
    assert chosen("roberta_small", ALLOCATOR="default").stdout == "default\n"
    assert chosen("roberta_pretraining").stdout == "default\n"
    message = "bash: error: ALLOCATOR=fast: give tuned or default\n"
    assert chosen("roberta_small", ALLOCATOR="fast").stderr == message


@pytest.mark.parametrize("recipe", ["roberta_small", "language_modeling"])
def test_a_small_recipe_takes_bfloat16_on_a_cpu_by_a_setting(checkout, recipe):
    def command(precision):
        return shell(checkout, f"bash examples/{recipe}/run.sh command t5", PRECISION=precision)

    assert " --amp" in command("amp").stdout and " --amp" not in command("fp32").stdout
    wrong = command("int8")
    assert wrong.returncode == 1 and wrong.stdout == "" and "PRECISION=int8: give fp32" in wrong.stderr
