"""Raw text -> the data that fairseq-train reads: what prepare.sh of each recipe calls.

    prepare.py KIND [arguments]      KIND: a name in KINDS; the arguments are at the head of each prepare.sh

The settings of the recipe are in the environment. OUT/sources.txt says what OUT was made from: digest, split and name
of each file. Data of the same files and settings are kept. New ones are made in OUT/work and then moved, so that the
old data stay until all is done.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import corpus
import parallel_text
import question_text
from fetching import fetch
from making import (
    HERE,
    SPLITS,
    VOCABULARY_FILES,
    binarise,
    described,
    digest,
    folder_of,
    make,
    number,
    numbered,
    readable,
    setting,
    vocabulary_lines,
    vocabulary_of,
)
from messages import fail, in_one_line, say
from stopping import locked, need_fairseq

from fairseq_relpos.atomic_files import write_json
from fairseq_relpos.command_line import Parser, positive


def add_text(parser):
    """The flags of a recipe that takes any number of files for each split."""
    for kind in SPLITS:
        parser.add_argument(f"--{kind}", nargs="+", action="extend", default=[], metavar="FILE", type=readable)


def text(arguments):
    """Text of masked language models and of denoising: each validation and test file is a split of its own."""
    parser = Parser(prog="prepare.sh")
    parser.add_argument("out", metavar="OUT", type=Path)
    add_text(parser)
    given = parser.parse_args(arguments)
    if not given.train or not given.valid:
        fail("no text for training or validation; usage: prepare.sh OUT --train FILE... --valid FILE...")
    files = {"train": given.train}
    for kind in ("valid", "test"):
        files |= {numbered(kind, place): [file] for place, file in enumerate(vars(given)[kind])}
    make_text(given.out, f"vocabulary {setting('VOCAB_SIZE')} {setting('NORMALIZATION')}", files)


def language_model(arguments):
    """Text of a language model, with counts of its words and bytes."""
    parser = Parser(prog="prepare.sh")
    parser.add_argument("--out", metavar="OUT", type=Path, default=Path(setting("DATA")))
    parser.add_argument("--offline", metavar="FOLDER", type=folder_of)
    add_text(parser)
    given = parser.parse_args(arguments)
    kind = setting("VOCABULARY", "pieces", "words")
    files = {split: vars(given)[split] for split in SPLITS}
    if any(files.values()):
        if given.offline:
            fail("--offline is for the texts that are downloaded, and files were given")
    else:
        files = downloaded_texts(setting("TEXTS"), given.out / "texts", given.offline)
    for split, of_split in files.items():
        if not of_split:
            fail(f"no text for --{split}; usage: prepare.sh --train FILE... --valid FILE... --test FILE...")
    learned = f" {setting('VOCAB_SIZE')} {setting('NORMALIZATION')}" if kind == "pieces" else ""
    make_text(given.out, f"vocabulary {kind}{learned}", files, kind, counted=True)


def make_text(out, vocabulary, files, kind="pieces", counted=False):
    """Makes data of text: split -> its files. ``kind``: pieces, or the words of the training text. ``counted``: with
    counts.json, and with pieces that spell every character."""
    sources = [vocabulary, *(described(split, file) for split, of_split in files.items() for file in of_split)]

    def build(work):
        for split, of_split in files.items():
            with corpus.writing(work / f"{split}.txt") as (file,):
                corpus.copy(of_split, file)
        processor, flags = None, []
        if kind == "pieces":
            size = number("VOCAB_SIZE")
            say(f"vocabulary of {size} pieces, learned from the training text (a minute for 50 MB)")
            lines = corpus.lines_of(work / "train.txt")
            corpus.learn(work / "made" / "spm.model", lines, size, setting("NORMALIZATION"), byte_fallback=counted)
            corpus.write_vocabulary(work / "made", work / "dict.txt")
            processor, flags = corpus.processor_of(work / "made"), ["--srcdict", work / "dict.txt"]
        counts = {split: corpus.encode(work, split, processor, counted) for split in files}
        if counted:
            write_json(work / "made" / "counts.json", counts)
        for prefix in SPLITS:
            of_kind = [str(work / f"{split}.pieces") for split in files if split.startswith(prefix)]
            flags += [f"--{prefix}pref", ",".join(of_kind)] if of_kind else []
        binarise(work, "--only-source", *flags, "--workers", setting("WORKERS") or 1)
        if kind == "words":
            corpus.refuse_unknown_words(work / "made" / "dict.txt", work, ("valid", "test"))

    make(out, sources, build)


def downloaded_texts(name, folder, offline):
    """Fetches the texts of a list in downloads/. With other texts than those of NAME.sha1 no figure would compare with
    a paper's."""
    lists = HERE / "downloads"
    if not (lists / f"{name}.txt").exists():
        known = " ".join(sorted(path.stem for path in lists.glob("*.txt")))
        fail(f"TEXTS={name}: there are {known}; or give files: --train FILE... --valid FILE... --test FILE...")
    sums = (lists / f"{name}.sha1").read_text(encoding="utf-8").splitlines()
    digests = dict(reversed(line.split()) for line in sums)
    fetch(lists / f"{name}.txt", folder, offline, list(digests), sha1=digests)
    return {file.removeprefix("wiki.").partition(".")[0]: [folder / file] for file in digests}


