"""The class of every example, in the order of the data.

    python -m fairseq_relpos.finetuning.classify RUN CHECKPOINT DATA SPLIT [NAME=VALUE...]

Writes RUN/SPLIT.predictions.tsv, and the scores of SPLIT into RUN/results.json: those of ``valid`` as ``metrics``,
those of ``test`` as ``test``. NAME=VALUE: what else results.json says of the run.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..atomic_files import write_json, write_text
from ..criterions.metrics import need_finite
from .errors import run_program
from .predict import load, outputs_of

BATCH = 64


def outputs(model: Any, dataset: Any) -> torch.Tensor:
    """The outputs [N, classes] of the examples 0, 1, ..."""
    order = np.argsort(dataset.sizes, kind="stable")  # batches of equal lengths have few pads
    return outputs_of(model, dataset, [order[start : start + BATCH] for start in range(0, len(order), BATCH)])


def predict(run: str, checkpoint: str, data: str, split: str, facts: dict[str, Any]) -> dict[str, float]:
    """Writes the files. Returns the scores."""
    place = Path(data, "facts.json")
    if not place.is_file():
        raise ValueError(f"no data in {data}: run prepare.sh first, or set DATA")
    of_data = json.loads(place.read_text(encoding="utf-8"))
    if split not in of_data["examples"]:
        raise ValueError(f"{of_data['task']} in {data} has no part {split}: it has {', '.join(of_data['examples'])}")
    model, _, task = load(checkpoint, data, "sequence_labels")
    task.load_dataset(split)
    found = outputs(model, task.datasets[split])
    need_finite(found)
    wanted = task.datasets[split].labels
    answers = found.argmax(-1)
    scores = {
        "accuracy": float((answers == wanted).double().mean()),
        "loss": float(torch.nn.functional.cross_entropy(found.double(), wanted)),
    }
    labels = of_data["labels"]
    lines = [f"{index}\t{labels[answer]}\n" for index, answer in enumerate(answers.tolist())]
    write_text(Path(run, f"{split}.predictions.tsv"), "".join(["index\tprediction\n", *lines]))
    results = Path(run, "results.json")
    known = json.loads(results.read_text(encoding="utf-8")) if split != "valid" and results.exists() else {}
    known |= {**facts, "task": of_data["task"], "fold": of_data["fold"]}
    known["metrics" if split == "valid" else split] = scores
    # the accuracy of always giving the class that is most frequent in training
    known.setdefault("majority", {})[split] = float((wanted == majority(data)).double().mean())
    write_json(results, known)
    return scores


def majority(data: str) -> int:
    with np.load(Path(data, "train.npz")) as file:
        return int(np.bincount(file["labels"]).argmax())


def main(arguments: list[str]) -> None:
    run, checkpoint, data, split, *facts = arguments
    scores = predict(run, checkpoint, data, split, dict(fact.split("=", 1) for fact in facts))
    print(f"{split}: accuracy {scores['accuracy']:.4f}, loss {scores['loss']:.4f}")


if __name__ == "__main__":
    run_program(main)
