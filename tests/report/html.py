"""A strict reader of the pages, so that tests look at elements rather than at text."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "img", "line", "circle", "link", "br"}
Attributes = dict[str, str]


class Read(HTMLParser):
    """Elements, words and rows of a page; raises where tags do not nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, Attributes]] = []
        self.words: list[str] = []
        self.tables: list[list[int]] = []  # how many columns each row of each table spans
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
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1] != "style":
            self.words.append(data)

    def all(self, tag: str) -> list[Attributes]:
        return [given for name, given in self.elements if name == tag]

    @property
    def text(self) -> str:
        """All words, those for readers who cannot see the pictures included."""
        hidden = [given.get(name, "") for _, given in self.elements for name in ("alt", "aria-label", "title")]
        return " ".join(" ".join([*self.words, *hidden]).split())
