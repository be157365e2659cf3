"""The calls of benchmarks/wrong_calls.py: every command as it works, and what can be wrong with a call."""

import dataclasses
import io
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fairseq_relpos

USER_DIR = os.path.dirname(fairseq_relpos.__file__)
SIZES = "--{0}-layers 2 --{0}-embed-dim 16 --{0}-ffn-embed-dim 32 --{0}-attention-heads 2"
TRAINING = (
    f"--user-dir {USER_DIR} --cpu --seed 1 --optimizer adam --lr 0.01 --batch-size 4 --num-workers 0 "
    "--no-progress-bar --max-update 2 --save-dir out"
)
MASKED_LM = (
    "--task masked_lm --criterion masked_lm --sample-break-mode none --tokens-per-sample 16 "
    f"--max-positions 16 {SIZES.format('encoder')}"
)
TRANSLATION = (
    f"--task translation --criterion label_smoothed_cross_entropy {SIZES.format('encoder')} "
    f"{SIZES.format('decoder')} --max-source-positions 20 --max-target-positions 20 --share-all-embeddings"
)
EVALUATION = f"--user-dir {USER_DIR} --cpu --batch-size 4 --num-workers 0 --required-batch-size-multiple 1"
LM_DATA = tuple(f"lm/{name}" for name in ("dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx"))
LM_VALID = ("lm/dict.txt", "lm/valid.bin", "lm/valid.idx")
MT_DICTS = ("mt/dict.a.txt", "mt/dict.b.txt")
MT_TRAIN = (
    *MT_DICTS,
    *(f"mt/{split}.a-b.{side}.{end}" for split in ("train", "valid") for side in "ab" for end in ("bin", "idx")),
)
MT_TEST = (*MT_DICTS, "mt/test.a-b.a.bin", "mt/test.a-b.a.idx")


@dataclasses.dataclass(frozen=True)
class Call:
    """A command; it ends with 0 if nothing of what follows ``reads`` is given."""

    base: str
    command: str
    arguments: tuple
    #: files that it cannot do without
    reads: tuple = ()
    kind: str = ""
    #: what is wrong, in words
    what: str = ""
    #: changes files of the folder before the call
    change: Callable | None = None
    #: the damaged file: the call may succeed if that changes nothing, or cannot be seen
    damaged: str = ""
    #: bytes that a file may have, as on a full disk
    room: int | None = None

    def but(self, kind, what, **changes):
        return dataclasses.replace(self, kind=kind, what=what, **changes)


def call(base, line, reads=()):
    command, *arguments = line.split()
    return Call(base, command, tuple(arguments), tuple(reads))


PREPARATION = [
    call(
        "preprocess_lm",
        f"fairseq-preprocess --user-dir {USER_DIR} --only-source --srcdict text/dict.txt "
        "--trainpref text/train.a --validpref text/valid.a --destdir lm",
    ),
    call(
        "preprocess_mt",
        f"fairseq-preprocess --user-dir {USER_DIR} --source-lang a --target-lang b --srcdict text/dict.txt "
        "--joined-dictionary --trainpref text/train --validpref text/valid --testpref text/test --destdir mt",
    ),
    call(
        "train_lm",
        f"fairseq-train lm {TRAINING} {MASKED_LM} --arch roberta_tupe_r --save-dir run --log-file run/train.log "
        "--log-format json --max-update 4 --save-interval-updates 2 --no-epoch-checkpoints",
    ),
    call("train_mt", f"fairseq-train mt {TRAINING} {TRANSLATION} --arch transformer_t5 --save-dir mt_run"),
    call(
        "train_clm",
        f"fairseq-train lm {TRAINING} --task language_modeling --criterion cross_entropy "
        f"--arch transformer_lm {SIZES.format('decoder')} --tokens-per-sample 16 --save-dir clm_run",
    ),
]

