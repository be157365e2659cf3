"""All benchmarks of speed on a CPU, one after the other: less than an hour on a machine without other work.

    pip install transformers x-transformers      # for the rows of other libraries
    python benchmarks/cpu.py && python benchmarks/report.py

Writes benchmarks/results/*.json, and stops at the first benchmark that fails. --rounds 1 tries them out; --only NAME...
runs some of them. Everything else is said by the benchmarks themselves.
"""

import argparse
import shlex
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
FEW = "t5 tupe_r shaw m4 m4m"
TUPE = "tupe_a tupe_r tupe_a_tie_cls tupe_r_tie_cls"
CLIPPED = "shaw:max_distance=16 lfhc m4:max_distance=32 m4m:max_distance=32 deberta deberta:buckets=256"
SMALL = "--layers 2 --dim 128 --heads 2 --length 32 --batch 128 --vocabulary 4000 --dropout 0"
STEP = "train_step.py --layers 2 --dim 512 --heads 8 --archs"
MANY = " ".join(f"roberta_{name}" for name in "t5 at5 tupe_r m1 shaw transformer_xl m4 deberta m4m m3".split())
LANGUAGE_MODELS = " ".join(
    f"transformer_lm_{name}_gpt" for name in "none alibi t5 kerple_log sandwich transformer_xl".split()
)
SOME = "roberta_t5 roberta_tupe_r roberta_shaw roberta_m4"

#: file in results/ -> command and rounds
BENCHMARKS = {
    "attention_cpu": ("attention.py --lengths 128 512", 3),
    "attention_lengths_cpu": (f"attention.py --encodings {FEW} --lengths 128 512 2048 --batch 2", 2),
    "attention_long_cpu": ("attention.py --encodings t5 m4 --lengths 4096 --batch 1 --dropout 0", 2),
    "attention_clipped_cpu": (f"attention.py --encodings t5 {CLIPPED} --dropout 0 --allocators tuned", 5),
    "attention_clipped_long_cpu": (
        f"attention.py --encodings t5 {CLIPPED} --lengths 2048 4096 --batch 1 --dropout 0 --allocators tuned",
        2,
    ),
    "attention_stack_cpu": (
        f"attention.py --encodings {TUPE} --layers 12 --lengths 512 --dropout 0 --allocators tuned",
        2,
    ),
    "attention_backends_cpu": (
        f"attention.py --encodings {FEW} m3 --backends eager lean fused sdpa --lengths 512 --dropout 0 "
        "--allocators tuned",
        3,
    ),
    "attention_threads_cpu": (
        f"attention.py --encodings {FEW} --lengths 512 --threads 1 2 --dropout 0 --allocators tuned",
        5,
    ),
    "train_step_cpu_2x512_128": (f"{STEP} {MANY} --length 128 --batch 16", 3),
    "train_step_cpu_2x512_512": (f"{STEP} {SOME} --length 512 --batch 4", 5),
    "train_step_cpu_2x512_2048": (f"{STEP} roberta_t5 roberta_m4 --length 2048 --batch 1", 2),
    "train_step_cpu_amp": (f"{STEP} {SOME} --length 512 --batch 4 --amp --allocators tuned", 5),
    **{
        f"train_step_cpu_lm_{length}": (
            f"{STEP} {LANGUAGE_MODELS} --stock transformer_lm_gpt --length {length} --batch {batch} "
            f"--memory-length {length}",
            5,
        )
        for length, batch in ((128, 16), (512, 4))
    },
    "train_step_cpu_lm_gates": (
        f"{STEP} transformer_lm_t5_gpt transformer_lm_fox_gpt --stock transformer_lm_gpt --length 512 --batch 4",
        5,
    ),
    **{
        f"train_step_cpu_compiled{name}": (
            "train_step.py --layers 4 --dim 512 --heads 8 --length 128 --batch 16 --archs roberta_none roberta_t5 "
            f"--torch-compile --dropout {dropout} --allocators default",
            4,
        )
        for name, dropout in (("", 0), ("_dropout", 0.1))
    },
    "train_step_cpu_unpad": (
        f"train_step.py --layers 4 --dim 512 --heads 8 --length 128 --batch 16 --archs roberta_learned {SOME} "
        "--unpad --padding 0.4 --dropout 0.1 --allocators default",
        6,
    ),
    "train_step_cpu_small": (f"train_step.py --archs roberta_t5 {SMALL}", 12),
    "decode_cpu": ("decode.py --encodings none t5 alibi tupe_r shaw transformer_xl deberta m4 m4m m3 rope", 4),
    "public_code_cpu": ("public_code.py --lengths 512", 2),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS))
    parser.add_argument("--rounds", type=int, help="of each of them (default: what BENCHMARKS says)")
    parser.add_argument("--note", default="", help="what else ran on the machine")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder for the JSON files")
    args = parser.parse_args()
    missing = [name for name in ("transformers", "x_transformers") if find_spec(name) is None]
    if missing and "public_code_cpu" in args.only:
        parser.error(
            f"no {' and no '.join(missing)}: pip install transformers x-transformers, or leave public_code_cpu out"
        )
    for name in args.only:
        command, rounds = BENCHMARKS[name]
        script, *words = shlex.split(command)
        words += ["--rounds", str(args.rounds or rounds), "--note", args.note, "--json", args.results / f"{name}.json"]
        start = time.monotonic()
        done = subprocess.run([sys.executable, HERE / script, *words])
        if done.returncode:
            sys.exit(f"cpu.py: error: {name} failed, see above")
        print(f"{name}: {time.monotonic() - start:.0f} seconds", flush=True)


if __name__ == "__main__":
    main()
