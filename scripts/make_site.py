"""The documents as a site. Its pages open from a disk as well as from a server; its search needs a server.

    pip install -e ".[site]"
    python scripts/make_site.py [FOLDER]      # default: build/site; FOLDER/index.html is its first page
    python -m http.server --directory FOLDER  # with its search, at http://localhost:8000

Its pages are those of the repository: README.md, docs, the recipes' and the benchmarks'. In place of a section of
docs/encodings.md each encoding has a page of its own, made of the same docstring and measurements, with its equation,
its curve as it starts, the papers' and our results, and how to cite it. The reference is made of the docstrings. Needs
no network.
"""

import argparse
import contextlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import make_docs  # noqa: E402
import papers  # noqa: E402

from fairseq_relpos.encodings import ENCODINGS  # noqa: E402
from fairseq_relpos.references import BIBLIOGRAPHY, papers_of  # noqa: E402

PAGES = ("*.md", "docs/*.md", "examples/*/*.md", "examples/*/*/*.md", "benchmarks/*.md")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?![a-z]+:)([^)#\s]*)(#[^)\s]*)?\)")
TARGET = re.compile(r"\]\((?![a-z]+:)([^)#\s]+)")
CODE = re.compile(r"(```.*?```)", re.DOTALL)
#: the parts of the menu: title -> pages, in this order; every other page of docs is a guide
RECIPES = sorted(path.parent.name for path in ROOT.glob("examples/*/README.md"))
#: modules with a page of the reference each, for every name of their __all__
REFERENCE = (
    "fairseq_relpos",
    "fairseq_relpos.nn",
    "fairseq_relpos.hf",
    "fairseq_relpos.encodings",
    "fairseq_relpos.positions",
    "fairseq_relpos.terms",
    "fairseq_relpos.backends",
)
CONFIG = """\
site_name: fairseq_relpos
docs_dir: pages
use_directory_urls: false
theme:
  name: material
  font: false
  features: [navigation.tabs, navigation.top, search.highlight, content.code.copy]
  palette:
    - {{media: "(prefers-color-scheme: light)", scheme: default, toggle: {{icon: material/weather-night, name: Dark}}}}
    - {{media: "(prefers-color-scheme: dark)", scheme: slate, toggle: {{icon: material/weather-sunny, name: Light}}}}
extra_css: [site.css]
plugins:
  - search
  - mkdocstrings:
      enable_inventory: false
      handlers:
        python:
          paths: ["{root}"]
          options:
            docstring_style: google
            docstring_options: {{warn_missing_types: false, warnings: false}}
            heading_level: 2
            inherited_members: false
            line_length: 80
            members_order: source
            merge_init_into_class: true
            separate_signature: true
            show_attribute_values: false
            show_bases: false
            show_if_no_docstring: false
            show_labels: false
            show_root_full_path: false
            show_root_heading: true
            show_root_toc_entry: true
            show_signature_annotations: true
            show_source: false
markdown_extensions:
  - attr_list
  - tables
  - pymdownx.superfences
  - pymdownx.highlight: {{use_pygments: true}}
  - toc:
      permalink: true
      toc_depth: 3
      slugify: !!python/object/apply:pymdownx.slugs.slugify {{kwds: {{case: lower}}}}
validation: {{omitted_files: ignore, absolute_links: warn, unrecognized_links: warn, anchors: warn}}
nav:
{nav}
"""
#: names stay whole, tables fit a phone, and equations, black on white, are light in the dark
CSS = """\
.md-typeset table code { word-break: normal; }
.md-typeset table:not([class]) :is(th, td):not([class]) { min-width: 0; padding: 0.5em 0.6em; }
@media (max-width: 30em) {
  .doc-heading { font-size: 0.75rem; }
  .md-typeset table:not([class]) :is(th, td):not([class]) { padding: 0.3em; }
}
[data-md-color-scheme="slate"] img[src$=".svg"] { filter: invert(1); mix-blend-mode: screen; }
"""


class Wrong(Exception):
    """Why there is no site, in one line."""


# --- equations ---

#: words of an equation that stand upright
FUNCTIONS = "log exp sin cos min max".split()
GREEK = "beta delta gamma lambda theta psi Phi".split()
UPRIGHT = (
    "clip clamp base bucket MLP leaky relu sigmoid softmax softplus sign ceil reset sinusoid npos layer CLS".split()
)


def braced(text, opening):
    """The text with what stands in the brackets at ``opening`` in braces instead."""
    depth = 0
    for place in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return f"{text[:opening]}{{{text[opening + 1 : place]}}}{text[place + 1 :]}"
    raise Wrong(f"an equation has a bracket that is not closed: {text}")


def typeset(equation):
    """A docstring's equation in TeX, as matplotlib reads it."""
    text = re.sub(r"U\{(.*?)\}", r"U\\{\1\\}", equation)
    for begin in (r"sqrt(?=\()", r"[\^_](?=\()"):
        while match := re.search(rf"(?<!\\){begin}", text):
            whole = braced(text, match.end())
            text = f"{whole[: match.start()]}\\{match[0]}{whole[match.end() :]}"
    text = re.sub(r"\\([\^_])", r"\1", text).replace("~", r"\sim ").replace("...", "..").replace("..", r"\ldots ")
    text = re.sub(r"(?<=[\w)\]])\.(?=[\w(\[])", r" \\cdot ", text)
    text = re.sub(r"_([A-Za-z0-9]+)", r"_{\1}", text)
    text = re.sub(r"\bsum(?=_)", r"\\sum", text)

    def word(match):
        name = match[0]
        if name in FUNCTIONS or name in GREEK:
            return f"\\{name} "
        if name in UPRIGHT:
            return rf"\mathrm{{{name}}}"
        return name

    text = re.sub(r"(?<![\\A-Za-z])[A-Za-z]{3,}", word, text)
    # a sentence in an equation
    text = re.sub(
        r"(?<![\\{A-Za-z])(?:(?:is|its|scaled|value|reset|to|where|else|for|each|sequence|in|training|otherwise)\b ?)+",
        lambda match: r"\ \mathrm{" + match[0].strip().replace(" ", r"\ ") + r"}\ ",
        text,
    )
    return spaced(text)


def spaced(text):
    """With room between what is no argument of one function."""
    depth, parts = 0, []
    for part in re.split(r"([(){}]|, |; )", text):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(part, 0)
        parts.append(rf"{part[0]}\quad " if part in (", ", "; ") and depth == 0 else part)
    return "".join(parts)


def draw_equation(name, path):
    from matplotlib import mathtext

    try:
        mathtext.math_to_image(f"${typeset(equation_of(name))}$", path, format="svg")
    except ValueError as error:
        raise Wrong(f"the equation of {name} cannot be typeset: {' '.join(str(error).split())}") from None


def equation_of(name):
    return make_docs.equation_and_source(ENCODINGS[name])[0]


# --- the page of an encoding ---


def draw_curve(name, path):
    """Whether the encoding has a curve: `fairseq-relpos plot curve NAME`."""
    from fairseq_relpos.reports.encoding_plots import add_curve, plot_curve

    parser = argparse.ArgumentParser()
    add_curve(parser)
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            plot_curve(argparse.Namespace(**vars(parser.parse_args([name])), output=str(path)))
        except ValueError:  # it is no function of the distance
            return False
    return True


def pictures_of(name):
    """Yields the pictures of docs/images whose caption names the encoding."""
    for file, caption in make_docs.FIGURES:
        if f"`{name}`" in caption:
            yield f"![{caption.replace('`', '')}](../images/{file})\n\n{caption}"


def encoding_page(name, measured, found, curve):
    _, _, text = make_docs.page(name, measured).partition("\n\n")
    ascii_equation = " ".join(equation_of(name).split()).replace('"', "'")
    parts = [f"# `{name}`", f"![{ascii_equation}](images/{name}.svg)", text.strip()]
    parts.append("[The list of encodings](../encodings.md) explains the symbols, and what was measured.")
    if curve:
        parts.append(f"## As it starts\n![bias or gain of each head against the distance](images/{name}_curve.png)")
        parts.append(
            f"`fairseq-relpos plot curve {name}` draws it. With a checkpoint it draws what the model has learned."
        )
    if pictures := list(pictures_of(name)):
        parts += ["## Pictures", *pictures]
    if rows := list(results_of(name, found)):
        parts.append("## Results of the papers, and ours")
        parts.append("\n".join(["| | the paper | here |", "|---|---|---|", *rows]))
        parts.append("Ours are of small models: the entry says what differs.")
    parts.append("## How to cite it")
    parts.append("```bibtex\n{}\n```".format("\n\n".join(bibtex(paper.key) for paper in papers_of(ENCODINGS[name]))))
    return linked(
        "\n\n".join(parts).replace("](../benchmarks", "](../../benchmarks") + "\n", Path("docs/encodings/x.md")
    )


def results_of(name, found):
    """A row for each table of the papers with this encoding."""
    for paper in found:
        for what, values in paper.entries.items():
            if "numbers" not in values:
                continue
            entry = f"{paper.name} {what}"
            head, rows = papers.table_of(entry, values)
            for row in rows:
                if f"`{name}`" in row[0]:
                    cells = {"paper": [], "here": []}
                    for title, cell in zip(head[1:], row[1:]):
                        side = "here" if title.startswith(papers.HERE) else "paper"
                        if cell:
                            cells[side].append(f"{title.removeprefix(papers.HERE)} {cell}".strip())
                    here = "<br>".join(cells["here"]).replace("](../", "](../../")
                    yield f"| [{entry}](../papers.md#{papers.anchor(entry)}) | {', '.join(cells['paper'])} | {here} |"


def bibtex(key):
    return re.search(rf"@\w+{{{key},\n.*?\n}}", BIBLIOGRAPHY.read_text(encoding="utf-8"), re.DOTALL)[0]


def list_of_encodings():
    """The text of docs/encodings.md on the site: the legend, the list, and the pictures."""
    legend, figures = make_docs.LEGEND, make_docs.figures()
    table = make_docs.table().replace("](#", "](encodings.md#")
    return "\n".join([legend, f"{make_docs.abbreviations()}\n", table, "", figures])


# --- all pages ---


def linked(text, page):
    """The text with the links to encodings and to folders as they are on the site."""

    def link(match):
        label, target, anchor = match[1], match[2], match[3] or ""
        if target.endswith("encodings.md") and anchor.removeprefix("#") in ENCODINGS:
            return f"[{label}]({target.removesuffix('.md')}/{anchor.removeprefix('#')}.md)"
        where = ROOT / page.parent / target
        if target and where.is_dir():
            readme = f"{target.rstrip('/')}/README.md"
            return f"[{label}]({readme})" if (ROOT / page.parent / readme).is_file() else label
        return match[0]

    parts = CODE.split(text)
    parts[::2] = [LINK.sub(link, part) for part in parts[::2]]
    return "".join(parts)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def collect(folder):
    """Writes the sources of all pages, and the files that they lead to, into the folder."""
    measured, found = make_docs.measurements(), papers.read()[1]
    for page in sorted({path.relative_to(ROOT) for pattern in PAGES for path in ROOT.glob(pattern)}):
        text = (ROOT / page).read_text(encoding="utf-8")
        write(folder / page, linked(list_of_encodings() if page == Path("docs/encodings.md") else text, page))
    images = folder / "docs/encodings/images"
    images.mkdir(parents=True)
    for name in ENCODINGS:
        draw_equation(name, images / f"{name}.svg")
        curve = draw_curve(name, images / f"{name}_curve.png")
        write(folder / f"docs/encodings/{name}.md", encoding_page(name, measured[name], found, curve))
    for module in REFERENCE:
        write(folder / f"docs/reference/{module}.md", reference_page(module))
    write(folder / "site.css", CSS)
    for page in folder.rglob("*.md"):
        for name in TARGET.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
            target = Path(os.path.normpath(page.relative_to(folder).parent / name))
            if not (folder / target).exists() and (ROOT / target).is_file():
                (folder / target).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / target, folder / target)


