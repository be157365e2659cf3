"""Reading comprehension from the command line.

    python -m fairseq_relpos.finetuning.squad ...
        updates DATA --window N --doc-stride N --max-query-length N --batch N --epochs N [--warmup SHARE] [--start FILE]
        predict CHECKPOINT DATA --split SPLIT --output PREFIX
        evaluate GOLD PREFIX [--metric cmrc]

predict writes PREFIX.predictions.json, the official form: question -> answer, with all questions; PREFIX.nbest.json and
PREFIX.loss.json; for data with unanswerable questions also PREFIX.null_odds.json, question -> null odds.
"""

import argparse
import json
import math
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..atomic_files import write_json
from ..checkpoints import warm_start
from ..command_line import Parser, positive
from ..criterions.metrics import need_finite
from ..criterions.span_prediction import logits_of, loss_of
from ..tasks import span_windows
from . import squad_data, squad_metrics
from .errors import run_program
from .predict import load, samples_of
from .squad_answers import Answers, answers_of
from .start import refuse_another_dictionary

#: names of left-out questions that are printed
SHOWN = 5


def encode(file: str | Path, vocabulary: str, target: str | Path, metric: str) -> None:
    """Writes the questions of SQuAD's JSON (plain, .xz or .gz) in tokens of a vocabulary, and prints what they are.
    ``metric``: that of the oracle EM, squad or cmrc."""
    told = squad_data.encode(file, vocabulary, target, metric)
    split = os.path.basename(target)
    print(
        f"{split}: {told['questions']:,} questions ({told['unanswerable']:,} without an answer) about "
        f"{told['contexts']:,} texts of {told['tokens']:,} tokens, {told['unknown']:.2%} of them unknown"
    )
    print(
        f"{split}: oracle EM {told['oracle_em']:.2f} (the best that tokens can reach); {told['exact_offsets']:.2f} % "
        "of the answers begin and end with a token"
    )
    if told["misplaced"]:
        names = told["left_out"]
        shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
        print(
            f"{split}: {told['misplaced']:,} answers do not stand at their offset; training leaves out {len(names):,} "
            f"questions that have no other{': ' if names else ''}{shown}"
        )


def updates(args: argparse.Namespace) -> None:
    """Prints how many updates these epochs have, and how many of them are the warm-up."""
    if not 0 <= args.warmup <= 1:
        raise ValueError(f"--warmup {args.warmup}: give a share from 0 to 1")
    if args.start:
        refuse_another_dictionary(args.start, warm_start.read(args.start), args.data)
    arrays = span_windows.read_arrays(args.data, "train")
    windows = list(span_windows.windows_of(arrays, args.window, args.doc_stride, args.max_query_length))
    total = math.ceil(len(span_windows.training_windows(arrays, windows)) / args.batch) * args.epochs
    print(total, round(total * args.warmup))


@torch.no_grad()
def logits_of_split(model: Any, task: Any, split: str, batch: int) -> tuple[list[np.ndarray], float, float]:
    """Returns for each window the logits of <s> and of its text [1 + length, 2], and the loss and the share of exact
    windows, as the validation of the training computes them."""
    data = task.dataset(split)
    found: dict[int, np.ndarray] = {}
    loss = right = 0.0
    order = data.ordered_indices()
    for sample in samples_of(model, data, [order[start : start + batch] for start in range(0, len(order), batch)]):
        logits_BT2 = logits_of(model, sample)
        of_batch = loss_of(logits_BT2, sample["target"])
        loss, right = loss + of_batch[0].item(), right + of_batch[1].item()
        for index, logits_T2, allowed_T in zip(sample["id"].tolist(), logits_BT2.cpu(), sample["allowed"].cpu()):
            found[index] = logits_T2[allowed_T].numpy()
            need_finite(found[index])
    return [found[number] for number in range(len(data))], loss / len(data), right / len(data)


def answers_of_split(
    task: Any, split: str, contexts: squad_data.Questions, logits: list[np.ndarray], longest: int, n: int
) -> dict[str, Answers]:
    """Returns the answers to all questions, in the order of the file."""
    data = task.dataset(split)
    of_question = defaultdict(list)
    for number, window in enumerate(data.windows):
        of_question[window.question].append(number)
    if [question.context for question in contexts.questions] != data.arrays["question_context"].tolist():
        raise ValueError(f"{split}.json and {split}.npz have other questions: prepare both again")
    answers = {}
    for place, question in enumerate(contexts.questions):
        numbers = of_question[place]
        answers[question.name] = answers_of(
            [data.windows[number] for number in numbers],
            [logits[number] for number in numbers],
            data.arrays,
            contexts.contexts[question.context],
            longest,
            n,
        )
    return answers


