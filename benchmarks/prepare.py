"""Speed and memory of examples/roberta_pretraining/prepare.sh on generated text.

    nice python benchmarks/prepare.py --megabytes 2048 --workers 2 --json benchmarks/results/prepare_cpu.json
    nice python benchmarks/prepare.py --text FILE --tupe-compat
    python benchmarks/report.py         # benchmarks/results/*.json -> benchmarks/RESULTS.md

The generated text has English words in Zipf's proportions, sentences of 4 to 40 words, a duplicate among 20
paragraphs. Speed is megabytes (10^6) of raw text by the minutes of CPU time of all processes, which a
busy machine changes little, and by those of the clock. Memory is the largest that one process had (VmHWM), and the
sum over all processes of what is theirs alone, of what they share a part (PSS).
"""

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "examples" / "roberta_pretraining"
SECONDS = 0.5
WORDS, SENTENCES = 60_000, 100_000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=64, help="of generated text (2^20 bytes)")
    parser.add_argument("--text", nargs="+", metavar="FILE", help="this instead")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--tupe-compat", action="store_true")
    parser.add_argument(
        "--folder", type=Path, help="where there is room for 4 times the text (default: a temporary one)"
    )
    parser.add_argument("--note", default="", help="what else ran on the machine")
    parser.add_argument("--json", type=Path, help="write the results here")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        texts = [Path(text).resolve() for text in args.text or []] or [
            generate(Path(folder, "text.txt"), args.megabytes)
        ]
        size = sum(text.stat().st_size for text in texts)
        row = measure(Path(folder), texts, args)
    row |= {
        "megabytes": size / 1e6,
        "per_minute_and_core": size / 1e6 / (row["cpu_seconds"] / 60),
        "per_minute": size / 1e6 / (row["seconds"] / 60),
    }
    del args.folder
    from result_file import save  # here, because it imports torch

    save("prepare", args, [row])


def generate(path, megabytes):
    """The same text on every machine."""
    chance = random.Random(1)
    letters, weights = (
        "etaoinshrdlcumwfgypbvkxjqz",
        [12, 9, 8, 8, 7, 7, 6, 6, 6, 4, 4, 3, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 0.2, 0.2, 0.1, 0.1],
    )
    words = list(
        dict.fromkeys(
            "".join(chance.choices(letters, weights, k=2 + min(12, int(chance.expovariate(0.25)))))
            for _ in range(WORDS)
        )
    )
    cumulated, total = [], 0
    for rank in range(len(words)):
        total += 1 / (rank + 3)
        cumulated.append(total)
    sentences = []
    for _ in range(SENTENCES):
        sentence = chance.choices(words, cum_weights=cumulated, k=chance.randint(4, 40))
        sentences.append(" ".join(sentence).capitalize() + chance.choice([".", ".", ".", "?", "…", ". (“So.”)"]))
    paragraph = ""
    with open(path, "w", encoding="utf-8") as file, tqdm(total=megabytes, unit="MiB", desc="text", disable=None) as bar:
        written = 0
        while written < megabytes << 20:
            document = []
            for _ in range(chance.randint(2, 12)):
                if chance.random() > 0.05:
                    paragraph = " ".join(chance.choices(sentences, k=chance.randint(1, 8)))
                document.append(paragraph)
            text = "\n".join(document) + "\n\n"
            file.write(text)
            bar.update((written + len(text) >> 20) - (written >> 20))
            written += len(text)
    return path


def measure(folder, texts, args):
    flags = ["--tupe-compat"] if args.tupe_compat else []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    process = subprocess.Popen(
        ["bash", RECIPE / "prepare.sh", "--out", folder / "out", "--workers", str(args.workers), *flags, *texts],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    memory = Memory(process.pid)
    memory.start()
    if process.wait():
        raise SystemExit("prepare.py: error: prepare.sh failed: see above")
    seconds = time.monotonic() - start
    memory.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    manifest = json.loads((folder / "out" / "manifest.json").read_text())
    shutil.rmtree(folder / "out")
    return {
        "seconds": seconds,
        "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "process_megabytes": memory.process / 1000,
        "all_megabytes": memory.all / 1000,
        "tokens": manifest["steps"]["pieces"]["train tokens"],
    }


class Memory(threading.Thread):
    """Looks at a process and its children until it ends. In kB."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid = pid
        self.process = self.all = 0

    def run(self):
        while Path(f"/proc/{self.pid}/status").exists() and "State:\tZ" not in read(f"/proc/{self.pid}/status"):
            found = [self.pid]
            for pid in found:
                found += map(int, read(f"/proc/{pid}/task/{pid}/children").split())
            self.process = max([self.process, *(value(pid, "status", "VmHWM:") for pid in found)])
            self.all = max(self.all, sum(value(pid, "smaps_rollup", "Pss:") for pid in found))
            time.sleep(SECONDS)


def read(path):
    try:
        return Path(path).read_text()
    except OSError:
        return ""  # it has ended


def value(pid, file, name):
    text = read(f"/proc/{pid}/{file}")
    return int(text.split(name)[1].split()[0]) if name in text else 0


if __name__ == "__main__":
    main()
