"""The steps one after the other; those that are done are left out."""

import os
import shutil
import sys
import threading
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from fetching import digest_of
from messages import fail, script
from tqdm import tqdm

from fairseq_relpos.atomic_files import write_json, write_text

from . import binarising, cleaning, duplicates, pieces, sources, splits, storage, vocabulary

MANIFEST = "manifest.json"
SOURCES = "sources.txt"
#: no thread beside the processes that are forked
tqdm.monitor_interval = 0
#: tasks that wait for each worker: few, because a task holds its text
WAITING = 2
SECONDS = 0.5


@dataclass(frozen=True)
class Settings:
    """The settings of the recipe that concern the text."""

    vocabulary: str
    #: entries of fairseq's dictionary, including <s>, <pad>, </s>, <unk> and <mask>
    vocab_size: int
    #: merges of two pieces; 0: as many as fit
    merges: int
    #: text from which the vocabulary is learned
    vocab_megabytes: int
    character_coverage: float
    lowercase: bool
    moses_tokens: bool
    #: one document in so many is for validation
    valid_every: int
    #: pieces of a line, </s> not counted
    longest_line: int


class Pipeline:
    def __init__(self, out, paths, settings, workers):
        self.out, self.work = Path(out), Path(out, "work")
        self.files = sources.files_of(paths)
        self.settings, self.workers = settings, workers

    def run(self):
        made_of = {"settings": asdict(self.settings), "inputs": self.describe_inputs()}
        manifest = self.out / MANIFEST
        if manifest.exists():
            before = storage.read_json(manifest)
            if not before["settings"].get("tupe_compat"):  # of 1.0.0rc1
                before["settings"].pop("tupe_compat", None)
            if made_of.items() <= before.items():
                say(f"{self.out} is ready")
                return
            say(f"the text or its settings have changed: {self.out} is made again")
            self.start_over()
        begun = self.work / "begun.json"
        if begun.exists() and storage.read_json(begun) != made_of:
            say("the text or its settings have changed since it was begun: from the start")
            storage.remove(self.work)
        self.work.mkdir(parents=True, exist_ok=True)
        storage.remove_parts(self.work)
        write_json(begun, made_of)
        self.make(made_of)

    def describe_inputs(self):
        return [
            {"name": path.name, "bytes": path.stat().st_size, "sha256": digest_of("sha256", path)}
            for path in tqdm(self.files, "checksums", unit="file", disable=None, leave=False)
        ]

    def start_over(self):
        (self.out / MANIFEST).unlink()  # first: it says that the rest is there
        self.remove_outputs()
        storage.remove(self.work)

    def remove_outputs(self, but=()):
        """Removes the files of an earlier run, of which fairseq would read train7.bin together with the new ones."""
        for pattern in ("train*.bin", "train*.idx", "valid*.bin", "valid*.idx", "dict.txt", "spm.model"):
            for path in self.out.glob(pattern):
                if path.name not in but:
                    path.unlink()

    def make(self, made_of):
        work, settings = self.work, self.settings
        steps = {"cleaning": self.clean()}
        blocks = range(steps["cleaning"].pop("blocks"))
        if not steps["cleaning"]["lines kept"]:
            fail(
                f"no line of {steps['cleaning'].get('lines', 0):,} is text, as cleaning.py counts it "
                f"({list_of(steps['cleaning'])}): give running text, a paragraph a line"
            )
        find = partial(duplicates.find_duplicates, work / "cleaned", work / "duplicates")
        steps["duplicates"] = self.step("duplicates", find, duplicates.ranges(steps["cleaning"]["lines kept"]))
        steps["sentences"] = self.step("sentences", partial(splits.write_sentences, work, settings), blocks)
        for split in splits.SPLITS:
            if not steps["sentences"].get(f"{split} sentences"):
                fail(
                    f"no document for {split}: {steps['cleaning']['documents']:,} documents and "
                    f"VALID_EVERY={settings.valid_every}; give more text or a smaller VALID_EVERY"
                )
        storage.remove(work / "cleaned", work / "duplicates")
        steps["vocabulary"] = self.single("vocabulary", self.make_vocabulary)
        tasks = [(block, split) for block in blocks for split in splits.SPLITS]
        steps["pieces"] = self.step("pieces", partial(pieces.write_pieces, work, settings), tasks)
        storage.remove(work / "sentences")
        self.step("binarised", partial(binarising.binarise, work), binarising.parts(len(blocks)))
        storage.remove(work / "pieces")
        self.finish(made_of, steps)

    # --- one step ---

    def clean(self):
        """Only when all has been read, it is known which blocks there are."""
        summary, folder = self.work / "cleaned.json", self.work / "cleaned"
        if not summary.exists():
            folder.mkdir(exist_ok=True)
            size = sum(path.stat().st_size for path in self.files)
            with tqdm(total=size, desc="cleaning", unit="B", unit_scale=True, disable=None) as bar:
                blocks = sources.blocks(self.files, bar.update)
                left = (block for block in blocks if not (folder / f"{block.number:06}.json").exists())
                clean = partial(cleaning.clean_block, folder)
                for _ in results(clean, left, self.workers):
                    pass
            counted = [storage.read_json(path) for path in sorted(folder.glob("[0-9]*.json"))]
            total = {"lines kept": 0, **sum(map(Counter, counted), Counter())}
            write_json(summary, total | {"blocks": len(counted)})
        return told("cleaning", storage.read_json(summary))

    def step(self, name, function, tasks):
        """Returns the counts of all tasks, each of which leaves a JSON file in the folder of the step."""
        summary, folder = self.work / f"{name}.json", self.work / name
        if not summary.exists():
            folder.mkdir(exist_ok=True)
            tasks = {folder / f"{label(task)}.json": task for task in tasks}
            left = [task for path, task in tasks.items() if not path.exists()]
            with tqdm(total=len(tasks), initial=len(tasks) - len(left), desc=name, disable=None) as bar:
                for _ in results(function, left, self.workers):
                    bar.update()
            write_json(summary, sum((Counter(storage.read_json(path)) for path in tasks), Counter()))
        return told(name, storage.read_json(summary))

    def single(self, name, function):
        summary = self.work / f"{name}.json"
        if not summary.exists():
            write_json(summary, function())
        return told(name, storage.read_json(summary))

    # --- what a step needs ---

    def make_vocabulary(self):
        if self.settings.vocabulary == "gpt2":
            for name in (*vocabulary.GPT2_FILES, vocabulary.DICTIONARY):  # prepare.py has fetched them
                shutil.copy(self.out / "gpt2" / name, self.work / name)
            words_of_it = sum(1 for _ in storage.lines_of(self.work / vocabulary.DICTIONARY))
            return {"dictionary": vocabulary.FAIRSEQS_OWN + words_of_it}
        say(f"learning a vocabulary of {self.settings.vocab_size:,}, on one core")
        return vocabulary.learn(self.work, self.settings)

    def finish(self, made_of, steps):
        work = self.work
        names = [vocabulary.MODEL, *vocabulary.GPT2_FILES, vocabulary.DICTIONARY]
        found = [*binarising.files(work), *(work / name for name in names if (work / name).exists())]
        kept = work / "outputs.json"
        if not kept.exists():
            write_json(kept, {path.name: digest_of("sha256", path) for path in found})
        outputs = storage.read_json(kept)
        for path in found:
            path.replace(self.out / path.name)
        self.remove_outputs(but=outputs)  # what a start from the beginning has left that was killed
        # for run.sh and the report: vocabulary and longest line; then digest, split and name
        lines = [f"vocabulary {self.settings.vocabulary} {self.settings.longest_line}"]
        lines += [f"{file['sha256']} train {file['name']}" for file in made_of["inputs"]]
        lines += [f"{outputs['valid.bin']} valid held-out"]
        write_text(self.out / SOURCES, "".join(f"{line}\n" for line in lines))
        # last: it says that the rest is there
        write_json(self.out / MANIFEST, made_of | {"steps": steps, "outputs": outputs})
        storage.remove(work)
        tokens = steps["pieces"]
        say(
            f"ready: {self.out}, {tokens['train tokens']:,} tokens for training and "
            f"{tokens['valid tokens']:,} for validation, dictionary {steps['vocabulary']['dictionary']:,}"
        )