def predict(args: argparse.Namespace) -> None:
    if args.split == "train":
        raise ValueError("--split train: its windows leave questions out; give valid, test or another split")
    model, _, task = load(args.checkpoint, args.data, "span_prediction")
    task.load_dataset(args.split)
    questions = squad_data.read_questions(os.path.join(args.data, f"{args.split}.json"))
    logits, loss, exact = logits_of_split(model, task, args.split, args.batch_size)
    answers = answers_of_split(task, args.split, questions, logits, args.max_answer_length, args.n_best)
    with_null = questions.may_lack_answers
    threshold = args.null_threshold if with_null else None
    write_json(f"{args.output}.nbest.json", {name: found.table(with_null) for name, found in answers.items()})
    if with_null:
        write_json(f"{args.output}.null_odds.json", {name: found.null_odds for name, found in answers.items()})
    write_json(f"{args.output}.loss.json", {"loss": loss, "exact_windows": exact, "windows": len(logits)})
    write_json(f"{args.output}.predictions.json", {name: found.text(threshold) for name, found in answers.items()})
    print(f"{args.split}: {len(answers):,} answers, loss {loss:.5f}, exact windows {exact:.4f}")


def read(path: str) -> Any:
    try:
        with open(path, encoding="utf-8-sig") as file:
            return json.load(file)
    except FileNotFoundError:
        raise FileNotFoundError(f"no {path}: predict first") from None


def scores(gold: str, prefix: str, metric: str = "squad", threshold: float | None = None) -> dict[str, float]:
    """Returns the scores of what ``predict`` has written. With unanswerable questions also the best scores and their
    thresholds, as the official script has them, and ``tuned_...``: the scores with this threshold of the null odds,
    which comes from other data."""
    questions = squad_data.read_questions(gold)
    golds = questions.golds()
    predictions = read(f"{prefix}.predictions.json")
    if metric == "cmrc":
        return squad_metrics.cmrc(predictions, golds)
    if not questions.may_lack_answers:
        return squad_metrics.squad_1(predictions, golds)
    found = squad_metrics.squad_2(predictions, golds)
    odds = read(f"{prefix}.null_odds.json")
    squad_metrics.need_all(odds, golds)
    texts = {
        question: next((row["text"] for row in rows if row["text"]), "")
        for question, rows in read(f"{prefix}.nbest.json").items()
    }
    found.update(squad_metrics.best_thresholds(texts, odds, golds))
    if threshold is not None:
        tuned = {question: "" if odds[question] > threshold else texts[question] for question in golds}
        found.update({f"tuned_{name}": score for name, score in squad_metrics.squad_2(tuned, golds).items()})
        found["tuned_thresh"] = threshold
    return found


def evaluate(args: argparse.Namespace) -> None:
    """Prints the scores. With --results, those of valid begin the file; those of other splits are added to it, also
    with the threshold that was best on valid."""
    before = read(args.results) if args.results and args.split != "valid" else None
    threshold = before["metrics"].get("best_f1_thresh") if before else None
    found = scores(args.gold, args.prefix, args.metric, threshold)
    if args.results:
        told = {**found, **read(f"{args.prefix}.loss.json")}
        facts = dict(item.split("=", 1) for item in args.fact)
        first = {**facts, "split": "valid", "metric": "f1", "metrics": told}
        write_json(args.results, first if before is None else {**before, args.split: told})
    print(json.dumps(found, indent=1))


def parser() -> argparse.ArgumentParser:
    main = Parser(prog="squad", description=(__doc__ or "").splitlines()[0])
    actions = main.add_subparsers(dest="action", required=True)

    add = actions.add_parser("updates", help="how many updates there are in so many epochs")
    add.add_argument("data")
    for flag in ("window", "doc-stride", "max-query-length", "batch", "epochs"):
        add.add_argument(f"--{flag}", type=positive, required=True)
    add.add_argument("--warmup", type=float, default=0.0, help="share of the updates")
    add.add_argument("--start", metavar="CHECKPOINT", help="refuse one that has another dictionary than DATA")
    add.set_defaults(run=updates)

    add = actions.add_parser("predict", help="checkpoint -> answers")
    add.add_argument("checkpoint")
    add.add_argument("data")
    add.add_argument("--split", default="valid")
    add.add_argument("--output", metavar="PREFIX", required=True)
    add.add_argument("--max-answer-length", type=positive, default=30, help="tokens")
    add.add_argument("--n-best", type=positive, default=20)
    add.add_argument("--null-threshold", type=float, default=0.0, help="no answer where the null odds are above it")
    add.add_argument("--batch-size", type=positive, default=32)
    add.set_defaults(run=predict)

    add = actions.add_parser("evaluate", help="answers -> EM and F1")
    add.add_argument("gold")
    add.add_argument("prefix")
    add.add_argument("--metric", choices=list(squad_metrics.EXACT), default="squad")
    add.add_argument("--split", default="valid")
    add.add_argument("--results", metavar="FILE", help="JSON with the facts and the scores of all splits")
    add.add_argument("--fact", action="append", default=[], metavar="NAME=VALUE")
    add.set_defaults(run=evaluate)
    return main


def main(arguments: list[str]) -> None:
    args = parser().parse_args(arguments)
    args.run(args)


if __name__ == "__main__":
    run_program(main)
