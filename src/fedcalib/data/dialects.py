"""How a file of separated text is written: separator, decimal sign and encoding, found in the file itself."""

from __future__ import annotations

import codecs
import csv
import gzip
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, final

from fedcalib.errors import InputError

_SAMPLE = 1 << 16  # bytes that decide about separator and decimal sign
_BLOCK = 1 << 20
_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_GZIP = b"\x1f\x8b"
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_KINDS = {b"PK": "a ZIP archive or an Excel workbook", b"PAR1": "a Parquet file", b"%PDF": "a PDF file"}
_TITLES = {"utf-16": "UTF-16", "cp1252": "Windows-1252", "latin-1": "Latin-1"}
_HINT = re.compile(r"\s*sep=(.)\s*", re.IGNORECASE)  # a first line that Excel writes
_COMMA = re.compile(r"\s*[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?\s*%?\s*")
_POINT = re.compile(r"\s*[+-]?[0-9]*\.[0-9]+([eE][+-]?[0-9]+)?\s*%?\s*")


@final
@dataclass(frozen=True)
class Dialect:
    """How one file of separated text is written."""

    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    compressed: bool = False
    skipped: int = 0  # lines before the header

    @classmethod
    def of(cls, path: Path, usual: str) -> Dialect:
        """Look at a file: at its beginning for separator and decimal sign, at all of it for the encoding.

        Parameters
        ----------
        path
            A file of text, compressed by gzip or not.
        usual
            The separator that the name of the file suggests.

        Raises
        ------
        InputError
            If the file does not hold text.
        """
        with path.open("rb") as file:
            compressed = file.read(2) == _GZIP
        with _opened(path, compressed) as file:
            start = file.read(_SAMPLE)
        encoding = _encoding(path, start, compressed)
        lines = _lines(start, encoding)
        hint = _HINT.fullmatch(lines[0]) if lines else None
        separator = hint[1] if hint else _separator(lines, usual)
        decimal = _decimal(lines[2 if hint else 1 :], separator)
        return cls(separator, decimal, encoding, compressed, 1 if hint else 0)

    def wording(self, usual: str) -> str:
        """What is unusual about it, in words; empty if nothing is."""
        separated = f"as {_SEPARATORS.get(self.separator, repr(self.separator))}-separated"
        parts = {
            separated: self.separator != usual,
            "with decimal comma": self.decimal == ",",
            f"in the encoding {_TITLES.get(self.encoding, '')}": self.encoding in _TITLES,
        }
        return " ".join(words for words, unusual in parts.items() if unusual)


def _opened(path: Path, compressed: bool) -> IO[bytes]:
    return gzip.open(path, "rb") if compressed else path.open("rb")  # type: ignore[return-value]


def _encoding(path: Path, start: bytes, compressed: bool) -> str:
    """The encoding of the whole file; an error if it holds no text."""
    for mark, name in _MARKS.items():
        if start.startswith(mark):
            return name
    decoder = codecs.getincrementaldecoder("utf-8")()
    for block in _blocks(path, compressed):
        if b"\0" in block or _is_binary(start):
            raise InputError(f"Expected text in {path}, found {_kind(start)}; save the records as text.")
        try:
            if not block.isascii() or decoder.getstate()[0]:
                decoder.decode(block)
        except UnicodeDecodeError:
            return _single_byte(block)
    return "utf-8" if not decoder.getstate()[0] else _single_byte(start)


def _blocks(path: Path, compressed: bool) -> Iterator[bytes]:
    with _opened(path, compressed) as file:
        while block := file.read(_BLOCK):
            yield block


def _single_byte(block: bytes) -> str:
    """Windows-1252, which is Latin-1 with more letters, unless a byte has no meaning there."""
    return "latin-1" if any(byte in block for byte in b"\x81\x8d\x8f\x90\x9d") else "cp1252"


def _is_binary(start: bytes) -> bool:
    """Whether there are more than a few control characters."""
    controls = sum(start.count(bytes([code])) for code in range(32) if code not in b"\t\n\f\r")
    return controls > len(start) / 100


def _kind(start: bytes) -> str:
    return next((title for mark, title in _KINDS.items() if start.startswith(mark)), "binary data")


def _lines(start: bytes, encoding: str) -> list[str]:
    """The first lines of the file; the last one only if it is whole."""
    text = codecs.getincrementaldecoder(encoding)(errors="replace").decode(start)
    lines = text.splitlines()
    whole = lines[:-1] if len(start) == _SAMPLE and len(lines) > 1 else lines
    return [line for line in whole if line.strip()]


def _separator(lines: Sequence[str], usual: str) -> str:
    """The sign that stands in the header, and as often in most other lines."""
    bare = [re.sub(r'"[^"]*"', "", line) for line in lines]
    counts = {sign: [line.count(sign) for line in bare] for sign in (usual, *_SEPARATORS)}
    found = {sign: each for sign, each in counts.items() if each and each[0]}
    return max(found, key=lambda sign: (_alike(found[sign]), found[sign][0]), default=usual)


def _alike(counts: Sequence[int]) -> float:
    return sum(count == counts[0] for count in counts) / len(counts)


def _decimal(lines: Sequence[str], separator: str) -> str:
    cells = [cell for row in csv.reader(lines, delimiter=separator) for cell in row]
    commas = any(map(_COMMA.fullmatch, cells))
    return "," if commas and not any(map(_POINT.fullmatch, cells)) else "."