def reference_page(module):
    """The page of a module: its docstring, and each name of its __all__."""
    import griffe

    read = griffe.load(module, search_paths=[ROOT], resolve_aliases=True)  # without what it imports, as transformers
    hidden = "{members: false, show_root_heading: false, show_root_toc_entry: false}"
    parts = [f"# `{module}`", f"::: {module}\n    options: {hidden}"]
    parts.append(f"Examples begin with `import torch` and `from {module} import *`.")
    for name in read.exports:
        parts.append(f"::: {module}.{name}")
        if name.endswith("Config"):  # fields have no docstrings of their own
            fields = [x for x in read[name].members.values() if x.is_attribute and x.annotation is not None]
            lines = "\n".join(f"{field.name}: {field.annotation} = {field.value}" for field in fields)
            parts.append(f"```python\n{lines}\n```")
    return "\n\n".join(parts)


def nav():
    documents = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Documents")[2]
    guides = {path.name for path in ROOT.glob("docs/*.md")} - {"papers.md", "encodings.md", "recipes.md"}
    guides = sorted(sorted(guides), key=lambda name: len(documents.partition(f"](docs/{name})")[0]))  # README's order
    lines = ["  - Start: README.md", "  - Papers: docs/papers.md", "  - Encodings:", "    - All: docs/encodings.md"]
    lines += [f"    - {name}: docs/encodings/{name}.md" for name in sorted(ENCODINGS)]
    lines += ["  - Reference:", *(f"    - {module}: docs/reference/{module}.md" for module in REFERENCE)]
    lines += ["  - Recipes:", "    - How they work: docs/recipes.md"]
    for recipe in RECIPES:
        lines.append(f"    - {recipe}:")
        for page in sorted((ROOT / "examples" / recipe).glob("*.md"), key=lambda path: path.name != "README.md"):
            title = "how" if page.name == "README.md" else page.stem.capitalize().lower()
            lines.append(f"      - {title}: {page.relative_to(ROOT)}")
        for page in sorted((ROOT / "examples" / recipe).glob("*/*.md")):
            lines.append(f"      - {page.parent.name.replace('_', ' ')}: {page.relative_to(ROOT)}")
    lines += ["  - Guides:", *(f"    - {name.removesuffix('.md')}: docs/{name}" for name in guides)]
    lines += ["    - benchmarks: benchmarks/RESULTS.md", "    - kernels: benchmarks/KERNELS.md"]
    return "\n".join([*lines, "    - contributing: CONTRIBUTING.md", "    - changelog: CHANGELOG.md"])