def label(task):
    """Returns the name of the file of a task: a number, a number and more, or a name and more."""
    first, *more = task if isinstance(task, (tuple, list)) else [task]
    if isinstance(first, str):
        return first
    return f"{first:06}.{more[0]}" if more and isinstance(more[0], str) else f"{first:06}"


def list_of(counts):
    return ", ".join(f"{name} {count:,}" for name, count in counts.items() if isinstance(count, int))


def say(text):
    tqdm.write(f"{script()}: {text}", file=sys.stdout)
    sys.stdout.flush()


def told(step, counts):
    say(f"{step}: {list_of(counts) or 'none'}")
    return counts


def results(function, tasks, workers):
    """Yields function(task) of every task, in the order in which the processes end."""
    if workers == 1:
        yield from map(function, tasks)
        return
    pool = ProcessPoolExecutor(workers, get_context("fork"), end_with, (os.getpid(),))
    try:
        waiting = set()
        for task in tasks:
            if len(waiting) >= WAITING * workers:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
            waiting.add(pool.submit(function, task))
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    except BrokenProcessPool:
        fail("a worker was killed, perhaps for lack of memory: run again with fewer --workers; what is done is kept")
    finally:
        pool.shutdown(cancel_futures=True)


def end_with(parent):
    """Ends a worker whose parent has been killed, which would wait for tasks for ever."""

    def watch():
        while os.getppid() == parent:
            time.sleep(SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