def squad(arguments):
    """Questions in SQuAD's JSON, in the vocabulary of a pretraining."""
    parser = Parser(prog="prepare.sh")
    parser.add_argument("out", metavar="OUT", type=Path)
    parser.add_argument("--vocabulary", metavar="FOLDER", required=True, type=vocabulary_of)
    for split in SPLITS:
        parser.add_argument(f"--{split}", metavar="FILE", required=split != "test")
    given = parser.parse_args(arguments)
    files = {split: readable(vars(given)[split]) for split in SPLITS if vars(given)[split]}
    sources = [*vocabulary_lines(given.vocabulary), *vocabulary_lines(given.vocabulary, ["dict.txt"])]
    sources += [f"{digest(file)} {split}" for split, file in files.items()]

    def build(work):
        from fairseq_relpos.finetuning import squad

        for split, file in files.items():
            squad.encode(file, str(given.vocabulary), work / "made" / split, setting("METRIC", "squad", "cmrc"))
        shutil.copy(given.vocabulary / "dict.txt", work / "made")

    make(given.out, sources, build, given.vocabulary)


def glue(arguments):
    """The tables of GLUE, in the vocabulary of a pretraining: a folder for each task."""
    from fairseq_relpos.finetuning import prepare
    from fairseq_relpos.finetuning.glue import TASKS, task_of

    sys.path.append(str(HERE))
    from tables import get

    parser = Parser(prog="prepare.sh")
    parser.add_argument("--vocabulary", metavar="FOLDER", default=setting("VOCABULARY"))
    parser.add_argument("--offline", metavar="FOLDER", type=folder_of)
    parser.add_argument("tasks", metavar="TASK", nargs="*", default=list(TASKS))
    given = parser.parse_args(arguments)
    vocabulary, data = vocabulary_of(given.vocabulary), Path(setting("DATA"))
    tasks = [task_of(name) for name in given.tasks]
    with locked(data):
        get(HERE / "downloads.txt", data / "tsv", given.offline, [task.name for task in tasks])
        for task in tasks:
            tables, out = data / "tsv" / task.name, data / task.name
            sources = vocabulary_lines(vocabulary, ("dict.txt", *VOCABULARY_FILES))
            sources = "\n".join([*sources, *vocabulary_lines(tables, sorted(os.listdir(tables)))]) + "\n"
            if (out / "sources.txt").exists() and (out / "sources.txt").read_text() == sources:
                say(f"{out} is ready")
                continue
            print(prepare.prepare(task, tables, vocabulary, out))
            (out / "sources.txt").write_text(sources)


#: the files in downloads.txt of tasks of text_classification that may be downloaded
CLASSIFICATION = {
    **{"MR": ["rt-polarity.all"], "SUBJ": ["subj.all"], "CR": ["custrev.all"], "MPQA": ["mpqa.all"]},
    "SST-2": [f"stsa.binary.{part}" for part in ("train", "dev", "test")],
    "SST-5": [f"stsa.fine.{part}" for part in ("train", "dev", "test")],
    "TREC": ["TREC.train.all", "TREC.test.all"],
}


def classification(arguments):
    """Texts with labels, in the words of the training part or in the vocabulary of a pretraining."""
    from fairseq_relpos.finetuning import classification_data

    parser = Parser(prog="prepare.sh")
    parser.add_argument("--offline", metavar="FOLDER", type=folder_of)
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--glove", metavar="FILE", type=readable)
    given.add_argument("--vocabulary", metavar="FOLDER", type=vocabulary_of)
    parser.add_argument("tasks", metavar="TASK", nargs="+")
    given = parser.parse_args(arguments)
    out, texts = Path(setting("DATA")), given.offline or Path(setting("DATA"), "texts")
    settings = {"longest": number("MAX_LENGTH", least=3), "least": number("MIN_COUNT")}
    if given.glove:
        settings |= {"glove": given.glove, "dimension": number("EMBED_DIM")}
    if given.vocabulary:
        settings, out = {"vocabulary": given.vocabulary}, out / "finetuning"
    for name in given.tasks:
        classification_data.task_of(name)
        if not given.offline and name not in CLASSIFICATION:
            fail(f"{name} is not downloaded: give the folder with its files, --offline FOLDER (README.md)")
    for name in given.tasks:
        if not given.offline:
            fetch(HERE / "downloads.txt", texts, "", CLASSIFICATION[name])
        out.mkdir(parents=True, exist_ok=True)
        classification_data.prepare_all(name, texts, out / name, **settings)


