"""A tiny masked-LM corpus and fairseq's own commands, for tests through the command line."""

import functools
import os
import random
import subprocess
import sys
from pathlib import Path

import preloaded

USER_DIR = Path(__file__).parents[1] / "fairseq_relpos"
WORDS = [f"w{i}" for i in range(40)]
# without dropout two runs can be compared weight by weight
SMALL_ROBERTA = (
    "--encoder-layers 2 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32"
    " --encoder-attention-heads 2 --dropout 0 --attention-dropout 0"
).split()


def write_corpus(path, sentences, seed):
    """Random sentences of 3 to 14 words, one a line."""
    chance = random.Random(seed)
    lines = [" ".join(chance.choices(WORDS, k=chance.randint(3, 14))) for _ in range(sentences)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def binarise(folder, train=64, valid=24):
    """fairseq-preprocess over a random corpus; returns the data directory."""
    folder.mkdir(parents=True, exist_ok=True)
    write_corpus(folder / "train.txt", train, seed=1)
    write_corpus(folder / "valid.txt", valid, seed=2)
    (folder / "dict.txt").write_text("".join(f"{word} 1\n" for word in WORDS), encoding="utf-8")
    texts = ["--trainpref", folder / "train.txt", "--validpref", folder / "valid.txt"]
    data = folder / "bin"
    fairseq_ok("preprocess", "--only-source", "--srcdict", folder / "dict.txt", *texts, "--destdir", data)
    return data


def masked_lm(data, save_dir, *more, arch="roberta_base"):
    """Arguments of fairseq-train for a two-layer masked LM on the CPU."""
    arguments = [
        *[data, "--user-dir", USER_DIR, "--save-dir", save_dir],
        *"--cpu --seed 1 --task masked_lm".split(),
        *f"--sample-break-mode eos --tokens-per-sample 16 --arch {arch}".split(),
        *SMALL_ROBERTA,
        *"--max-positions 16 --criterion masked_lm --optimizer adam --lr 0.01 --batch-size 4".split(),
        *"--num-workers 0 --no-progress-bar --log-format simple".split(),
        *more,
    ]
    return [str(argument) for argument in arguments]


def language_modeling(data, save_dir, *more, arch, task="language_modeling"):
    """Arguments of fairseq-train for a two-layer language model on the CPU."""
    arguments = [
        *[data, "--user-dir", USER_DIR, "--save-dir", save_dir, "--task", task, "--arch", arch],
        *"--cpu --decoder-layers 2 --decoder-embed-dim 16 --decoder-input-dim 16 --decoder-output-dim 16".split(),
        *"--decoder-ffn-embed-dim 32 --decoder-attention-heads 2 --tokens-per-sample 16".split(),
        *"--optimizer adam --lr 0.01 --batch-size 4 --num-workers 0 --no-epoch-checkpoints".split(),
        *"--no-progress-bar --log-format simple".split(),
        *more,
    ]
    return [str(argument) for argument in arguments]


def binarise_translation(folder):
    """fairseq-preprocess over sentences and their reversals, one dictionary for both sides."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dict.txt").write_text("".join(f"{word} 1\n" for word in WORDS), encoding="utf-8")
    prefixes = []
    for seed, (split, count) in enumerate({"train": 64, "valid": 16, "test": 11}.items()):
        write_corpus(folder / f"{split}.a", count, seed)
        lines = (folder / f"{split}.a").read_text(encoding="utf-8").splitlines()
        reversals = [" ".join(reversed(line.split())) for line in lines]
        (folder / f"{split}.b").write_text("\n".join(reversals) + "\n", encoding="utf-8")
        prefixes += [f"--{split}pref", folder / split]
    data = folder / "bin"
    fairseq_ok(
        *"preprocess --source-lang a --target-lang b".split(),
        *prefixes,
        *f"--destdir {data} --srcdict {folder}/dict.txt --joined-dictionary".split(),
    )
    return data


def translation(data, save_dir, *more, arch):
    """Arguments of fairseq-train for a two-layer translation model on the CPU."""
    sizes = [
        f"--{stack}-{what}={size}"
        for stack in ("encoder", "decoder")
        for what, size in (("layers", 2), ("embed-dim", 16), ("ffn-embed-dim", 32), ("attention-heads", 2))
    ]
    arguments = [
        *[data, "--user-dir", USER_DIR, "--save-dir", save_dir],
        *f"--cpu --seed 1 --arch {arch}".split(),
        *sizes,
        *"--max-source-positions 20 --max-target-positions 20 --share-all-embeddings".split(),
        *"--criterion label_smoothed_cross_entropy --optimizer adam --lr 0.01 --batch-size 8".split(),
        *"--num-workers 0 --no-progress-bar --log-format simple".split(),
        *more,
    ]
    return [str(argument) for argument in arguments]


def denoising(data, save_dir, *more, arch):
    """Arguments of fairseq-train for a two-layer BART on the CPU, which fills in what a <mask> stands for."""
    arguments = translation(data, save_dir, arch=arch)
    own = "--task denoising --tokens-per-sample 18 --sample-break-mode complete --rotate 0 --mask 0.3"
    noise = "--mask-length span-poisson --poisson-lambda 2 --replace-length 1 --required-batch-size-multiple 1"
    return [*arguments, *own.split(), *noise.split(), *map(str, more)]


def with_plugin(command, folder, before_update):
    """The command with a --user-dir that loads ours and runs ``before_update``, Python lines, before each update; in
    them ``update`` counts from 1 and ``os`` is there."""
    folder.mkdir()
    lines = "".join(f"    {line}\n" for line in before_update.splitlines())
    (folder / "__init__.py").write_text(
        "import os, signal, sys\n"
        "from fairseq.trainer import Trainer\n"
        "step = Trainer.train_step\n"
        "def train_step(self, *args, **kwargs):\n"
        "    update = self.get_num_updates() + 1\n"
        f"{lines}"
        "    return step(self, *args, **kwargs)\n"
        "Trainer.train_step = train_step\n"
        f"sys.path.insert(0, {str(USER_DIR.parent)!r}); import fairseq_relpos; fairseq_relpos.register()\n"
    )
    at = command.index("--user-dir") + 1
    return [*command[:at], str(folder), *command[at + 1 :]]


def torchrun(ranks):
    """The launcher of `fairseq` that starts a command once per rank on this machine."""
    return ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]


def fairseq(command, *arguments, launcher=(), cwd=None, given=None, preload=True, **environment):
    """Runs `python -m fairseq_cli.COMMAND` without a GPU, with the bytes ``given`` as its
    input; .stdout has stderr in it as well. preload: in a Python that has imported torch before."""
    variables = preloaded.environment if preload else functools.partial(dict, os.environ)
    done = subprocess.run(
        [sys.executable, *launcher, "-m", f"fairseq_cli.{command}", *map(str, arguments)],
        # a process that aborts says where each of its threads was
        env=variables(**{"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONFAULTHANDLER": "1", **environment}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        input=given,
        cwd=cwd,
        timeout=600,
    )
    done.stdout = done.stdout.decode()
    return done


def error_line(done):
    """The one line in which a fairseq command has ended."""
    assert done.returncode != 0 and "Traceback" not in done.stdout, done.stdout
    return done.stdout.strip().splitlines()[-1]


def fairseq_ok(command, *arguments, **options):
    """Runs a fairseq command that has to succeed; returns what it printed."""
    done = fairseq(command, *arguments, **options)
    assert done.returncode == 0, done.stdout
    return done.stdout
