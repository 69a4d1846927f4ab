"""Which columns hold what: as a user states it, and as a file turns out to have it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from fedcalib.errors import InputError

_SITE = "site"
_SCORE = "score"
_LOGITS = ("logit_*", "logits_*")
_PROBS = ("p_*", "probs_*")


@final
@dataclass(frozen=True)
class Layout:
    """The columns of one file: a single score of class 1, or one column a class."""

    scores: tuple[str, ...]
    are_logits: bool
    label: str | None
    site: str | None
    unit: str | None
    time: str | None = None

    @property
    def classes(self) -> int:
        """Count the classes; a single score belongs to two."""
        return max(len(self.scores), 2)

    @property
    def needed(self) -> tuple[str, ...]:
        """List every column to read, each once."""
        others = (name for name in (self.label, self.site, self.unit, self.time) if name is not None)
        return tuple(dict.fromkeys((*self.scores, *others)))


@final
@dataclass(frozen=True)
class Columns:
    """What a user says about the columns of files.

    At most one of `score` (the probability of class 1), `logits` and `probs` is stated; the latter two are a pattern
    such as 'logit_*', whose star stands for the class number from 0, or the names themselves in order. When none is
    stated, the files must hold the usual names of exactly one of them. `label` None means that no labels are needed.
    `time` names a column of dates or of numbered days.
    """

    score: str | None = None
    logits: str | Sequence[str] | None = None
    probs: str | Sequence[str] | None = None
    label: str | None = "label"
    site: str | None = None
    unit: str | None = None
    time: str | None = None

    def __post_init__(self) -> None:
        stated = [name for name in ("score", "logits", "probs") if getattr(self, name) is not None]
        if len(stated) > 1:
            raise InputError(f"Expected one of score, logits and probs, found {' and '.join(stated)}; state one.")

    def layout(self, names: Sequence[str], file: str) -> Layout:
        """Find the stated columns among a file's own."""
        scores, are_logits = self._scores(names, file)
        label = None if self.label is None else _one(self.label, names, file, "label")
        site = _SITE if self.site is None and _SITE in names else self.site
        site = None if site is None else _one(site, names, file, "site")
        unit = None if self.unit is None else _one(self.unit, names, file, "unit")
        time = None if self.time is None else _one(self.time, names, file, "time")
        return Layout(scores, are_logits, label, site, unit, time)

    def _scores(self, names: Sequence[str], file: str) -> tuple[tuple[str, ...], bool]:
        if self.score is not None:
            return (_one(self.score, names, file, "score"),), False
        if self.logits is not None:
            return _several(self.logits, names, file, "logits"), True
        if self.probs is not None:
            return _several(self.probs, names, file, "probs"), False
        return _usual(names, file)


def _usual(names: Sequence[str], file: str) -> tuple[tuple[str, ...], bool]:
    """Take the usual names where they leave no doubt."""
    found: list[tuple[str, tuple[str, ...], bool]] = []
    if _SCORE in names:
        found.append((f"'{_SCORE}'", (_one(_SCORE, names, file, "score"),), False))
    for patterns, option, are_logits in ((_LOGITS, "logits", True), (_PROBS, "probs", False)):
        for pattern in patterns:
            if _numbered(pattern, names):
                found.append((f"'{pattern}'", _several(pattern, names, file, option), are_logits))
    if len(found) == 1:
        return found[0][1], found[0][2]
    if found:
        both = " and ".join(wording for wording, _, _ in found)
        raise InputError(f"Expected one kind of score in {file}, found {both}; state score, logits or probs.")
    raise InputError(
        f"Expected a column 'score', columns 'logit_0', 'logit_1', ... or columns 'p_0', 'p_1', ... in {file}, "
        f"found {listing(names)}; state score, logits or probs."
    )


def _one(name: str, names: Sequence[str], file: str, option: str) -> str:
    count = sum(other == name for other in names)
    if count == 0:
        raise InputError(
            f"Expected a column '{name}' in {file}, found {listing(names)}; say which column is meant with {option}."
        )
    if count > 1:
        raise InputError(f"Expected one column '{name}' in {file}, found {count}; rename all but one.")
    return name


def _several(stated: str | Sequence[str], names: Sequence[str], file: str, option: str) -> tuple[str, ...]:
    if isinstance(stated, str) and "*" not in stated and "," not in stated:
        stated = f"{stated}_*"  # a matrix is laid out as columns numbered like this
    if isinstance(stated, str) and "*" in stated:
        return _classes(stated, names, file, option)
    listed = stated.split(",") if isinstance(stated, str) else stated
    chosen = tuple(_one(name.strip(), names, file, option) for name in listed)
    if len(chosen) < 2 or len(set(chosen)) < len(chosen):
        raise InputError(f"Expected at least two different columns in {option}, found {', '.join(chosen) or 'none'}.")
    return chosen


def _classes(pattern: str, names: Sequence[str], file: str, option: str) -> tuple[str, ...]:
    """Order the columns of a pattern by their class number, which must run from 0 without a gap."""
    numbered = _numbered(pattern, names)
    numbers = sorted(number for number, _ in numbered)
    if not numbers:
        raise InputError(
            f"Expected columns '{pattern}' with class numbers for the star in {file}, found {listing(names)}; "
            f"state another pattern, or the names in order, with {option}."
        )
    if numbers != list(range(len(numbers))) or len(numbers) < 2:
        raise InputError(
            f"Expected columns '{pattern}' numbered 0, 1, 2, ... without a gap, at least two, in {file}, "
            f"found {listing([name for _, name in sorted(numbered)])}; state the names in order with {option}."
        )
    return tuple(name for _, name in sorted(numbered))


def _numbered(pattern: str, names: Sequence[str]) -> list[tuple[int, str]]:
    shape = re.compile(re.escape(pattern).replace(r"\*", "([0-9]{1,9})", 1))
    matches = ((shape.fullmatch(name), name) for name in names)
    return [(int(match.group(1)), name) for match, name in matches if match is not None]


def listing(names: Sequence[str], most: int = 8) -> str:
    """Name some columns, and say how many more there are."""
    if not names:
        return "no columns"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ("the columns " if len(names) > 1 else "the column ") + ", ".join(f"'{n}'" for n in names[:most]) + more
