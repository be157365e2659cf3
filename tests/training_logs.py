"""Logs as fairseq-train writes them, made up."""

import json
import math

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


#: as much of fairseq's settings as reports look at
WHOLE_SETTINGS = (
    "{{'_name': None, 'common': {{'_name': None, 'seed': {seed}, 'fp16': False, 'user_dir': '/somewhere/{seed}'}}, "
    "'distributed_training': {{'_name': None, 'distributed_world_size': 1, 'device_id': {seed}}}, "
    "'dataset': {{'_name': None, 'max_tokens': {max_tokens}, 'batch_size': None}}, "
    "'optimization': {{'_name': None, 'max_update': 40, 'max_epoch': {max_epoch}, 'lr': [{lr}], "
    "'update_freq': [{update_freq}]}}, "
    "'checkpoint': {{'_name': None, 'save_dir': '{path}', 'patience': -1}}, "
    "'model': Namespace(arch='roberta_{encoding}', seed={seed}, user_dir='/somewhere/{seed}', dropout={dropout}, "
    "position_encoding='{encoding}', position_hparams='{hparams}', position_layers='all', _name='roberta'), "
    "'lr_scheduler': {{'_name': 'polynomial_decay', 'warmup_updates': {warmup_updates}}}, "
    "'task': {{'_name': '{task}', 'data': '{data}', 'sample_break_mode': none, "
    "'total_num_update': {total_num_update}}}, "
    "'criterion': {{'_name': '{criterion}'}}}}"
)


def finished(path, encoding, seed, loss=4.0, ended=True, files=None, words=40, **settings):
    """The folder of a run with this last validation loss, in nats. files: name -> text, or what becomes JSON."""
    known = {"max_tokens": 4096, "update_freq": 1, "lr": 0.001, "dropout": 0.0, "hparams": "", "task": "masked_lm"}
    known |= {"max_epoch": 0, "total_num_update": 40, "warmup_updates": 4}
    known |= {"data": "data-bin/text", "criterion": "masked_lm", "encoding": encoding, "seed": seed, "path": path}
    lines = [
        WHOLE_SETTINGS.format(**{**known, **settings}),
        f"      (embed_tokens): Embedding({words}, 16, padding_idx=1)",
        "num. shared model params: 12,345 (num. trained: 12,345)",
        *(json.dumps(inner(n, 9, wall=n) | {"wps": "1000"}) for n in (10, 20, 30, 40)),
        *(json.dumps(valid(n, (loss + (40 - n) / 20) / math.log(2))) for n in (20, 40)),
        *(["done training in 40.0 seconds"] if ended else []),
    ]
    path.mkdir(parents=True)
    (path / "train.log").write_text("\n".join(lines) + "\n")
    for name, content in (files or {}).items():
        (path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return path
