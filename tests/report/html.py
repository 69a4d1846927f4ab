"""A strict reader of the pages, so that tests look at elements rather than at text, and an offline validator."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import html5lib

VOID = {"meta", "img", "link", "br", "input"}
Attributes = dict[str, str]


def validate(page: str) -> None:
    """Raise where the page is not valid HTML, as the parser of the standard sees it, or has an id twice."""
    html5lib.HTMLParser(strict=True).parse(page)
    ids = re.findall(r'\sid="([^"]*)"', page)
    assert len(ids) == len(set(ids)), sorted(one for one in set(ids) if ids.count(one) > 1)
    links = set(re.findall(r'href="#([^"]*)"', page))
    assert links <= set(ids), links - set(ids)


class Read(HTMLParser):
    """Elements, words and rows of a page; raises where tags do not nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, Attributes]] = []
        self.words: list[str] = []
        self.tables: list[list[int]] = []  # how many columns each row of each table spans
        self.data = ""  # the embedded document
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.elements.append((tag, given))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append(0)
        if tag in ("td", "th"):
            self.tables[-1][-1] += int(given.get("colspan", 1))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raise AssertionError(f"{tag} closes itself")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.data += data if self.elements[-1][1].get("type") == "application/json" else ""
        elif not self._open or self._open[-1] != "style":
            self.words.append(data)

    def all(self, tag: str) -> list[Attributes]:
        return [given for name, given in self.elements if name == tag]

    @property
    def pictures(self) -> list[Attributes]:
        """The drawings."""
        return [given for given in self.all("svg") if given.get("class") == "fc"]

    @property
    def text(self) -> str:
        """All words, those for readers who cannot see the pictures and those of tips included."""
        names = ("alt", "aria-label", "title", "data-tips")
        hidden = [given.get(name, "") for _, given in self.elements for name in names]
        return " ".join(" ".join([*self.words, *hidden]).split())
