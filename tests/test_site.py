"""scripts/make_site.py: every page of the site, without a network."""

import importlib
import json
import os
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from matplotlib.mathtext import MathTextParser

from fairseq_relpos.encodings import ENCODINGS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def make_site(script_module):
    return script_module("make_site")


@pytest.fixture(scope="module")
def site(make_site, tmp_path_factory):
    for name in ("material", "mkdocstrings_handlers"):
        pytest.importorskip(name, reason=f'{name} is not installed: pip install "fairseq_relpos[site]"')
    out = tmp_path_factory.mktemp("built") / "site"
    make_site.make(out)
    return out


class Page(HTMLParser):
    """The links, the names that they can lead to, and what a page loads."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loaded, self.names, self.without_alt = [], [], set(), []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.names.add(found.get("id") or found.get("name"))
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in ("script", "img", "iframe") and found.get("src"):
            self.loaded.append(found["src"])
        if tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.loaded.append(found["href"])
        if tag == "img" and not found.get("alt"):
            self.without_alt.append(found["src"])


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in site.rglob("*.html")}


def test_every_link_leads_to_a_page_and_a_name_on_it(pages):
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            if target.is_dir():
                target /= "index.html"
            assert target.is_file(), f"{path}: {link}"
            assert not parts.fragment or target not in pages or parts.fragment in pages[target].names, f"{path}: {link}"


def test_a_page_loads_nothing_from_a_network_and_every_picture_has_a_text(pages):
    for path, page in pages.items():
        assert not page.without_alt, path
        for source in page.loaded:
            assert not urlsplit(source).scheme and (path.parent / source).is_file(), f"{path}: {source}"


def test_every_encoding_has_a_page_with_what_its_docstring_says_and_no_page_has_it_twice(site, make_site):
    for name in ENCODINGS:
        text = (site / f"docs/encodings/{name}.html").read_text(encoding="utf-8")
        assert f'src="images/{name}.svg"' in text and "How to cite it" in text and "<em>Measured</em>" in text
        assert not any(shown in text for shown in (r"\^", r"\|", r"\&lt;")), f"{name}: a backslash is shown"
    one = (site / "docs/encodings/tupe_r.html").read_text(encoding="utf-8")
    assert "TUPE Table 1" in one and "63.56" in one and "@inproceedings" in one
    without = (site / "docs/encodings/rope.html").read_text(encoding="utf-8")
    assert "Results of the papers" in one and "Results of the papers" not in without
    assert "<em>Measured</em>: time" not in (site / "docs/encodings.html").read_text(encoding="utf-8")


def test_the_reference_has_every_public_name_with_its_example(make_site, pages, site):
    for module in make_site.REFERENCE:
        path = site / f"docs/reference/{module}.html"
        text = path.read_text(encoding="utf-8")
        public = importlib.import_module(module).__all__
        assert not {f"{module}.{name}" for name in public} - pages[path].names
        assert text.count("Examples:</span>") >= len(public) - 1, module  # that of data is the module's
    assert "docs/reference/fairseq_relpos.nn.html" in (site / "index.html").read_text(encoding="utf-8")


def test_the_search_knows_the_pages(site):
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))["docs"]
    found = {
        entry["location"].partition("#")[0] for entry in index if "tupe" in (entry["title"] + entry["text"]).lower()
    }
    assert {"index.html", "docs/papers.html", "docs/encodings/tupe_r.html"} <= found


def test_every_equation_can_be_typeset(make_site):
    parser = MathTextParser("path")
    for name in ENCODINGS:
        tex = make_site.typeset(make_site.equation_of(name))
        assert parser.parse(f"${tex}$").width > 50 and "sqrt(" not in tex, name


def test_an_equation_keeps_its_brackets_powers_and_words(make_site):
    assert make_site.typeset("e_ij = q_i.k_j / sqrt(2d) + b_{h, bucket(j-i)}") == (
        r"e_{ij} = q_{i} \cdot k_{j} / \sqrt{2d} + b_{h, \mathrm{bucket}(j-i)}"
    )
    assert make_site.typeset("f_c = 10000^(-c / (E/2 - 1)), c = 1..E") == (
        r"f_{c} = 10000^{-c / (E/2 - 1)},\quad c = 1\ldots E"
    )
    assert make_site.typeset("q P_(i-1) ... k softplus(beta_t)") == (
        r"q P_{i-1} \ldots  k \mathrm{softplus}(\beta _{t})"
    )
    with pytest.raises(make_site.Wrong, match="a bracket that is not closed: sqrt"):
        make_site.typeset("sqrt(d")


def test_a_folder_with_other_files_and_a_missing_mkdocs_are_one_line(make_site, tmp_path, monkeypatch, capsys):
    (tmp_path / "thesis.txt").touch()
    monkeypatch.setattr(sys, "argv", ["make_site.py", str(tmp_path)])
    monkeypatch.setattr(make_site.importlib.util, "find_spec", lambda name: True)
    with pytest.raises(SystemExit, match=r"\Amake_site.py: error: .* has other files than those of a site: give .*\Z"):
        make_site.main()
    monkeypatch.setattr(make_site.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"\Amake_site.py: error: mkdocs-material or .* not installed: pip .*\Z"):
        make_site.main()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
