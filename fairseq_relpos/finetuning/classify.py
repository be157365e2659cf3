"""The class of every example, in the order of the data.

    python -m fairseq_relpos.finetuning.classify RUN CHECKPOINT DATA SPLIT [NAME=VALUE...]

Writes RUN/SPLIT.predictions.tsv, and the scores of SPLIT into RUN/results.json: those of ``valid`` as ``metrics``,
those of ``test`` as ``test``. NAME=VALUE: what else results.json says of the run.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..atomic_files import whole_file
from ..diverged import Diverged

BATCH = 64


@torch.no_grad()
def outputs(model: Any, dataset: Any, device: torch.device) -> torch.Tensor:
    """The outputs [N, classes] of the examples 0, 1, ..."""
    from fairseq import utils

    order = np.argsort(dataset.sizes, kind="stable")  # batches of equal lengths have few pads
    rows: dict[int, torch.Tensor] = {}
    for start in range(0, len(order), BATCH):
        sample = dataset.collater([dataset[index] for index in order[start : start + BATCH]])
        given = utils.move_to_cuda(sample["net_input"]) if device.type == "cuda" else sample["net_input"]
        for index, row in zip(sample["id"].tolist(), model(**given).float().cpu()):
            rows[index] = row
    return torch.stack([rows[index] for index in range(len(dataset))])


def predict(run: str, checkpoint: str, data: str, split: str, facts: dict[str, Any]) -> dict[str, float]:
    """Writes the files. Returns the scores."""
    from fairseq import checkpoint_utils

    place = Path(data, "facts.json")
    if not place.is_file():
        raise ValueError(f"no data in {data}: run prepare.sh first, or set DATA")
    of_data = json.loads(place.read_text(encoding="utf-8"))
    if split not in of_data["examples"]:
        raise ValueError(f"{of_data['task']} in {data} has no part {split}: it has {', '.join(of_data['examples'])}")
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([checkpoint], arg_overrides={"data": data})
    task.load_dataset(split)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = outputs(models[0].to(device).eval(), task.datasets[split], device)
    wanted = task.datasets[split].labels
    answers = found.argmax(-1)
    scores = {
        "accuracy": float((answers == wanted).double().mean()),
        "loss": float(torch.nn.functional.cross_entropy(found.double(), wanted)),
    }
    if not math.isfinite(scores["loss"]):
        raise Diverged(f"the outputs of {checkpoint} are not finite: it has diverged. Try a smaller --lr")
    labels = of_data["labels"]
    with whole_file(Path(run, f"{split}.predictions.tsv")) as part:
        lines = [f"{index}\t{labels[answer]}\n" for index, answer in enumerate(answers.tolist())]
        Path(part).write_text("".join(["index\tprediction\n", *lines]), encoding="utf-8")
    results = Path(run, "results.json")
    known = json.loads(results.read_text(encoding="utf-8")) if split != "valid" and results.exists() else {}
    known |= {**facts, "task": of_data["task"], "fold": of_data["fold"]}
    known["metrics" if split == "valid" else split] = scores
    # what always giving the class that is most frequent in training scores
    known.setdefault("majority", {})[split] = float((wanted == majority(data)).double().mean())
    with whole_file(results) as part:
        Path(part).write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return scores


def majority(data: str) -> int:
    with np.load(Path(data, "train.npz")) as file:
        return int(np.bincount(file["labels"]).argmax())


def main(arguments: list[str]) -> None:
    run, checkpoint, data, split, *facts = arguments
    scores = predict(run, checkpoint, data, split, dict(fact.split("=", 1) for fact in facts))
    print(f"{split}: accuracy {scores['accuracy']:.4f}, loss {scores['loss']:.4f}")


if __name__ == "__main__":
    from .errors import in_one_line

    with in_one_line():
        main(sys.argv[1:])
