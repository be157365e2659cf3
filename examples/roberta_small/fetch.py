"""The texts of RESULTS.md, and of that of language_modeling, from public files:

    python fetch.py FOLDER [--offline FILES]      -> FOLDER/{wiki,books}.{train,valid}.txt, FOLDER/wiki.valid{1,2}.txt

downloads.txt lists the files, texts.txt the articles and novels that are taken from them and the digests of the
texts. Articles lose lines with leftovers of markup, and novels get one paragraph a line. FILES: a folder that has the
files already.
"""

import argparse
import html
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))
from fetching import digest_of, fetch, read_list
from messages import fail, in_one_line

from fairseq_relpos.atomic_files import whole_file

HERE = Path(__file__).resolve().parent

ARTICLE = re.compile(r'<doc id="(\d+)"[^\n]*>\n(.*?)\n</doc>', re.DOTALL)
MARKUP = re.compile(r"[<>{}|]|https?://|\[\[")
EMPTY_BRACKETS = re.compile(r"\s*\(\s*\)")
BEGINNING_OF_BRACKETS = re.compile(r"\(\s*[,;]\s*")  # what stood before was markup

#: a line ends a paragraph only if it is shorter than this share of the longest lines
SHORT = 0.8
#: where the longest lines are longer than this, each line is a paragraph
WRAPPED = 200
HEADING = re.compile(r'[A-Z0-9 .,"-]+')
ENDS = "-.!?:;\"')*"


def article_lines(text):
    """The lines of an article, without those that have leftovers of markup."""
    for line in text.split("\n"):
        line = html.unescape(html.unescape(line))
        if MARKUP.search(line):
            continue
        line = BEGINNING_OF_BRACKETS.sub("(", EMPTY_BRACKETS.sub("", line))
        line = " ".join(line.split())
        if line:
            yield line


def paragraphs(text):
    """The paragraphs of a novel. In lines of equal width, a short one that ends a sentence ends a paragraph."""
    lines = [re.sub(r"[ \t\r]+", " ", line).strip(" ") for line in text.split("\n")]
    lengths = sorted(len(line) for line in lines if line)
    width = lengths[int(0.99 * len(lengths))]
    open_lines = []
    for line in [*lines, ""]:
        if line:
            open_lines.append(line)
        ends = line[-1:] in ENDS or HEADING.fullmatch(line)
        if open_lines and (ends and len(line) < SHORT * width or width > WRAPPED):
            yield " ".join(open_lines).replace("\f", " ")
            open_lines = []


def read_texts():
    """Name of a text -> its digest and its articles or novels, in order."""
    texts = {}
    for part in (HERE / "texts.txt").read_text(encoding="utf-8").split("\n\n")[1:]:
        name, digest, *items = part.split()
        texts[name] = digest, items
    return texts


def main(folder, offline):
    texts = {name: text for name, text in read_texts().items() if not (folder / name).exists()}
    files = folder / "files"
    names = [source.archive for source in read_list(HERE / "downloads.txt")]
    if texts:
        fetch(HERE / "downloads.txt", files, offline, names)
    documents = {}
    for name in names if texts else []:
        text = (files / name).read_bytes().decode("utf-8-sig")
        if name.startswith("wiki"):
            documents |= {number: "\n".join(article_lines(article)) for number, article in ARTICLE.findall(text)}
        else:
            documents[Path(name).stem] = "\n".join(paragraphs(text))
    for name, (digest, items) in texts.items():
        with whole_file(folder / name) as part:
            Path(part).write_bytes("".join(documents[item] + "\n\n" for item in items).encode())
            if digest_of("sha256", part) != digest:
                fail(f"{name} made from {files} is not the text of RESULTS.md: remove {files} and run again")
        print(f"{folder / name}: {len(items):,} {'articles' if name.startswith('wiki') else 'novels'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--offline", default="", metavar="FILES")
    args = parser.parse_args()
    with in_one_line(args.folder):
        main(args.folder, args.offline)