TRAIN = f"fairseq-train lm {TRAINING} {MASKED_LM} --arch roberta_tupe_r"
BASES = [
    call("train_lm", TRAIN, LM_DATA),
    call("train_mt", f"fairseq-train mt {TRAINING} {TRANSLATION} --arch transformer_t5", MT_TRAIN),
    call("train_on", f"{TRAIN} --max-update 6 --restore-file lm.pt", (*LM_DATA, "lm.pt")),
    call("finetune", f"{TRAIN} --finetune-from-model lm.pt", (*LM_DATA, "lm.pt")),
    call(
        "validate",
        f"fairseq-validate lm {EVALUATION} --task masked_lm --path lm.pt --valid-subset valid",
        (*LM_VALID, "lm.pt"),
    ),
    call("generate", f"fairseq-generate mt {EVALUATION} --path mt.pt --beam 2", (*MT_TEST, "mt.pt")),
    call(
        "interactive",
        f"fairseq-interactive mt --user-dir {USER_DIR} --cpu --path mt.pt --beam 2 --source-lang a --target-lang b "
        "--input text/test.a",
        (*MT_DICTS, "mt.pt", "text/test.a"),
    ),
    call(
        "preprocess",
        f"fairseq-preprocess --user-dir {USER_DIR} --only-source --srcdict text/dict.txt "
        "--trainpref text/train.a --validpref text/valid.a --destdir out",
        ("text/dict.txt", "text/train.a", "text/valid.a"),
    ),
    call(
        "eval_lm",
        f"fairseq-eval-lm lm {EVALUATION} --path clm.pt --gen-subset valid --tokens-per-sample 16",
        (*LM_VALID, "clm.pt"),
    ),
    call("show", "fairseq-relpos show t5"),
    call("params", "fairseq-relpos params --arch roberta_tupe_r --max-positions 64"),
    call("import_tupe", "fairseq-relpos import-tupe tupe.pt out.pt --dict tupe_dict.txt", ("tupe.pt", "tupe_dict.txt")),
    call("warm_start", "fairseq-relpos warm-start lm.pt out.pt --arch roberta_t5", ("lm.pt",)),
    call("order_gap", "fairseq-relpos order-gap lm.pt lm --json gap.json", (*LM_VALID, "lm.pt")),
    call("plot_bias", "fairseq-relpos plot bias lm.pt --data lm --output out.png", ("lm.pt",)),
    call("plot_loss", "fairseq-relpos plot loss run/train.log --output out.png", ("run/train.log",)),
    call("average", "average_checkpoints.py out.pt lm.pt lm2.pt", ("lm.pt", "lm2.pt")),
]
BY_NAME = {base.base: base for base in BASES}


def misspelt_flag(chance):
    base = chance.choice([base for base in BASES if any(a.startswith("--") for a in base.arguments)])
    arguments = list(base.arguments)
    at = chance.choice([i for i, a in enumerate(arguments) if a.startswith("--")])
    flag = arguments[at]
    middle = chance.randrange(3, len(flag))
    arguments[at] = flag[:middle] + chance.choice("qxzé_") + flag[middle:]
    return base.but("misspelt flag", f"{flag} as {arguments[at]}", arguments=tuple(arguments))


#: command, and the flag or the place among the arguments of something that goes by a name
NAMES = [
    *((base, flag) for base in ("train_lm", "train_mt") for flag in ("--arch", "--task", "--criterion", "--optimizer")),
    *(("show", 1), ("params", "--arch"), ("warm_start", "--arch"), ("plot_bias", 1), ("warm_start", 1)),
    *(("validate", "--valid-subset"), ("eval_lm", "--gen-subset"), ("generate", "--path"), ("preprocess", "--srcdict")),
]


def misspelt_name(chance):
    base, place = chance.choice(NAMES)
    base = BY_NAME[base]
    arguments = list(base.arguments)
    at = place if isinstance(place, int) else arguments.index(place) + 1
    name = arguments[at]
    middle = chance.randrange(len(name) + 1)
    arguments[at] = name[:middle] + chance.choice("qxzé") + name[middle:]
    if base.base == "warm_start" and place == 1:
        arguments[at] = f"no_{name}"
    return base.but("misspelt name", f"{name} as {arguments[at]}", arguments=tuple(arguments))


def path(chance):
    base = chance.choice([base for base in BASES if base.reads])
    name = chance.choice(base.reads)
    how = chance.choice(sorted(PATHS))
    return base.but("path", f"{name} {how}", change=lambda folder: PATHS[how](folder / name))


def into_folder(path):
    path.unlink()
    path.mkdir()


