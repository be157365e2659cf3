"""Fine-tuning with few labels: SST-2 in four sizes, from models of roberta_small (README.md).

    python few_labels.py parts OUT [--offline FOLDER]      OUT/N-seedS/SST-2/{train,dev,test}.tsv
    python few_labels.py manifest RATES CHECKPOINT...      prints the runs for scripts/sweep.py
    python few_labels.py report RUNS FOLDER                FOLDER/RESULTS.md, results.json, labels.png, runs.tar.xz

A thousand lines of stsa.binary.train are dev, which chooses epoch and learning rate; N of the others, drawn for each
seed, are train; stsa.binary.dev is test. CHECKPOINT is .../ENCODING-seedS/checkpoint_last.pt: each seed has a
pretraining, a draw and a new head of its own.
"""

import hashlib
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))
from fetching import fetch
from messages import in_one_line
from same_run import pack

from fairseq_relpos.atomic_files import write_text
from fairseq_relpos.command_line import Parser
from fairseq_relpos.reports import curves, differences, score_table, sweeps
from fairseq_relpos.reports.training_log import read_run

HERE = Path(__file__).resolve().parent
SIZES = (100, 300, 1000, 5920)  # the last one is all
SEEDS = (1, 2, 3, 4, 5)
IN_DEV = 1000
BASELINE = "tupe_a"
DATA = "data-bin/few_labels"
PICTURE = "\n![test accuracy by the number of labels: mean of the seeds, and their range](labels.png)\n"
SETTINGS = "examples/text_classification/few_labels.sh"
SETTINGS_OF_ALL = "examples/text_classification/few_labels_all.sh"


def in_order(lines, name):
    """The lines in an order that depends on ``name`` alone."""
    return sorted(lines, key=lambda line: hashlib.sha256(f"{name} {line}".encode()).digest())


def parts_of(lines, test):
    """Folder -> table -> lines, each a label and a sentence."""
    dev, rest = (found := in_order(lines, "dev"))[:IN_DEV], found[IN_DEV:]
    return {
        f"{size}-seed{seed}": {"train": in_order(rest, seed)[:size], "dev": dev, "test": test}
        for size in SIZES
        for seed in SEEDS
    }


def parts(folder, files):
    names = ["stsa.binary.train", "stsa.binary.dev"]
    fetch(HERE / "downloads.txt", folder / "downloads", files, names)
    lines = [(folder / "downloads" / name).read_text(encoding="utf-8").splitlines() for name in names]
    for part, tables in parts_of(*lines).items():
        place = folder / part / "SST-2"
        place.mkdir(parents=True, exist_ok=True)
        for name, rows in tables.items():
            text = "".join(row.replace(" ", "\t", 1) + "\n" for row in ["label sentence", *rows])
            write_text(place / f"{name}.tsv", text)


def manifest(rates, checkpoints):
    columns = ["recipe", "action", "task", "checkpoint", "SETTINGS", "DATA", "SEED", "LEARNING_RATE"]
    yield "\t".join(columns)
    for checkpoint in checkpoints:
        found = re.search(r"-seed(\d+)$", str(Path(checkpoint).parent))
        if not found or not Path(checkpoint).is_file():
            raise ValueError(f"no checkpoint {checkpoint}: give files .../ENCODING-seedN/checkpoint_last.pt")
        seed = found[1]
        for size in SIZES:
            settings = SETTINGS if size != SIZES[-1] else f"{SETTINGS} {SETTINGS_OF_ALL}"
            for rate in rates.split():
                cells = ["text_classification", "test", "SST-2", checkpoint, settings]
                yield "\t".join([*cells, f"{DATA}/{size}-seed{seed}", seed, rate])


def values_of(runs):
    """Encoding -> seed -> percent of the test part, with the learning rate that is best on the validation part."""
    found = {}
    for encoding, rows in runs.groupby("encoding"):
        scored = score_table.scores(score_table.chosen(rows), "test")
        if len(scored):
            found[encoding] = {int(run.seed): 100 * run.value for run in scored.itertuples()}
    return found


def report(runs, folder):
    table = score_table.read(score_table.records_of(runs))
    data = {place: Path(read_run(place).settings["data"]).parts[-3] for place in table.place.unique()}
    table["size"] = table.place.map(data).str.partition("-")[0].astype(int)
    text, figures, lines, missing = [], {}, {}, []
    for size in SIZES:
        of_size = table[table["size"] == size]
        score_table.check_alike(of_size.assign(checkpoint="", fold=of_size.seed))  # each seed has data of its own
        values = values_of(of_size)
        if not values:
            continue
        baseline = BASELINE if BASELINE in values else None
        text.append(f"## {size:,} labels\n\n{differences.table(values, baseline, 'test accuracy, %', 2)}\n")
        rates = ", ".join(f"{name} {score_table.choose_rate(rows)}" for name, rows in of_size.groupby("encoding"))
        text.append(f"Learning rates with the best median of validation: {rates}.\n")
        missing += differences.missing_seeds(values, SEEDS)
        missing += [f"no score: {name} ({said})" for name, said in sweeps.without_score(of_size).items()]
        figures[f"{size} labels"] = values
        for encoding, of_seed in values.items():
            for seed, value in of_seed.items():
                lines.setdefault(encoding, {}).setdefault(seed, {})[size] = value
    folder.mkdir(parents=True, exist_ok=True)
    enough = {encoding: of_seed for encoding, of_seed in lines.items() if len(of_seed) >= differences.ENOUGH_SEEDS}
    by_encoding = {encoding: list(of_seed.values()) for encoding, of_seed in (enough or lines).items()}
    curves.plot({"": by_encoding}, folder / "labels.png", "labels", "test accuracy, %", doubling=True)
    machines = sorted({line for kept in Path(runs).rglob("machine.txt") for line in kept.read_text().splitlines()})
    head = "\n".join(["# SST-2 with few labels\n", *(f"- {machine}" for machine in machines), ""])
    last = "\n".join(["## Missing\n", *(f"- {line}" for line in dict.fromkeys(missing)), ""]) if missing else ""
    write_text(folder / "RESULTS.md", "\n".join([head, *text, differences.legend(BASELINE), PICTURE, last]))
    differences.write(folder / "results.json", BASELINE, figures)
    pack(runs, folder)


def main():
    parser = Parser(prog="few_labels.py")
    actions = parser.add_subparsers(dest="action", required=True)
    action = actions.add_parser("parts")
    action.add_argument("folder", metavar="OUT", type=Path)
    action.add_argument("--offline", metavar="FOLDER", default="")
    action = actions.add_parser("manifest")
    action.add_argument("rates")
    action.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT")
    action = actions.add_parser("report")
    action.add_argument("runs")
    action.add_argument("folder", type=Path)
    args = parser.parse_args()
    if args.action == "parts":
        parts(args.folder, args.offline)
    elif args.action == "manifest":
        print(*manifest(args.rates, args.checkpoints), sep="\n")
    else:
        report(args.runs, args.folder)


if __name__ == "__main__":
    with in_one_line():
        main()
