"""Logs as fairseq-train writes them, made up."""

import json

SETTINGS = (
    "{{'_name': None, 'common': {{'_name': None, 'seed': {seed}}}, 'optimization': {{'max_update': 40}}, "
    "'model': Namespace(arch='roberta_t5', position_encoding='tupe_r', x=1)}}"
)


def log_of(path, *entries, seed=3):
    lines = [SETTINGS.format(seed=seed), "num. shared model params: 12,345 (num. trained: 12,345)"]
    path.mkdir(exist_ok=True)
    with open(path / "train.log", "a") as file:
        file.write("\n".join([*lines, *map(json.dumps, entries)]) + "\n")
    return path


def inner(updates, bits, wall=1):
    # fairseq writes numbers as text
    return {"epoch": 1, "loss": str(bits), "num_updates": str(updates), "wall": str(wall), "ups": "2.5"}


def valid(updates, bits, split="valid"):
    return {"epoch": 1, f"{split}_loss": str(bits), f"{split}_num_updates": str(updates)}