PATHS = {"is missing": Path.unlink, "is empty": lambda path: path.write_bytes(b""), "is a folder": into_folder}


def cut(chance):
    base = chance.choice([base for base in BASES if base.reads])
    name, share = chance.choice(base.reads), chance.random()

    def change(folder):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(share * len(content))])

    return base.but("cut", f"{name} at {share:.1%}", change=change, damaged=name)


def flipped(chance):
    base = chance.choice([base for base in BASES if base.reads])
    name, count, seed = chance.choice(base.reads), chance.choice((1, 1, 3, 50)), chance.random()

    def change(folder):
        content = bytearray((folder / name).read_bytes())
        own = type(chance)(seed)
        for _ in range(count):
            content[own.randrange(len(content))] ^= own.randrange(1, 256)
        (folder / name).write_bytes(bytes(content))

    return base.but("flipped bytes", f"{name}, {count}", change=change, damaged=name)


def other_dictionary(chance):
    """More or fewer words than the model's, or than the data need."""
    name = chance.choice(("lm/dict.txt", "mt/dict.a.txt"))
    base = BY_NAME[chance.choice(("train_on", "validate", "eval_lm") if name == "lm/dict.txt" else ("generate",))]
    words = chance.choice((0, 1, 5, 39, 41, 200))

    def change(folder):
        (folder / name).write_text("".join(f"v{i} 1\n" for i in range(words)))

    return base.but("other dictionary", f"{name}: {words} words for 40", change=change)


def text_encoding(chance):
    base, name = chance.choice(
        [("preprocess", "text/train.a"), ("preprocess", "text/dict.txt"), ("interactive", "text/test.a")]
        + [("validate", "lm/dict.txt"), ("generate", "mt/dict.b.txt"), ("import_tupe", "tupe_dict.txt")]
    )
    encoding = chance.choice(("latin-1", "utf-16", "utf-32-be", "cp500"))

    def change(folder):
        lines = (folder / name).read_text().splitlines()
        lines[len(lines) // 2] = "é " + lines[len(lines) // 2].split(" ", 1)[-1]
        (folder / name).write_bytes("".join(f"{line}\n" for line in lines).encode(encoding))

    return BY_NAME[base].but("text encoding", f"{name} in {encoding}", change=change)


class Canary:
    """Makes a file if the pickle is read as code."""

    def __reduce__(self):
        return os.system, ("touch canary",)


def zip_of(**files):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


def npz():
    made = io.BytesIO()
    np.savez(made, x=np.arange(3))
    return made.getvalue()


CODE = pickle.dumps({"model": Canary(), "cfg": {}}, protocol=2)
FOREIGN = {
    "a png": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8,
    "a zip": zip_of(readme="no checkpoint"),
    "a pickle that runs code": CODE,
    "a torch file that runs code": zip_of(**{"archive/data.pkl": CODE, "archive/version": "3\n"}),
    "an npz": npz(),
    "random bytes": bytes((i * i * 31 + i // 7) % 256 for i in range(5000)),
    "a web page": b"<!DOCTYPE html>\n<html><body>404</body></html>\n",
    "zeros": bytes(4096),
}


def foreign(chance):
    base = chance.choice([base for base in BASES if base.reads])
    # a web page is a text like any other
    names = [name for name in base.reads if not name.startswith("text/") or "dict" in name] or base.reads
    name, what = chance.choice(names), chance.choice(sorted(FOREIGN))
    text = name.startswith("text/") or name.endswith((".txt", ".log"))
    return base.but(
        "foreign file",
        f"{name} is {what}",
        damaged=name if text else "",
        change=lambda folder: (folder / name).write_bytes(FOREIGN[what]),
    )


def no_room(chance):
    base = BY_NAME[chance.choice(("train_lm", "preprocess", "import_tupe", "warm_start", "plot_bias", "average"))]
    # a binarised text has a few hundred bytes
    room = chance.choice((0, 100) if base.base == "preprocess" else (0, 1000, 4000))
    return base.but("no room", f"{room} bytes for a file", room=room)


KINDS = (*(misspelt_flag, misspelt_name, path, cut, flipped), *(other_dictionary, text_encoding, foreign, no_room))
