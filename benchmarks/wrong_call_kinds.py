"""What benchmarks/wrong_calls.py calls: every command as it works, and what can be wrong with a call."""

import dataclasses
import io
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fairseq_relpos
from fairseq_relpos.encodings import ENCODINGS, hyperparameters

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
    stdin: bytes = b""
    kind: str = ""
    #: what is wrong, in words
    what: str = ""
    environment: dict = dataclasses.field(default_factory=dict)
    #: changes files of the folder before the call
    change: Callable | None = None
    #: the damaged file: the call may succeed if that changes nothing, or cannot be seen
    damaged: str = ""
    #: bytes that a file may have, as on a full disk
    room: int | None = None
    #: whether it runs without root's right to read everything
    as_nobody: bool = False

    def but(self, kind, what, **changes):
        return dataclasses.replace(self, kind=kind, what=what, **changes)

    def with_flag(self, flag, value):
        """The arguments with another value of the flag."""
        arguments = list(self.arguments)
        if flag in arguments:
            arguments[arguments.index(flag) + 1] = value
        else:
            arguments += [flag, value]
        return tuple(arguments)


def call(base, command, arguments, reads=(), stdin=b""):
    return Call(base, command, tuple(arguments.split()), tuple(reads), stdin)


PREPARATION = [
    call(
        "preprocess_lm",
        "fairseq-preprocess",
        f"--user-dir {USER_DIR} --only-source --srcdict text/dict.txt "
        "--trainpref text/train.a --validpref text/valid.a --destdir lm",
    ),
    call(
        "preprocess_mt",
        "fairseq-preprocess",
        f"--user-dir {USER_DIR} --source-lang a --target-lang b "
        "--srcdict text/dict.txt --joined-dictionary --trainpref text/train --validpref text/valid "
        "--testpref text/test --destdir mt",
    ),
    call(
        "train_lm",
        "fairseq-train",
        f"lm {TRAINING} {MASKED_LM} --arch roberta_tupe_r --save-dir run --log-file "
        "run/train.log --log-format json --max-update 4 --save-interval-updates 2 "
        "--keep-best-checkpoints 1 --no-epoch-checkpoints",
    ),
    call("train_mt", "fairseq-train", f"mt {TRAINING} {TRANSLATION} --arch transformer_t5 --save-dir mt_run"),
    call(
        "train_clm",
        "fairseq-train",
        f"lm {TRAINING} --task language_modeling --criterion cross_entropy "
        f"--arch transformer_lm {SIZES.format('decoder')} --tokens-per-sample 16 --save-dir clm_run",
    ),
]

