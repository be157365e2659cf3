"""The texts of WMT, from the network or from a folder:

    python fetch.py LIST FOLDER OFFLINE FILE...      -> FOLDER/FILE, for every FILE
    python fetch.py tokenise IN OUT LANGUAGE MODEL   Moses tokens of IN, truecased by MODEL

LIST and OFFLINE: see fetching.py. An address sacrebleu:SET is a test set of sacreBLEU's.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))
from fetching import fail, fetch, whole_file, write


def test_set(name, files, folder, source):
    from sacrebleu.dataset import DATASETS

    try:
        paths = DATASETS[name].get_source_file("en-de"), DATASETS[name].get_reference_files("en-de")[0]
    except (Exception, SystemExit) as error:  # sacreBLEU ends the program where a download fails
        fail(f"sacreBLEU cannot download {name} ({error}); {source.hint}")
    for language, path in zip(("en", "de"), paths):
        for file in files:
            if file.endswith(f".{language}"):
                with open(path, "rb") as text:
                    write(text, folder / file)


def tokenise(folder, languages, *texts):
    """As WMT17 has preprocessed its training text: normalised, hyphens split, truecased."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer, MosesTruecaser

    Path(folder, "tokenised").mkdir(exist_ok=True)
    for language in languages.split(","):
        missing = [text for text in texts if not Path(folder, "tokenised", f"{text}.{language}").exists()]
        if not missing:
            continue
        normalise = MosesPunctNormalizer(lang=language).normalize
        split = MosesTokenizer(lang=language).tokenize
        truecase = MosesTruecaser(load_from=f"{folder}/truecase-model.{language}").truecase
        for text in missing:
            with open(f"{folder}/{text}.{language}", encoding="utf-8", newline="\n") as file:
                tokens = [split(normalise(line.strip()), aggressive_dash_splits=True, return_str=True) for line in file]
            with whole_file(Path(folder, "tokenised", f"{text}.{language}")) as part:
                lines = [truecase(line, return_str=True) + "\n" for line in tokens]
                Path(part).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "tokenise":
        tokenise(*sys.argv[2:])
    else:
        list_path, folder, offline, *names = sys.argv[1:]
        fetch(list_path, folder, offline, names, {"sacrebleu:": test_set})