def make(out):
    if not all(map(importlib.util.find_spec, ("mkdocs", "material", "mkdocstrings_handlers"))):
        raise Wrong('mkdocs-material or mkdocstrings is not installed: pip install -e ".[site]"')
    if out.exists() and not (out / "search" / "search_index.json").is_file() and any(out.iterdir()):
        raise Wrong(f"{out} has other files than those of a site: give an empty or a new folder")
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        collect(folder / "pages")
        write(folder / "mkdocs.yml", CONFIG.format(nav=nav(), root=ROOT))
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", "mkdocs.yml"]
        environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
        done = subprocess.run(
            [*command, "--site-dir", "site"], cwd=folder, env=environment, capture_output=True, text=True
        )
        if done.returncode:
            told = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith(("WARN", "ERROR"))]
            raise Wrong("mkdocs refuses the pages: " + "; ".join(told or [done.stderr.strip().splitlines()[-1]]))
        (folder / "site" / "404.html").unlink()  # it only works in the root of a server
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(out, ignore_errors=True)
        shutil.move(folder / "site", out)
    return len(list(out.rglob("*.html")))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build/site", metavar="FOLDER")
    out = parser.parse_args().folder
    try:
        print(f"{out}/index.html: {make(out)} pages")
    except (Wrong, papers.Wrong, OSError) as error:
        sys.exit(f"make_site.py: error: {error}")


if __name__ == "__main__":
    main()