BASES = [
    call("train_lm", "fairseq-train", f"lm {TRAINING} {MASKED_LM} --arch roberta_tupe_r", LM_DATA),
    call("train_mt", "fairseq-train", f"mt {TRAINING} {TRANSLATION} --arch transformer_t5", MT_TRAIN),
    call(
        "train_on",
        "fairseq-train",
        f"lm {TRAINING} {MASKED_LM} --arch roberta_tupe_r --max-update 6 --restore-file lm.pt",
        (*LM_DATA, "lm.pt"),
    ),
    call(
        "finetune",
        "fairseq-train",
        f"lm {TRAINING} {MASKED_LM} --arch roberta_tupe_r --finetune-from-model lm.pt",
        (*LM_DATA, "lm.pt"),
    ),
    call(
        "validate",
        "fairseq-validate",
        f"lm {EVALUATION} --task masked_lm --path lm.pt --valid-subset valid",
        (*LM_VALID, "lm.pt"),
    ),
    call("generate", "fairseq-generate", f"mt {EVALUATION} --path mt.pt --beam 2", (*MT_TEST, "mt.pt")),
    call(
        "interactive",
        "fairseq-interactive",
        f"mt --user-dir {USER_DIR} --cpu --path mt.pt --beam 2 --source-lang a --target-lang b --input text/test.a",
        (*MT_DICTS, "mt.pt", "text/test.a"),
    ),
    call(
        "interactive_stdin",
        "fairseq-interactive",
        f"mt --user-dir {USER_DIR} --cpu --path mt.pt --beam 2 --source-lang a --target-lang b",
        (*MT_DICTS, "mt.pt"),
        b"w1 w2 w3\nw4\n",
    ),
    call(
        "preprocess",
        "fairseq-preprocess",
        f"--user-dir {USER_DIR} --only-source --srcdict text/dict.txt "
        "--trainpref text/train.a --validpref text/valid.a --destdir out",
        ("text/dict.txt", "text/train.a", "text/valid.a"),
    ),
    call(
        "preprocess_new_dict",
        "fairseq-preprocess",
        f"--user-dir {USER_DIR} --source-lang a --target-lang b "
        "--trainpref text/train --validpref text/valid --destdir out",
        tuple(f"text/{split}.{side}" for split in ("train", "valid") for side in "ab"),
    ),
    call(
        "eval_lm",
        "fairseq-eval-lm",
        f"lm {EVALUATION} --path clm.pt --gen-subset valid --tokens-per-sample 16",
        (*LM_VALID, "clm.pt"),
    ),
    call("list", "fairseq-relpos", "list"),
    call("path", "fairseq-relpos", "path"),
    call("doctor", "fairseq-relpos", "doctor"),
    call("show", "fairseq-relpos", "show t5"),
    call("params", "fairseq-relpos", "params --arch roberta_tupe_r --max-positions 64"),
    call(
        "import_tupe", "fairseq-relpos", "import-tupe tupe.pt out.pt --dict tupe_dict.txt", ("tupe.pt", "tupe_dict.txt")
    ),
    call("warm_start", "fairseq-relpos", "warm-start lm.pt out.pt --arch roberta_t5", ("lm.pt",)),
    call("order_gap", "fairseq-relpos", "order-gap lm.pt lm --json gap.json", (*LM_VALID, "lm.pt")),
    call("plot_bias", "fairseq-relpos", "plot bias lm.pt --data lm --output out.png", ("lm.pt",)),
    call(
        "plot_attention",
        "fairseq-relpos",
        "plot attention lm.pt --data lm --text w1 --output out.png",
        ("lm.pt", "lm/dict.txt"),
    ),
    call("plot_curve", "fairseq-relpos", "plot curve t5 --output out.png"),
    call("plot_buckets", "fairseq-relpos", "plot buckets --reach 20 --output out.png"),
    call("plot_prior", "fairseq-relpos", "plot prior-matrix --dim 16 --reach 20 --output out.png"),
    call("plot_distance", "fairseq-relpos", "plot distance --dim 16 --reach 20 --output out.png"),
    call("plot_loss", "fairseq-relpos", "plot loss run/train.log --output out.png", ("run/train.log",)),
    call("average", "average_checkpoints.py", "out.pt lm.pt lm2.pt", ("lm.pt", "lm2.pt")),
    call(
        "average_last",
        "average_checkpoints.py",
        "out.pt --last 2 run",
        ("run/checkpoint_1_2.pt", "run/checkpoint_1_4.pt"),
    ),
]
BY_NAME = {base.base: base for base in BASES}

