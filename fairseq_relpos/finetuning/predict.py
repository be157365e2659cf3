"""python -m fairseq_relpos.finetuning.predict CHECKPOINT DATA OUT SPLIT... [--results FILE NAME=VALUE...]

The predictions of a fine-tuned model.

OUT/predictions.SPLIT.tsv has a line for each example, in their order: its number, the prediction, the label where there
is one, and what the model has computed for each class. OUT/SERVER.tsv is the same in the format of the GLUE server.
The scores are printed as JSON, by split. FILE of --results has them, too. If ``test`` is the only
split, its scores are added to those that FILE has.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean, mode
from typing import Any

import torch
from fairseq import checkpoint_utils, utils

from ..atomic_files import write_json, write_text
from ..command_line import Parser
from ..criterions.metrics import check_names, need_finite, score, scores
from .errors import run_program
from .glue import TASKS, Task

#: the split that is scored once, at the end
TEST = "test"


def load(checkpoint: str, data: str, kind: str) -> tuple[Any, Any, Any]:
    """The model, in evaluation and on the GPU if there is one; its settings, and its task on this data. Raises
    ValueError for a checkpoint of another task than ``kind``."""
    if not Path(checkpoint).is_file():
        raise ValueError(f"no checkpoint {checkpoint}: fine-tune first")
    state = checkpoint_utils.load_checkpoint_to_cpu(checkpoint, {"data": data, "finetune_from_model": None})
    trained = getattr(state["cfg"]["task"], "_name", None)
    if trained != kind:
        raise ValueError(f"{checkpoint} was trained with --task {trained}: give one of --task {kind}")
    (model,), cfg, task = checkpoint_utils.load_model_ensemble_and_task([checkpoint], state=state)
    return model.to("cuda" if torch.cuda.is_available() and not cfg.common.cpu else "cpu").eval(), cfg, task


def predict(model: Any, cfg: Any, task: Any, split: str) -> torch.Tensor:
    """Returns the outputs of the model, [examples, classes], in the order of the data. Each example has a row, whatever
    its length. The batches are those of a validation in training, so that all numbers are the same."""
    dataset = task.load_dataset(split)
    head = task.cfg.classification_head_name
    batches = dataset.batch_by_size(
        dataset.ordered_indices(),
        max_tokens=cfg.dataset.max_tokens_valid,
        max_sentences=cfg.dataset.batch_size_valid,
        required_batch_size_multiple=1,
    )
    return outputs_of(model, dataset, batches, features_only=True, classification_head_name=head)


@torch.no_grad()
def outputs_of(model: Any, dataset: Any, batches: Iterable[Any], **settings: Any) -> torch.Tensor:
    """Returns the outputs of the model for the examples 0, 1, ... of the batches. settings: of its forward pass."""
    rows: dict[int, torch.Tensor] = {}
    for sample in samples_of(model, dataset, batches):
        output = model(**sample["net_input"], **settings)
        output = output[0] if isinstance(output, tuple) else output
        rows.update(zip(sample["id"].tolist(), output.float().cpu()))
    return torch.stack([rows[number] for number in range(len(dataset))])


def samples_of(model: Any, dataset: Any, batches: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """The samples of the batches, where the model is."""
    cuda = next(model.parameters()).is_cuda
    for batch in batches:
        sample = dataset.collater([dataset[int(index)] for index in batch])
        yield utils.move_to_cuda(sample) if cuda else sample


def targets_of(task: Any, split: str) -> list[Any] | None:
    dataset = task.datasets[split]
    first = dataset[0]
    return [dataset[n]["target"] for n in range(len(dataset))] if "target" in first else None


def write_predictions(path: Path, task: Any, outputs: torch.Tensor, targets: list[Any] | None) -> None:
    def text(value):
        return repr(float(value)) if task.regression else task.labels[int(value)]

    lines = ["number\tprediction\tlabel\tscores\n"]
    for number, (value, row) in enumerate(zip(decided(task, outputs), outputs)):
        label = "" if targets is None else text(targets[number])
        lines.append(f"{number}\t{text(value)}\t{label}\t{' '.join(repr(x) for x in row.tolist())}\n")
    write_text(path, "".join(lines))


def decided(task: Any, outputs: torch.Tensor) -> list[Any]:
    return (outputs[:, 0] if task.regression else outputs.argmax(-1)).tolist()


def write_for_server(path: Path, glue: Task, task: Any, outputs: torch.Tensor) -> None:
    """A value of STS-B is from 0 to 5."""
    lines = ["index\tprediction\n"]
    for number, value in enumerate(decided(task, outputs)):
        if task.regression:
            answer = f"{min(max(value * glue.largest, 0.0), glue.largest):.3f}"
        else:
            answer = task.labels[value]
        lines.append(f"{number}\t{answer}\n")
    write_text(path, "".join(lines))


def run(checkpoint: str, data: str, out: str | Path, splits: Sequence[str]) -> tuple[dict[str, Any], Any]:
    """Writes the predictions of these splits into OUT. Returns the scores of those that have labels, and the settings
    of the training."""
    model, cfg, task = load(checkpoint, data, "sentence_pairs")
    if next(model.parameters()).is_cuda:  # in the precision of the training
        model = model.half() if cfg.common.fp16 else model.bfloat16() if cfg.common.bf16 else model
    glue = TASKS.get(json.loads(Path(data, "task.json").read_text(encoding="utf-8"))["task"])
    found = {}
    for split in splits:
        outputs = predict(model, cfg, task, split)
        need_finite(outputs)
        targets = targets_of(task, split)
        write_predictions(Path(out, f"predictions.{split}.tsv"), task, outputs, targets)
        if glue is not None and split in glue.server:
            write_for_server(Path(out, glue.server[split]), glue, task, outputs)
        if targets is not None:
            metric = cfg.checkpoint.best_checkpoint_metric
            found[split] = scores(decided(task, outputs), targets, task.regression, outputs.size(1), metric)
    return found, cfg


def majority(data: str, split: str, metric: str) -> float:
    """The score of always giving the label that is most frequent in training; of numbers their mean."""
    labels = [[float(line) for line in Path(data, "label", f"{s}.label").read_text().split()] for s in ("train", split)]
    regression = not Path(data, "labels.txt").exists()
    check_names([metric], regression)  # it may be the loss
    answer = mean(labels[0]) if regression else mode(labels[0])
    return score(metric, [answer] * len(labels[1]), labels[1])


def is_one_answer(predictions: Path) -> bool:
    return len({line.split("\t")[1] for line in predictions.read_text(encoding="utf-8").splitlines()[1:]}) == 1


def write_results(path: Path, found: dict[str, Any], cfg: Any, data: str, given: dict[str, str]) -> None:
    """``metrics`` are those of ``split``, the first; ``splits`` has all. Those of ``test`` stand beside them.
    ``majority``: what always giving one label scores; ``one_answer``: whether the model does so in ``split``."""
    metric = cfg.checkpoint.best_checkpoint_metric
    least = {split: majority(data, split, metric) for split in found}
    if list(found) == [TEST]:
        results = json.loads(path.read_text(encoding="utf-8")) | {TEST: found[TEST]}
        results["majority"] = {**results.get("majority", {}), **least}
        write_json(path, results)
        return
    split = next(iter(found))
    results = {
        **given,
        "encoding": cfg.model.position_encoding,
        "lr": cfg.optimization.lr[0],
        "seed": cfg.common.seed,
        "metric": metric,
        "split": split,
        "metrics": found[split],
        "splits": found,
        "majority": least,
        "one_answer": is_one_answer(path.with_name(f"predictions.{split}.tsv")),
    }
    write_json(path, results)


def main(arguments: Sequence[str]) -> None:
    parser = Parser(prog="predict")
    for name in ("checkpoint", "data", "out"):
        parser.add_argument(name)
    parser.add_argument("splits", nargs="+")
    parser.add_argument("--results", nargs="+", metavar=("FILE", "NAME=VALUE"))
    given = parser.parse_args(arguments)
    found, cfg = run(given.checkpoint, given.data, given.out, given.splits)
    if given.results and found:
        path, *pairs = given.results
        write_results(Path(path), found, cfg, given.data, dict(pair.split("=", 1) for pair in pairs))
    print(json.dumps(found))


if __name__ == "__main__":
    run_program(main)
