"""The parts of SQuAD 1.1 that RESULTS.md is about:

    python parts.py FOLDER --train train-v1.1.json --xquad xquad.en.json   -> FOLDER/{train,valid,test}.json

train: the first ten articles of SQuAD's training file; valid: the next one, and the first 95 paragraphs of the one
after it; test: 22 articles of XQuAD's English part, which are paragraphs of SQuAD's development file with one answer
each.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))
from fetching import digest_of
from messages import fail, in_one_line

from fairseq_relpos.atomic_files import whole_file

#: the articles of test, in their order
TESTED = """
Warsaw Normans Computational_complexity_theory Southern_California Sky_(United_Kingdom) Victoria_(Australia) Huguenot
Steam_engine 1973_oil_crisis European_Union_law Immune_system Harvard_University Yuan_dynasty Scottish_Parliament
Imperialism Fresno,_California Jacksonville,_Florida Black_Death University_of_Chicago Rhine Newcastle_upon_Tyne
Private_school
""".split()
SHA256 = {
    "train": "7bfb4f2a183a09b6994572655b321e70d46c3088b0522da4ecdf4aab83b463f3",
    "valid": "b45b29fdc48c621e48e5d7b3d9babba344cd42cdb92d6063d88c662d96ea848a",
    "test": "14ad8735778dbc3c07275bf2ddb50e7a57b077aac1bc02906fbc3537b5f790cb",
}


def parts(train, xquad):
    """The articles of each part."""
    by_title = {article["title"]: article for article in xquad}
    last = {**train[11], "paragraphs": train[11]["paragraphs"][:95]}
    return {"train": train[:10], "valid": [train[10], last], "test": [by_title[title] for title in TESTED]}


def main():
    parser = argparse.ArgumentParser(prog="parts.py")
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    parser.add_argument("--train", metavar="FILE", required=True, type=Path)
    parser.add_argument("--xquad", metavar="FILE", required=True, type=Path)
    args = parser.parse_args()
    files = [json.loads(path.read_text(encoding="utf-8"))["data"] for path in (args.train, args.xquad)]
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, articles in parts(*files).items():
        with whole_file(args.folder / f"{name}.json") as part:
            text = json.dumps({"version": "1.1", "data": articles}, ensure_ascii=name != "test")
            Path(part).write_text(text, encoding="utf-8")
            if digest_of("sha256", part) != SHA256[name]:
                fail(f"{name}.json would not be that of RESULTS.md: give SQuAD 1.1 and XQuAD's xquad.en.json")


if __name__ == "__main__":
    with in_one_line():
        main()
