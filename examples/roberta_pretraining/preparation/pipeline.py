"""The steps one after the other, those that are done left out."""

from collections import Counter
from dataclasses import asdict
from functools import partial
from itertools import accumulate
from pathlib import Path

from tqdm import tqdm

from . import binarising, cleaning, duplicates, parallel, pieces, sources, splits, storage, vocabulary, words
from .problem import Problem

MANIFEST = "manifest.json"
SOURCES = "sources.txt"


class Pipeline:
    def __init__(self, out, paths, settings, workers, say):
        self.out, self.work = Path(out), Path(out, "work")
        self.files = sources.files_of(paths)
        self.settings, self.workers, self.say = settings, workers, say

    def run(self):
        made_of = {"settings": asdict(self.settings), "inputs": self.describe_inputs()}
        manifest = self.out / MANIFEST
        if manifest.exists():
            if is_part(made_of, storage.read_json(manifest)):
                self.say(f"{self.out} is ready")
                return
            self.say(f"the text or its settings have changed: {self.out} is made again")
            self.start_over()
        begun = self.work / "begun.json"
        if begun.exists() and storage.read_json(begun) != made_of:
            self.say("the text or its settings have changed since it was begun: from the start")
            storage.remove(self.work)
        self.work.mkdir(parents=True, exist_ok=True)
        storage.remove_parts(self.work)
        storage.write_json(begun, made_of)
        self.make(made_of)

    def describe_inputs(self):
        return [
            {"name": path.name, "bytes": path.stat().st_size, "sha256": storage.sha256(path)}
            for path in tqdm(self.files, "checksums", unit="file", disable=None, leave=False)
        ]

    def start_over(self):
        (self.out / MANIFEST).unlink()  # first: it says that the rest is there
        for pattern in ("train*.bin", "train*.idx", "valid*.bin", "valid*.idx", "dict.txt", "spm.model"):
            for path in self.out.glob(pattern):
                path.unlink()
        storage.remove(self.work)

    def make(self, made_of):
        work, settings = self.work, self.settings
        steps = {}
        steps["cleaning"] = self.clean()
        blocks = len(steps["cleaning"].pop("kept by block"))
        if not steps["cleaning"]["lines kept"]:
            raise Problem(
                f"no line of {steps['cleaning'].get('lines', 0):,} is text, as cleaning.py counts it "
                f"({list_of(steps['cleaning'])}): give running text, a paragraph a line"
            )
        steps["duplicates"] = self.step(
            "duplicates",
            partial(duplicates.find_duplicates, work / "cleaned", work / "duplicates"),
            duplicates.ranges(steps["cleaning"]["lines kept"]),
        )
        if settings.tupe_compat:
            steps["words"] = self.step("words", partial(words.count_words, work), range(blocks))
            steps["words"] |= self.single("frequent", lambda: words.choose_frequent(work / "words"))
        steps["sentences"] = self.step(
            "sentences", partial(splits.write_sentences, work, settings), self.sentence_tasks(blocks)
        )
        for split in splits.SPLITS:
            if not steps["sentences"].get(f"{split} sentences"):
                raise Problem(
                    f"no document for {split}: {steps['cleaning']['documents']:,} documents and "
                    f"VALID_EVERY={settings.valid_every}; give more text or a smaller VALID_EVERY"
                )
        storage.remove(work / "cleaned", work / "duplicates", work / "words")
        steps["vocabulary"] = self.single("vocabulary", self.make_vocabulary)
        steps["pieces"] = self.step(
            "pieces",
            partial(pieces.write_pieces, work, settings),
            [(block, split) for block in range(blocks) for split in splits.SPLITS],
        )
        storage.remove(work / "sentences")
        self.step("binarised", partial(binarising.binarise, work), binarising.parts(blocks))
        storage.remove(work / "pieces")
        self.finish(made_of, steps)

    # --- one step ---

    def clean(self):
        """Which blocks there are is known only when all has been read."""
        summary = self.work / "cleaned.json"
        if not summary.exists():
            folder = self.work / "cleaned"
            folder.mkdir(exist_ok=True)
            size = sum(path.stat().st_size for path in self.files)
            with tqdm(total=size, desc="cleaning", unit="B", unit_scale=True, disable=None) as bar:
                tasks = self.unfinished(folder, sources.blocks(self.files, bar.update))
                for _ in parallel.results(
                    partial(cleaning.clean_block, folder, self.settings.tupe_compat), tasks, self.workers
                ):
                    pass
            counted = [storage.read_json(path) for path in sorted(folder.glob("[0-9]*.json"))]
            total = dict(sum(map(Counter, counted), Counter()))
            total["lines kept"] = total.get("lines kept", 0)
            storage.write_json(summary, total | {"kept by block": [c["lines kept"] for c in counted]})
        found = storage.read_json(summary)
        self.say(f"cleaning: {list_of(found)}")
        return found

    def step(self, name, function, tasks):
        """The counts of all tasks, each of which leaves a JSON file in the step's folder."""
        summary = self.work / f"{name}.json"
        if not summary.exists():
            folder = self.work / name
            folder.mkdir(exist_ok=True)
            tasks = list(tasks)
            done = {label(task): task for task in tasks}
            left = [task for of_task, task in done.items() if not (folder / f"{of_task}.json").exists()]
            with tqdm(total=len(tasks), initial=len(tasks) - len(left), desc=name, disable=None) as bar:
                for _ in parallel.results(function, left, self.workers):
                    bar.update()
            counted = [Counter(storage.read_json(folder / f"{of_task}.json")) for of_task in done]
            storage.write_json(summary, sum(counted, Counter()))
        found = storage.read_json(summary)
        self.say(f"{name}: {list_of(found) or 'none'}")
        return found

    def unfinished(self, folder, blocks):
        for block in blocks:
            if not (folder / f"{block.number:06}.json").exists():
                yield block

    def single(self, name, function):
        summary = self.work / f"{name}.json"
        if not summary.exists():
            storage.write_json(summary, function())
        found = storage.read_json(summary)
        self.say(f"{name}: {list_of(found)}")
        return found

    # --- what a step needs ---

    def sentence_tasks(self, blocks):
        """(block, lines before it that are no duplicates)."""
        kept = storage.read_json(self.work / "cleaned.json")["kept by block"]
        if not (self.work / "sentences.json").exists():
            gone = duplicates.count_by_block(self.work / "duplicates", len(kept))
            kept = [count - duplicate for count, duplicate in zip(kept, gone)]
        return list(enumerate(accumulate([0, *kept[:-1]])))

    def describe_sources(self, made_of, outputs):
        """For run.sh and the report: vocabulary and longest line; then digest, split and name."""
        lines = [f"vocabulary {self.settings.vocabulary} {self.settings.longest_line}"]
        lines += [f"{file['sha256']} train {file['name']}" for file in made_of["inputs"]]
        lines.append(f"{outputs['valid.bin']} valid held-out")
        return "".join(f"{line}\n" for line in lines)

    def make_vocabulary(self):
        if self.settings.vocabulary == "gpt2":
            # where prepare.sh has put them
            for name in (*vocabulary.GPT2_FILES, vocabulary.DICTIONARY):
                storage.copy(self.out / "gpt2" / name, self.work / name)
            with open(self.work / vocabulary.DICTIONARY, encoding="utf-8") as file:
                return {"dictionary": vocabulary.FAIRSEQS_OWN + sum(1 for _ in file)}
        self.say(f"learning a vocabulary of {self.settings.vocab_size:,}, on one core")
        return vocabulary.learn(self.work, self.settings)

    def finish(self, made_of, steps):
        work = self.work
        found = binarising.files(work)
        names = [vocabulary.MODEL, *vocabulary.GPT2_FILES, vocabulary.DICTIONARY]
        found += [work / name for name in names if (work / name).exists()]
        outputs = work / "outputs.json"
        if not outputs.exists():
            storage.write_json(outputs, {path.name: storage.sha256(path) for path in found})
        for path in found:
            path.replace(self.out / path.name)
        storage.write_text(self.out / SOURCES, self.describe_sources(made_of, storage.read_json(outputs)))
        # last: it says that the rest is there
        storage.write_json(self.out / MANIFEST, made_of | {"steps": steps, "outputs": storage.read_json(outputs)})
        storage.remove(work)
        tokens = steps["pieces"]
        self.say(
            f"ready: {self.out}, {tokens['train tokens']:,} tokens for training and "
            f"{tokens['valid tokens']:,} for validation, dictionary {steps['vocabulary']['dictionary']:,}"
        )


def label(task):
    """The name of a task's file."""
    if isinstance(task, int):
        return f"{task:06}"
    if isinstance(task[0], str):
        return task[0]
    return f"{task[0]:06}.{task[1]}" if isinstance(task[1], str) else f"{task[0]:06}"


def is_part(some, whole):
    return all(whole.get(name) == value for name, value in some.items())


def list_of(counts):
    return ", ".join(f"{name} {count:,}" for name, count in counts.items() if isinstance(count, int))
