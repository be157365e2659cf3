"""The tables of GLUE, from the network or from a folder.

    get(LIST, FOLDER, OFFLINE, [TASK...])      -> FOLDER/TASK/*.tsv

OFFLINE: a folder with TASK/*.tsv (also .xz, .gz), or with the archives of LIST. It must have the tables for training
and validation; those for tests may be missing.
"""

from pathlib import Path

from fetching import copied, fetch, read_list
from messages import fail

from fairseq_relpos.atomic_files import forms_of, write_text

#: no archive provides it; the GLUE server wants predictions for it, too
DIAGNOSTIC = "MNLI/diagnostic.tsv"
MSR = ("msr_paraphrase_train.txt", "msr_paraphrase_test.txt", "mrpc_dev_ids.tsv")


def lies_in(folder, name):
    return bool(forms_of(Path(folder, name)))


def wanted(sources, task, offline):
    """Returns the files to get for a task, and those that the folder lacks."""
    if task == "MRPC":
        tables = [f"MRPC/{name}.tsv" for name in ("train", "dev", "test")]
        given = [name for name in tables if offline and lies_in(offline, name)]
        if tables[0] in given and tables[1] in given:
            return given, []
        return list(MSR), [name for name in MSR if offline and not lies_in(offline, name)]
    (source,) = [source for source in sources if source.provides[0].startswith(f"{task}/")]
    more = [DIAGNOSTIC] if task == "MNLI" and offline and lies_in(offline, DIAGNOSTIC) else []
    if not offline or lies_in(offline, source.archive):
        return [*source.provides, *more], []
    missing = [name for name in source.provides if not lies_in(offline, name)]
    needed = [name for name in missing if "/test" not in name]
    return [*(name for name in source.provides if name not in missing), *more], needed


def make_mrpc(folder):
    """GLUE's split of the paraphrase corpus: its training part without the pairs of mrpc_dev_ids.tsv, and these."""
    lines = {name: (folder / name).read_text(encoding="utf-8-sig").strip("\n").split("\n") for name in MSR}
    header, *pairs = lines[MSR[0]]
    chosen = {tuple(line.split("\t")[:2]) for line in lines[MSR[2]]}
    in_dev = [tuple(pair.split("\t")[1:3]) in chosen for pair in pairs]
    tables = {
        "train": [header, *(pair for pair, dev in zip(pairs, in_dev) if not dev)],
        "dev": [header, *(pair for pair, dev in zip(pairs, in_dev) if dev)],
        "test": lines[MSR[1]],
    }
    if len(tables["dev"]) == 1:
        fail(f"{folder}/{MSR[2]} names no pair of {MSR[0]}: get both again")
    (folder / "MRPC").mkdir(exist_ok=True)
    for name, rows in tables.items():
        write_text(folder / f"MRPC/{name}.tsv", "\n".join(row.rstrip("\r") for row in rows) + "\n")


def get(list_path, folder, offline, tasks):
    sources = read_list(list_path)
    names, missing = [], []
    for task in tasks:
        found, lacking = wanted(sources, task, offline)
        names += found
        missing += lacking
    if missing:
        fail(f"--offline {offline} lacks {', '.join(missing)} (plain, .xz or .gz): add them, or leave these tasks out")
    tables = [name for name in names if name.startswith("MRPC/") or name == DIAGNOSTIC]  # no archive provides them
    fetch(list_path, folder, offline, [name for name in names if name not in tables])
    for name in tables:
        copied(Path(offline), name, Path(folder, name))
    if MSR[0] in names:
        make_mrpc(Path(folder))
    of_tasks = [name for source in sources for name in source.provides if name.split("/")[0] in tasks]
    of_tasks += ["MRPC/test.tsv"] if "MRPC" in tasks and MSR[0] not in names else []
    for name in of_tasks if offline else []:  # a test part of an earlier folder or download
        if "/test" in name and name not in names and Path(folder, name).exists():
            print(f"{folder}/{name} is removed, because {offline} has none")
            Path(folder, name).unlink()