def pretraining(arguments):
    """Text of a RoBERTa at the size of the papers: the steps are those of roberta_pretraining/preparation."""
    parser = Parser(prog="prepare.sh")
    parser.add_argument("--out", metavar="OUT", type=Path, default=Path(setting("DATA")))
    parser.add_argument("--workers", metavar="N", type=positive, default=setting("WORKERS"))
    parser.add_argument("--offline", metavar="FOLDER", type=folder_of)
    parser.add_argument("files", metavar="FILE|FOLDER", nargs="*")
    given = parser.parse_args(arguments)
    is_gpt2 = setting("VOCABULARY", "sentencepiece", "gpt2") == "gpt2"
    if given.offline and given.files and not is_gpt2:
        fail(f"--offline is for what downloads.txt lists, and files were given: {' '.join(given.files)}")
    sys.path.append(str(HERE))
    from preparation.pipeline import Pipeline, Settings

    settings = Settings(
        vocabulary=setting("VOCABULARY"),
        vocab_size=number("VOCAB_SIZE"),
        merges=number("MERGES", least=0),
        vocab_megabytes=number("VOCAB_MEGABYTES"),
        character_coverage=number("CHARACTER_COVERAGE", float, least=0.98),
        lowercase=setting("LOWERCASE", "yes", "no") == "yes",
        moses_tokens=setting("MOSES_TOKENS", "yes", "no") == "yes",
        valid_every=number("VALID_EVERY"),
        longest_line=number("TOKENS_PER_SAMPLE") - 2,
    )
    with locked(given.out), in_one_line(given.out):
        files = given.files or pretraining_texts(given.out / "own", given.offline, given.workers)
        if is_gpt2:  # before hours of text
            fetch(HERE / "downloads.txt", given.out / "gpt2", given.offline, ["encoder.json", "vocab.bpe", "dict.txt"])
        Pipeline(given.out, files, settings, given.workers).run()


def pretraining_texts(folder, offline, workers):
    """Fetches TEXTS. Wikipedia's dump is XML with markup, which another program turns into text."""
    names = setting("TEXTS").split()
    dumps = [name for name in names if name.endswith(".xml.bz2")]
    for name in dumps:
        if not (folder / f"{name}.text").is_dir():
            need_wikiextractor(name)
    fetch(HERE / "downloads.txt", folder, offline, names)
    for name in dumps:
        text, part = folder / f"{name}.text", folder / f"{name}.text.part"
        if text.is_dir() and text.stat().st_mtime >= (folder / name).stat().st_mtime:
            continue
        need_wikiextractor(name)
        say(f"wikiextractor: the text of {name} (hours)")
        shutil.rmtree(part, ignore_errors=True)
        flags = ["--json", "--no-templates", "--quiet", "--processes", workers, "-o", part, folder / name]
        if subprocess.call(["wikiextractor", *map(str, flags)]):
            fail(f"wikiextractor failed on {folder / name}")
        shutil.rmtree(text, ignore_errors=True)
        part.rename(text)
    return [folder / (f"{name}.text" if name in dumps else name) for name in names]


def need_wikiextractor(name):
    if not shutil.which("wikiextractor"):
        where = "pip install wikiextractor, in another environment and on the PATH"
        fail(f"{name} wants the program wikiextractor ({where}); or give text: prepare.sh FILE...")


KINDS = {
    **{kind.__name__: kind for kind in (text, language_model, squad, glue, classification, pretraining)},
    "questions": question_text.prepare,
    "toy": lambda arguments: parallel_text.prepare(arguments, parallel_text.toy_texts),
    "wmt": lambda arguments: parallel_text.prepare(arguments, parallel_text.wmt_texts),
}

if __name__ == "__main__":
    kind, *arguments = sys.argv[1:]
    need_fairseq()
    try:
        with in_one_line():
            KINDS[kind](arguments)
    except KeyboardInterrupt:
        fail("stopped: run the same command again")
