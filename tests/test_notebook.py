"""examples/notebook/positions.ipynb runs from its first cell to its last, and is committed with what that prints."""

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "examples/notebook/positions.ipynb"


def text_of(cell):
    return "".join("".join(output.get("text", "")) for output in cell["outputs"])


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_its_text_says(tmp_path):
    nbformat, nbclient = (
        pytest.importorskip(name, reason=f'{name} is not installed: pip install "fairseq_relpos[dev]"')
        for name in ("nbformat", "nbclient")
    )
    pytest.importorskip("transformers")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    install, attention, _, _, gap, reach, export = (cell for cell in notebook.cells if cell.cell_type == "code")
    assert not install.outputs  # the package is there
    differences = {line.split()[0]: float(line.split()[-1]) for line in text_of(attention).splitlines()}
    assert differences.pop("none") == 0 and all(value > 0 for value in differences.values())
    gaps = [float(line.split()[-1]) for line in text_of(gap).splitlines()]
    assert len(gaps) == 3 and all(value > 0.3 for value in gaps)
    losses = {line.split()[0]: float(line.split()[-1]) for line in text_of(reach).splitlines()}
    assert losses["alibi"] < losses["sinusoidal"]  # at eight times the trained length
    assert "the same logits: True" in text_of(export)


def test_the_notebook_is_committed_with_small_outputs_of_one_run():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    assert sum("image/png" in output.get("data", {}) for cell in code for output in cell["outputs"]) == 2
    assert not any("stderr" in output.get("name", output["output_type"]) for cell in code for output in cell["outputs"])
    assert NOTEBOOK.stat().st_size < 150_000