NUMBER = ("abc", "", "1e", "½", "--")
COUNT = (*NUMBER, "0", "-1", "2.5")
SHARE = (*NUMBER, "-0.5", "1.5", "nan")
UNKNOWN = ("nosuch", "", "ünïcode", "a b", "../x")
TRAINING_VALUES = {
    "--lr": ("abc", "", "-0.5", "nan", "0.1,x"),
    "--max-update": (*NUMBER, "-1", "1.5"),
    "--max-epoch": (*NUMBER, "-1", "1.5"),
    "--batch-size": COUNT,
    "--max-tokens": (*COUNT, "1"),
    "--update-freq": COUNT,
    "--seed": (*NUMBER, "1.5", "-1", "9" * 30),
    "--num-workers": (*NUMBER, "-1"),
    "--dropout": SHARE,
    "--attention-dropout": SHARE,
    "--activation-dropout": SHARE,
    "--encoder-layers": COUNT,
    "--encoder-embed-dim": (*COUNT, "7", "9" * 12),
    "--encoder-ffn-embed-dim": COUNT,
    "--encoder-attention-heads": (*COUNT, "3"),
    "--clip-norm": (*NUMBER, "nan"),
    "--weight-decay": NUMBER,
    "--adam-betas": ("(", "abc", "0.9", "(0.9,)", "(2, 0.9)", "(0.9, 'x')", ""),
    "--adam-eps": (*NUMBER, "-1"),
    "--lr-scheduler": UNKNOWN,
    "--optimizer": UNKNOWN,
    "--criterion": UNKNOWN,
    "--task": UNKNOWN,
    "--arch": UNKNOWN,
    "--warmup-updates": (*NUMBER, "-3"),
    "--save-interval": COUNT,
    "--validate-interval": COUNT,
    "--log-interval": COUNT,
    "--save-interval-updates": NUMBER,
    "--keep-interval-updates": NUMBER,
    "--keep-last-epochs": NUMBER,
    "--log-format": UNKNOWN,
    "--train-subset": UNKNOWN,
    "--valid-subset": UNKNOWN,
    "--required-batch-size-multiple": COUNT,
    "--patience": NUMBER,
    "--ddp-backend": UNKNOWN,
    "--position-encoding": (*UNKNOWN, "t5,", "t5 t5", "T5"),
    "--attention-backend": UNKNOWN,
    "--position-layers": ("0", "99", "abc", "1,,2", "-1", "first,1", "1.5", ""),
    "--log-position-bias-interval": (*NUMBER, "-1"),
    "--reset-optimizer": ("x",),
    "--best-checkpoint-metric": ("nosuch",),
    "--distributed-world-size": (*COUNT, "3"),
    "--stop-time-hours": NUMBER,
    "--fp16-init-scale": NUMBER,
    "--dataset-impl": UNKNOWN,
}
LM_VALUES = {
    "--mask-prob": SHARE,
    "--leave-unmasked-prob": SHARE,
    "--random-token-prob": SHARE,
    "--max-positions": COUNT,
    "--tokens-per-sample": COUNT,
    "--sample-break-mode": UNKNOWN,
    "--shorten-method": UNKNOWN,
}
MT_VALUES = {
    "--max-source-positions": COUNT,
    "--max-target-positions": COUNT,
    "--label-smoothing": SHARE,
    "--decoder-layers": COUNT,
    "--decoder-embed-dim": COUNT,
    "--position-stacks": (*UNKNOWN, "encoder,", "middle"),
    "--source-lang": UNKNOWN,
    "--target-lang": UNKNOWN,
    "--eval-bleu-args": ("{", "abc", "[1]"),
}
EVALUATION_VALUES = {
    "--batch-size": COUNT,
    "--max-tokens": (*COUNT, "1"),
    "--path": ("nosuch.pt", "", "lm", "lm.pt:nosuch.pt", "text/train.a"),
    "--num-workers": (*NUMBER, "-1"),
    "--seed": (*NUMBER, "-1"),
    "--required-batch-size-multiple": COUNT,
    "--log-format": UNKNOWN,
    "--num-shards": COUNT,
    "--shard-id": (*NUMBER, "5"),
}
GENERATION_VALUES = {
    "--beam": COUNT,
    "--nbest": (*NUMBER, "0", "-1"),
    "--max-len-a": NUMBER,
    "--max-len-b": (*NUMBER, "-5"),
    "--lenpen": NUMBER,
    "--unkpen": NUMBER,
    "--scoring": UNKNOWN,
    "--tokenizer": UNKNOWN,
    "--bpe": UNKNOWN,
    "--temperature": (*NUMBER, "0", "-1"),
    "--min-len": (*NUMBER, "500"),
    "--prefix-size": NUMBER,
    "--diverse-beam-groups": (*NUMBER, "7"),
    "--source-lang": UNKNOWN,
    "--target-lang": UNKNOWN,
    "--sampling-topk": (*NUMBER, "5"),
    "--no-repeat-ngram-size": NUMBER,
}
VALUES = {
    "train_lm": {**TRAINING_VALUES, **LM_VALUES},
    "train_mt": {**TRAINING_VALUES, **MT_VALUES},
    "train_on": {
        "--restore-file": ("nosuch.pt", "lm", "text/train.a", "lm/valid.bin"),
        "--max-update": NUMBER,
        "--optimizer-overrides": ("{", "abc", "[1]", "{'nosuch': 1}"),
    },
    "finetune": {"--finetune-from-model": ("nosuch.pt", "lm", "text/train.a", "mt.pt")},
    "validate": {**EVALUATION_VALUES, "--valid-subset": UNKNOWN, "--max-valid-steps": NUMBER},
    "generate": {**EVALUATION_VALUES, **GENERATION_VALUES, "--gen-subset": UNKNOWN},
    "interactive": {
        **GENERATION_VALUES,
        "--path": EVALUATION_VALUES["--path"],
        "--buffer-size": NUMBER,
        "--input": ("nosuch.txt", "lm", "mt.pt"),
        "--batch-size": (*COUNT, "50"),
    },
    "eval_lm": {
        **EVALUATION_VALUES,
        "--gen-subset": UNKNOWN,
        "--tokens-per-sample": COUNT,
        "--context-window": (*NUMBER, "-1", "99"),
    },
    "preprocess": {
        "--workers": COUNT,
        "--trainpref": ("nosuch", "lm", "text/train.a,nosuch", ""),
        "--validpref": ("nosuch", "lm", "text/valid.a,nosuch"),
        "--destdir": ("lm.pt", ""),
        "--srcdict": ("nosuch", "lm", "text/train.a", ""),
        "--nwordssrc": NUMBER,
        "--thresholdsrc": NUMBER,
        "--padding-factor": NUMBER,
        "--dataset-impl": UNKNOWN,
        "--task": UNKNOWN,
    },
    "preprocess_new_dict": {
        "--source-lang": UNKNOWN,
        "--target-lang": UNKNOWN,
        "--workers": COUNT,
        "--trainpref": ("nosuch", "lm", "text/train.a"),
        "--tgtdict": ("nosuch", "lm"),
        "--alignfile": ("nosuch",),
        "--nwordstgt": NUMBER,
    },
    "params": {"--arch": (*UNKNOWN, "roberta", "roberta_nosuch", "tupe_r"), "--max-positions": COUNT},
    "import_tupe": {"--dict": ("nosuch", "lm", "tupe.pt", "")},
    "warm_start": {
        "--arch": (*UNKNOWN, "roberta_t5_large", "transformer_t5"),
        "--seed": (*NUMBER, "1.5"),
        "--position-encoding": UNKNOWN,
        "--position-layers": ("0", "99", "x"),
        "--attention-backend": UNKNOWN,
        "--log-position-bias-interval": (*NUMBER, "-1"),
    },
    "order_gap": {"--split": UNKNOWN, "--seed": (*NUMBER, "1.5"), "--json": ("lm", "nosuch/x.json", "")},
    "plot_bias": {
        "--data": ("nosuch", "lm.pt"),
        "--length": (*COUNT, "99999"),
        "--stack": ("decoder", *UNKNOWN),
        "--output": ("out.xyz", "out", "lm", ""),
    },
    "plot_attention": {
        "--layers": (*COUNT, "99", "1,,2"),
        "--heads": (*COUNT, "99"),
        "--data": ("nosuch", "lm.pt"),
        "--text": ("",),
        "--stack": ("decoder", "nosuch"),
        "--output": ("out.xyz"),
        "--sentencepiece-model": ("nosuch", "lm.pt", "lm"),
    },
    "plot_curve": {
        "--heads": COUNT,
        "--reach": COUNT,
        "--seed": NUMBER,
        "--position-hparams": ("x=1", "x", "num_buckets=x"),
        "--output": ("out.xyz"),
    },
    "plot_buckets": {"--reach": COUNT, "--output": ("out.xyz", "lm")},
    "plot_prior": {"--dim": COUNT, "--reach": COUNT},
    "plot_distance": {"--dim": COUNT, "--reach": COUNT},
    "plot_loss": {"--baseline": UNKNOWN, "--output": ("out.xyz")},
    "average_last": {"--last": (*COUNT, "99"), "--best": ("1", "99")},
}


