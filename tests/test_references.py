"""Every paper can be identified: one bibliography, repeated nowhere by hand."""

import re
from pathlib import Path

import pytest
import yaml

from fairseq_relpos.cli import main
from fairseq_relpos.cli.docstrings import equation_and_source
from fairseq_relpos.encodings import ENCODINGS
from fairseq_relpos.references import bibliography, papers_of, read

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_an_encoding_names_its_papers_and_its_source_can_be_looked_up_there(name):
    papers = papers_of(ENCODINGS[name])
    assert papers
    source = equation_and_source(ENCODINGS[name])[1]
    for citation in re.findall(r"\w+ et al\. \d{4}", source):
        assert citation in [paper.citation for paper in papers], source
    known = " ".join(" ".join([paper.title, *paper.names]) for paper in papers)
    for abbreviation in re.findall(r"\b(TUPE|AT5|M4M|LFHC|GCDF|FIRE|KERPLE|BERT)\b", source):
        assert re.search(rf"\b{abbreviation}\b", known), source


def test_every_paper_has_a_link_and_full_names():
    for paper in bibliography().values():
        assert re.fullmatch(r"https://(arxiv\.org/abs|aclanthology\.org|ojs\.aaai\.org)/\S+", paper.url)
        assert all(family and given for family, given in paper.authors) and 2017 <= paper.year
        assert not re.search(r"[{}]", paper.title + paper.venue)


def test_show_prints_title_authors_year_and_link_and_spells_abbreviations_out(capsys):
    assert main(["show", "t5"]) == 0
    printed = capsys.readouterr().out
    assert "Exploring the Limits of Transfer Learning" in printed and "Colin Raffel, Noam" in printed
    assert "(2020)" in printed and "https://arxiv.org/abs/1910.10683" in printed
    assert "TUPE: Transformer with Untied Positional Encoding" in printed and "AT5: Adaptive T5" in printed


def test_citation_and_the_list_of_encodings_have_the_papers_of_the_bibliography():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())["references"]
    assert [
        (c["title"], c["year"], c["url"], tuple((a["family-names"], a["given-names"]) for a in c["authors"]))
        for c in cited
    ] == [(p.title, p.year, p.url, p.authors) for p in bibliography().values()]
    page = (ROOT / "docs/encodings.md").read_text()
    for cls in ENCODINGS.values():
        paper = papers_of(cls)[0]
        assert f"| {paper.year} | [{paper.citation.removesuffix(f' {paper.year}')}]({paper.url}) |" in page


ENTRY = "@misc{{a2030b,\n  author = {{Bee, Ann}},\n  title = {{T}},\n  year = {{2030}},\n{0}}}\n"


@pytest.mark.parametrize(
    "text, what",
    [
        (ENTRY.format(""), "a2030b has no url"),
        (ENTRY.format("  url = {u},\n") * 2, "a2030b stands there twice"),
        (ENTRY.format('  url = "u",\n'), "cannot be read from here: '@misc{a2030b,'"),
        ("nonsense", "cannot be read from here: 'nonsense'"),
    ],
)
def test_a_bibliography_that_cannot_be_read_is_refused(text, what):
    with pytest.raises(ValueError, match=re.escape(what)):
        read(text)


def test_two_authors_are_both_named_and_one_stands_alone():
    one = read(ENTRY.format("  url = {u},\n"))["a2030b"]
    two = read(ENTRY.format("  url = {u},\n").replace("Ann}", "Ann and Cee, Cid}"))["a2030b"]
    assert (one.citation, two.citation) == ("Bee 2030", "Bee and Cee 2030")


def test_a_paper_that_the_bibliography_lacks_is_said_in_one_line(capsys, monkeypatch):
    monkeypatch.setattr(ENCODINGS["t5"], "papers", ("nobody2030t6",))
    assert main(["show", "t5"]) == 1
    assert "references.bib has no nobody2030t6; add it" in capsys.readouterr().err
