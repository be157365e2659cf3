"""Every runs.tar.xz makes the results beside it again: each figure of results.json, each line of RESULTS.md."""

import json
import re
import tarfile

import pytest
from recipes import EXAMPLES, Recipe
from unpacking import UNPACKING

#: folder of the results -> recipe, and its settings
MADE_BY = {
    "roberta_small": ("roberta_small", ""),
    "roberta_small/tokens64": ("roberta_small", EXAMPLES / "roberta_small" / "tokens64.sh"),
    "roberta_small/tokens64_amp": ("roberta_small", EXAMPLES / "roberta_small" / "tokens64_amp.sh"),
    "roberta_small/moving": ("roberta_small", EXAMPLES / "roberta_small" / "moving.sh"),
    "electra/masked_lm": ("roberta_small", EXAMPLES / "electra" / "masked_lm.sh"),
    "electra": ("electra", EXAMPLES / "electra" / "small.sh"),
    "language_modeling": ("language_modeling", ""),
    "language_modeling/tuned": ("language_modeling", EXAMPLES / "language_modeling" / "tuned.sh"),
    "language_modeling/memory": ("language_modeling", EXAMPLES / "language_modeling" / "memory.sh"),
    "language_modeling/reach": ("language_modeling", EXAMPLES / "language_modeling" / "reach.sh"),
    "question_generation": ("question_generation", ""),
    "translation_small": ("translation_small", ""),
    "artificial_tasks": ("artificial_tasks", ""),
    "artificial_tasks/one_seed": ("artificial_tasks", EXAMPLES / "artificial_tasks" / "one_seed.sh"),
}


def lines_of(results):
    """Without the day, and without the command, which names the folder of the runs."""
    text = re.sub(r"\(20\d\d-\d\d-\d\d\)", "", results.read_text())
    return [line for line in text.splitlines() if not re.search(r"bash examples/\S+/(prepare|compare|run)\.sh", line)]


@pytest.mark.slow
@pytest.mark.parametrize("folder", MADE_BY)
def test_what_is_packed_makes_the_committed_results(folder, tmp_path):
    recipe, settings = MADE_BY[folder]
    kept, runs = EXAMPLES / folder, tmp_path / "runs"
    with tarfile.open(kept / "runs.tar.xz") as packed:
        packed.extractall(runs, **UNPACKING)
    compared = re.search(r"examples/\S+/compare\.sh (.+)", (kept / "RESULTS.md").read_text())
    environment = {"SETTINGS": str(settings), "COMPARED": compared[1] if compared else ""}
    Recipe(recipe).succeeds(tmp_path, "run.sh", "report", **environment)
    assert json.loads((runs / "results.json").read_text()) == json.loads((kept / "results.json").read_text())
    assert lines_of(runs / "RESULTS.md") == lines_of(kept / "RESULTS.md")