def wrong_value(chance):
    base = chance.choice(sorted(VALUES))
    flag = chance.choice(sorted(VALUES[base]))
    value = chance.choice(VALUES[base][flag])
    base = BY_NAME[base]
    return base.but("wrong value", f"{flag} {value!r}", arguments=base.with_flag(flag, value))


def misspelt_flag(chance):
    base = chance.choice([base for base in BASES if any(a.startswith("--") for a in base.arguments)])
    arguments = list(base.arguments)
    at = chance.choice([i for i, a in enumerate(arguments) if a.startswith("--")])
    flag = arguments[at]
    middle = chance.randrange(3, len(flag))
    arguments[at] = flag[:middle] + chance.choice("qxzé_") + flag[middle:]
    return base.but("misspelt flag", f"{flag} as {arguments[at]}", arguments=tuple(arguments))


#: command and flag, or place among the arguments, of something that goes by a name
NAMES = [
    ("train_lm", "--arch"),
    ("train_lm", "--task"),
    ("train_lm", "--criterion"),
    ("train_mt", "--arch"),
    ("train_lm", "--optimizer"),
    ("train_mt", "--criterion"),
    ("train_mt", "--task"),
    ("show", 1),
    ("plot_curve", 2),
    ("params", "--arch"),
    ("warm_start", "--arch"),
    ("list", 0),
    ("plot_bias", 1),
    ("plot_bias", 0),
    ("validate", "--valid-subset"),
    ("eval_lm", "--gen-subset"),
    ("warm_start", 1),
    ("interactive", "--source-lang"),
    ("preprocess", "--srcdict"),
    ("generate", "--path"),
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


def missing_argument(chance):
    """What the command cannot do without."""
    needed = [
        ("train_lm", "lm"),
        ("train_mt", "mt"),
        ("validate", "--path"),
        ("validate", "--task"),
        ("generate", "--path"),
        ("interactive", "--path"),
        ("eval_lm", "--path"),
        ("preprocess_new_dict", "--source-lang"),
        ("warm_start", "--arch"),
        ("warm_start", "out.pt"),
        ("show", "t5"),
        ("import_tupe", "out.pt"),
        ("order_gap", "lm"),
        ("plot_bias", "lm.pt"),
        ("plot_attention", "--text"),
        ("average", "lm.pt"),
        ("average_last", "run"),
        ("plot_loss", "run/train.log"),
        ("train_lm", "--batch-size"),
        ("validate", "--batch-size"),
        ("generate", "lm"),
        ("validate", "lm"),
        ("eval_lm", "lm"),
        ("plot_curve", "t5"),
    ]
    base, what = chance.choice(needed)
    base = BY_NAME[base]
    arguments = list(base.arguments)
    what = "mt" if what == "lm" and "mt" in arguments else what
    at = arguments.index(what)
    del arguments[at : at + (2 if what.startswith("--") else 1)]
    if base.base == "average":
        arguments.remove("lm2.pt")
    return base.but("missing argument", f"without {what}", arguments=tuple(arguments))


#: command and what does not go together in it
COMBINATIONS = [
    ("train_lm", "--arch transformer_t5"),
    ("train_mt", "--arch roberta_t5"),
    ("train_lm", "--task translation"),
    ("train_mt", "--task masked_lm"),
    ("train_mt", "--criterion masked_lm"),
    ("train_lm", "--attention-backend sdpa --position-encoding m4"),
    ("train_mt", "--cross-self-attention"),
    ("train_mt", "--ddp-backend fully_sharded"),
    ("train_mt", "--encoder-learned-pos"),
    ("train_mt", "--position-stacks decoder --position-hparams encoder.num_buckets=16"),
    ("train_mt", "--position-stacks decoder --position-encoding encoder=t5"),
    ("train_mt", "--decoder-embed-dim 32"),
    ("train_mt", "--source-lang a --target-lang a"),
    ("train_lm", "--position-encoding t5 --position-hparams max_distance=4,num_buckets=8"),
    ("train_lm", "--position-encoding encoder=t5,decoder=t5"),
    ("train_lm", "--max-positions 4"),
    ("train_lm", "--mask-whole-words"),
    ("train_lm", "--fp16 --bf16"),
    ("train_lm", "--fp16 --amp"),
    ("train_lm", "--write-checkpoints-asynchronously"),
    ("train_lm", "--tpu"),
    ("train_lm", "--max-tokens 3"),
    ("train_lm", "--task sentence_prediction --num-classes 2"),
    ("train_lm", "--leave-unmasked-prob 0.6 --random-token-prob 0.6"),
    ("train_lm", "--lr-scheduler polynomial_decay"),
    ("train_lm", "--lr-scheduler triangular"),
    ("train_lm", "--lr 0.1 --lr-scheduler inverse_sqrt --warmup-init-lr abc"),
    ("train_mt", "--eval-bleu --eval-bleu-detok nosuch"),
    ("train_mt", "--share-all-embeddings --share-decoder-input-output-embed --decoder-embed-path x"),
    ("train_lm", "--distributed-world-size 4"),
    ("train_lm", "--distributed-world-size 2 --distributed-rank 5"),
    ("train_on", "--optimizer sgd"),
    ("train_on", "--encoder-layers 3"),
    ("train_on", "--arch roberta_t5"),
    ("train_on", "--max-positions 32"),
    ("train_on", "--criterion cross_entropy"),
    ("train_on", "--encoder-embed-dim 32"),
    ("finetune", "--restore-file lm.pt"),
    ("finetune", "--arch roberta_base"),
    ("finetune", "--arch roberta_t5"),
    ("finetune", "--encoder-embed-dim 32"),
    ("finetune", "--encoder-layers 1"),
    ("generate", "--sacrebleu"),
    ("generate", "--min-len 9 --max-len-b 2"),
    ("generate", "--task masked_lm"),
    ("generate", "--match-source-len --diverse-beam-groups 5"),
    ("generate", "--sampling-topp 0.5"),
    ("generate", "--score-reference --beam 0"),
    ("generate", "--bpe sentencepiece"),
    ("generate", "--bpe subword_nmt"),
    ("generate", "--path lm.pt"),
    ("generate", "--path mt.pt:lm.pt"),
    ("generate", "--path clm.pt"),
    ("validate", "--path mt.pt"),
    ("validate", "--path lm.pt:mt.pt"),
    ("eval_lm", "--path mt.pt"),
    ("eval_lm", "--path lm.pt"),
    ("interactive", "--path lm.pt"),
    ("interactive", "--batch-size 8 --buffer-size 2"),
    ("eval_lm", "--tokens-per-sample 4 --context-window 8"),
    ("preprocess", "--joined-dictionary"),
    ("preprocess", "--tgtdict text/dict.txt --joined-dictionary"),
    ("preprocess_new_dict", "--joined-dictionary --srcdict text/dict.txt --tgtdict text/dict.txt"),
    ("preprocess_new_dict", "--source-lang a --target-lang a"),
    ("params", "--arch roberta_t5 --arch"),
    ("warm_start", "--position-encoding decoder=t5"),
    ("warm_start", "--position-hparams max_distance=2 --position-encoding nosuch"),
    ("show", "t5"),
    ("list", "t5"),
    ("path", "x"),
    ("doctor", "--json"),
    ("order_gap", "--split train,nosuch"),
    ("plot_buckets", "--dim 3"),
    ("average", "--last 2"),
    ("average", "--last 1 --best 1"),
    ("average", "mt.pt"),
    ("average", "clm.pt"),
    ("average_last", "--best 2"),
]


def combination(chance):
    base, flags = chance.choice(COMBINATIONS)
    base = BY_NAME[base]
    return base.but("combination", flags, arguments=(*base.arguments, *flags.split()))


def path(chance):
    base = chance.choice([base for base in BASES if base.reads])
    name = chance.choice(base.reads)
    how = chance.choice(sorted(PATHS))
    return base.but(
        "path", f"{name} {how}", change=lambda folder: PATHS[how](folder / name), as_nobody=how == "is unreadable"
    )


def into_folder(path):
    path.unlink()
    path.mkdir()


def into_loop(path):
    path.unlink()
    path.symlink_to(path.name)


PATHS = {
    "is missing": Path.unlink,
    "is empty": lambda path: path.write_bytes(b""),
    "is a folder": into_folder,
    "is unreadable": lambda path: path.chmod(0),
    "is a link to itself": into_loop,
}


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
    base = chance.choice(
        [
            base
            for base in BASES
            if any("/dict." in name for name in base.reads) and base.base not in ("preprocess", "train_lm", "train_mt")
        ]
    )
    name = chance.choice([name for name in base.reads if "/dict." in name])
    words = chance.choice((0, 1, 5, 39, 41, 200))

    def change(folder):
        (folder / name).write_text("".join(f"v{i} 1\n" for i in range(words)))

    return base.but("other dictionary", f"{name}: {words} words for 40", change=change)


def text_encoding(chance):
    base, name = chance.choice(
        [
            *((base, "text/train.a") for base in ("preprocess", "preprocess_new_dict")),
            ("preprocess", "text/dict.txt"),
            ("preprocess", "text/valid.a"),
            ("preprocess_new_dict", "text/valid.b"),
            ("interactive", "text/test.a"),
            ("interactive_stdin", ""),
            ("validate", "lm/dict.txt"),
            ("generate", "mt/dict.b.txt"),
            ("import_tupe", "tupe_dict.txt"),
            ("order_gap", "lm/dict.txt"),
            ("plot_loss", "run/train.log"),
            ("train_lm", "lm/dict.txt"),
        ]
    )
    base, encoding = BY_NAME[base], chance.choice(("latin-1", "utf-16", "utf-32-be", "cp500"))
    if not name:
        return base.but("text encoding", f"{encoding} on standard input", stdin="é ü w3\n".encode(encoding))

    def change(folder):
        lines = (folder / name).read_text().splitlines()
        lines[len(lines) // 2] = "é " + lines[len(lines) // 2].split(" ", 1)[-1]
        (folder / name).write_bytes("".join(f"{line}\n" for line in lines).encode(encoding))

    # a log is read line by line, and a line that is no log line is none of ours
    return base.but(
        "text encoding", f"{name} in {encoding}", change=change, damaged=name if name.endswith(".log") else ""
    )


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


def hparams(chance):
    encoding = chance.choice(sorted(ENCODINGS))
    known = sorted(hyperparameters(ENCODINGS[encoding]))
    text = chance.choice(["nosuch=1", "=", "a=1=2", "a", ",", "{}", "ü=ß", "a =1", "encoder.x=1", "x=\n1", ".=1"])
    if known and chance.random() < 0.6:
        text = f"{chance.choice(known)}={chance.choice(['abc', '', '½', '--', '1e', '[]', '(1,', '1 1', 'none,'])}"
    base = BY_NAME[chance.choice(("train_lm", "train_mt", "warm_start", "plot_curve"))]
    if base.base == "plot_curve":
        arguments = ("plot", "curve", encoding, "--output", "out.png", "--position-hparams", text)
    else:
        arguments = (*base.arguments, "--position-encoding", encoding, "--position-hparams", text)
    return base.but("--position-hparams", f"{encoding}: {text!r}", arguments=arguments)


def overrides(chance):
    base = BY_NAME[chance.choice(("validate", "generate", "interactive", "eval_lm"))]
    text = chance.choice(
        [
            "{",
            "abc",
            "[1]",
            "3",
            "''",
            "{'encoder_layers': 'x'}",
            "{'encoder_layers': 99}",
            "{1: 2}",
            "{'nosuch': 1}",
            "{'encoder_embed_dim': 7}",
            "{'position_encoding': 'nosuch'}",
            "{'arch'}",
            "None",
            "__import__('os').system('touch canary')",
            "{'a': __import__('os').system('touch canary')}",
            "{'decoder_layers': 5}",
            "{'position_hparams': 'x'}",
            "é",
            "{'encoder_attention_heads': 3}",
        ]
    )
    unused = {"validate": ("decoder",), "eval_lm": ("encoder", "position")}.get(base.base, ())
    if any(f"'{word}_" in text for word in unused):
        text = "{'nosuch': 1}"  # that setting says nothing to this model
    return base.but("--model-overrides", text, arguments=base.with_flag("--model-overrides", text))


def launcher(chance):
    ours = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29777",
        "WORLD_SIZE": "2",
        "RANK": "0",
        "LOCAL_RANK": "0",
        "RELPOS_JOIN_TIMEOUT": "2",
    }
    wrong = chance.choice(
        [
            {},
            {"WORLD_SIZE": "abc"},
            {"WORLD_SIZE": "-1"},
            {"WORLD_SIZE": "2.0"},
            {"RANK": "5"},
            {"RANK": "-1"},
            {"RANK": "x"},
            {"RANK": ""},
            {"MASTER_PORT": "abc"},
            {"MASTER_PORT": "99999"},
            {"MASTER_PORT": "-1"},
            {"MASTER_ADDR": "no.such.host.invalid", "RANK": "1"},
            {"MASTER_ADDR": "", "RANK": "1"},
            {"RELPOS_JOIN_TIMEOUT": "x"},
            {"MASTER_ADDR": None},
            {"MASTER_PORT": None},
            {"RANK": None},
            {"LOCAL_RANK": "x"},
            {"RELPOS_JOIN_TIMEOUT": "-1"},
            {"SLURM_STEP_NUM_TASKS": "x", "WORLD_SIZE": None},
            {"SLURM_STEP_NUM_TASKS": "4", "WORLD_SIZE": None},
            {"RANK": "1"},
        ]
    )
    variables = {name: value for name, value in {**ours, **wrong}.items() if value is not None}
    base = BY_NAME[chance.choice(("train_lm", "train_mt", "train_lm", "validate"))]
    if "SLURM_STEP_NUM_TASKS" in variables or {"MASTER_ADDR", "MASTER_PORT", "RANK"} - set(variables):
        base = BY_NAME["train_lm"]  # a validation may run alone
    shown = " ".join(f"{k}={v}" for k, v in variables.items() if k in wrong) or "rank 1 does not come"
    unset = " ".join(f"no {k}" for k, v in wrong.items() if v is None)
    return base.but("launcher variables", f"{shown} {unset}".strip(), environment=variables)


#: what is written, and the flag or place that names it
WRITES = {
    "train_lm": "--save-dir",
    "train_mt": "--save-dir",
    "preprocess": "--destdir",
    "preprocess_new_dict": "--destdir",
    "import_tupe": 2,
    "warm_start": 2,
    "order_gap": "--json",
    "plot_bias": "--output",
    "plot_attention": "--output",
    "plot_curve": "--output",
    "plot_buckets": "--output",
    "plot_loss": "--output",
    "average": 0,
    "average_last": 0,
}


def no_room(chance):
    base = BY_NAME[chance.choice(sorted(WRITES))]
    place = WRITES[base.base]
    arguments = list(base.arguments)
    at = place if isinstance(place, int) else arguments.index(place) + 1
    if chance.random() < 0.5 and base.base != "order_gap":
        # a picture is some kilobytes, a binarised text a few hundred bytes
        room = chance.choice((0, 100) if base.base.startswith("preprocess") else (0, 1000, 4000))
        return base.but("no room", f"{room} bytes for a file", room=room)
    end = Path(arguments[at]).suffix
    arguments[at] = chance.choice(
        [f"/proc/nosuch/out{end}", f"lm.pt/out{end}", "n" * 300 + end, f"text{end}" if end else "text/train.a"]
    )
    change = None
    if end and arguments[at] == f"text{end}":

        def change(folder):
            shutil.copytree(folder / "text", folder / f"text{end}")

    return base.but("no room", f"writes to {arguments[at][:40]}", arguments=tuple(arguments), change=change)


KINDS = (
    wrong_value,
    misspelt_flag,
    misspelt_name,
    missing_argument,
    combination,
    path,
    cut,
    flipped,
    other_dictionary,
    text_encoding,
    foreign,
    hparams,
    overrides,
    launcher,
    no_room,
)
#: those of which a random call is new more often than not come more often
TURNS = (*KINDS, wrong_value, wrong_value, combination, path, cut, flipped, foreign)
