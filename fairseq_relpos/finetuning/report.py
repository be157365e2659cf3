"""python -m fairseq_relpos.finetuning.report RUNS FOLDER: results.json of all runs below RUNS -> FOLDER/RESULTS.md.

A run without results.json is named as one that has not ended.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from ..atomic_files import whole_file
from .glue import TASKS

#: columns of the table; MNLI has two
MISMATCHED = "MNLI-mm"


def read(runs: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The results below ``runs``, and the runs that have none."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(runs.glob("**/results.json"))]
    begun = {path.parent for path in runs.glob("**/command")}
    missing = sorted(str(path.relative_to(runs)) for path in begun if not (path / "results.json").exists())
    return found, missing


def columns(result: dict[str, Any]) -> dict[str, float]:
    """The scores of a run that a table shows."""
    shown = {result["task"]: result["metrics"][result["metric"]]}
    if "valid1" in result["splits"]:
        shown[MISMATCHED] = result["splits"]["valid1"][result["metric"]]
    return shown


def table(results: Sequence[dict[str, Any]]) -> list[str]:
    cells: dict[tuple[str, float], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    metrics = {}
    for result in results:
        for name, value in columns(result).items():
            cells[result["encoding"], result["lr"]][name].append(100 * value)
            metrics[name] = result["metric"]
    names = [name for task in TASKS for name in ([task, MISMATCHED] if task == "MNLI" else [task]) if name in metrics]
    lines = [
        "| encoding | learning rate | " + " | ".join(f"{name} ({metrics[name]})" for name in names) + " | mean |",
        "|---|---|" + "---|" * (len(names) + 1),
    ]
    for (encoding, rate), row in sorted(cells.items()):
        shown = [in_words(row[name]) for name in names]
        whole = f"{mean(mean(row[name]) for name in names):.2f}" if all(row[name] for name in names) else "-"
        lines.append(f"| {encoding} | {rate:g} | {' | '.join(shown)} | {whole} |")
    return lines


def in_words(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.2f}" if values else "-"
    return f"{mean(values):.2f} ± {stdev(values):.2f} ({len(values)} seeds)"


def main(arguments: Sequence[str]) -> None:
    runs, folder = map(Path, arguments)
    results, missing = read(runs)
    if not results:
        raise ValueError(f"no results.json below {runs}: run.sh finetune first, or set RUNS")
    lines = ["# Fine-tuning", "", "Validation data, in percent: mean and standard deviation over the seeds.", ""]
    lines += table(results)
    if missing:
        lines += ["", f"Not ended, and not in the table: {', '.join(missing)}."]
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(folder / "RESULTS.md") as part:
        Path(part).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines[4:]))


if __name__ == "__main__":
    from .errors import in_one_line

    with in_one_line():
        main(sys.argv[1:])
