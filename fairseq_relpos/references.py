"""The papers behind the encodings, read from references.bib, the only place that names them."""

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BIBLIOGRAPHY = Path(__file__).with_name("references.bib")

_ENTRY = re.compile(r"@(\w+)\{(\w+),\n((?:  \w+ = \{.*\},\n)+)\}\n*")
_FIELD = re.compile(r"  (\w+) = \{(.*)\},\n")


@dataclass(frozen=True)
class Paper:
    key: str
    #: the BibTeX entry type, such as inproceedings
    kind: str
    title: str
    #: (family name, given names) of each
    authors: tuple[tuple[str, ...], ...]
    year: int
    #: the page where it can be read
    url: str
    doi: str
    #: journal or proceedings; "" of a preprint
    venue: str
    #: abbreviation -> what it stands for
    names: dict[str, str]

    @property
    def citation(self) -> str:
        """The short citation, such as "Ke et al. 2021"."""
        families = [family for family, _ in self.authors]
        return f"{families[0]} et al. {self.year}" if len(families) > 2 else f"{' and '.join(families)} {self.year}"

    @property
    def everyone(self) -> str:
        """All authors, given names first."""
        return ", ".join(f"{given} {family}" for family, given in self.authors)


def read(text: str) -> dict[str, Paper]:
    """Parses BibTeX into papers by key. It reads the subset that references.bib uses: one field per line, in
    braces, with a comma at the end."""
    rest = re.sub(r"(?m)^%.*\n", "", text).lstrip()
    papers = {}
    while rest:
        entry = _ENTRY.match(rest)
        if entry is None:
            raise ValueError(f"{BIBLIOGRAPHY.name}: cannot be read from here: {rest.splitlines()[0]!r}")
        kind, key, lines = entry.groups()
        if key in papers:
            raise ValueError(f"{BIBLIOGRAPHY.name}: {key} stands there twice")
        papers[key] = paper(key, kind, dict(_FIELD.findall(lines)))
        rest = rest[entry.end() :]
    return papers


def paper(key: str, kind: str, fields: dict[str, str]) -> Paper:
    """A Paper of the fields of one entry; ValueError names those that are missing."""
    missing = [name for name in ("author", "title", "year", "url") if not fields.get(name)]
    if missing:
        raise ValueError(f"{BIBLIOGRAPHY.name}: {key} has no {', '.join(missing)}")
    # braces inside a field only keep BibTeX from changing its capitals
    fields = {name: re.sub("[{}]", "", value) for name, value in fields.items()}
    return Paper(
        key,
        kind,
        fields["title"],
        tuple(tuple(author.split(", ")) for author in fields["author"].split(" and ")),
        int(fields["year"]),
        fields["url"],
        fields.get("doi", ""),
        fields.get("booktitle") or fields.get("journal", ""),
        dict(name.split(": ") for name in fields["names"].split("; ")) if "names" in fields else {},
    )


@functools.lru_cache(maxsize=1)
def bibliography() -> dict[str, Paper]:
    return read(BIBLIOGRAPHY.read_text(encoding="utf-8"))


def papers_of(encoding: Any) -> tuple[Paper, ...]:
    """The papers that a class of encodings names in ``register``, its own first."""
    unknown = [key for key in encoding.papers if key not in bibliography()]
    if unknown:
        raise ValueError(f"position encoding {encoding.name}: {BIBLIOGRAPHY} has no {', '.join(unknown)}; add it")
    return tuple(bibliography()[key] for key in encoding.papers)
