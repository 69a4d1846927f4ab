"""Which columns hold what: `Columns` as a user states it, `ColumnLayout` as one file has it."""

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
class ColumnLayout:
    """The columns of one file: a single score of class 1, or one column per class.

    Parameters
    ----------
    scores
        The score columns in order of the classes; one column is the score of class 1.
    are_logits
        Whether the scores are logits rather than probabilities.
    label, site, unit, time, rival
        The other columns, or None where the file is read without them.
    groups
        Columns that say to which group a record belongs.

    Examples
    --------
    >>> import fedcalib as fc
    >>> layout = fc.data.Columns(label="died").layout(["died", "p_0", "p_1", "p_2"], "scores.csv")
    >>> layout.scores, layout.classes
    (('p_0', 'p_1', 'p_2'), 3)
    """

    scores: tuple[str, ...]
    are_logits: bool
    label: str | None
    site: str | None
    unit: str | None
    time: str | None = None
    rival: str | None = None
    groups: tuple[str, ...] = ()

    @property
    def classes(self) -> int:
        """The number of classes; a single score belongs to two."""
        return max(len(self.scores), 2)

    @property
    def needed(self) -> tuple[str, ...]:
        """The names of all columns to read, each once."""
        stated = (self.label, self.site, self.unit, self.time, self.rival)
        return tuple(dict.fromkeys((*self.scores, *(name for name in stated if name is not None), *self.groups)))


@final
@dataclass(frozen=True)
class Columns:
    """The columns of the files to read, as a user states them.

    At most one of `score`, `logits` and `probs` is stated. When none is, the files must hold the usual names of
    exactly one of them: 'score', 'logit_0', 'logit_1', ... or 'p_0', 'p_1', ...

    Parameters
    ----------
    score
        The column with the probability of class 1, for two classes.
    logits, probs
        The columns of logits or probabilities: a pattern such as 'logit_*', whose star stands for the class number
        from 0, or the names themselves in order.
    label
        The column of class numbers; None where no labels are needed.
    site
        The column that names the site; a column called 'site' is found by itself.
    unit
        The column that identifies the privacy unit, such as a patient's number.
    time
        A column of dates or of numbered days.
    sites
        All sites that the column `site` may name, which are public: one without records is a site too. Without a list,
        the sites that occur are taken to be public.
    rival
        A column of another model's scores of class 1.
    groups
        Columns that say to which group a record belongs, such as a sex; they are read as text, and a record without a
        value is in no group.

    Raises
    ------
    InputError
        If more than one of `score`, `logits` and `probs` is stated.

    Examples
    --------
    >>> import fedcalib as fc
    >>> columns = fc.data.Columns(logits="logit_*", site="hospital")
    >>> columns.layout(["hospital", "label", "logit_0", "logit_1"], "scores.csv").scores
    ('logit_0', 'logit_1')
    """

    score: str | None = None
    logits: str | Sequence[str] | None = None
    probs: str | Sequence[str] | None = None
    label: str | None = "label"
    site: str | None = None
    unit: str | None = None
    time: str | None = None
    sites: Sequence[str] | None = None
    rival: str | None = None
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        stated = [name for name in ("score", "logits", "probs") if getattr(self, name) is not None]
        if len(stated) > 1:
            raise InputError(f"Expected one of score, logits and probs, found {' and '.join(stated)}; state one.")

    def layout(self, names: Sequence[str], file: str) -> ColumnLayout:
        """Find the stated columns among the columns `names` of a file.

        Raises
        ------
        InputError
            If a column is absent or there twice, or if the kind of score is not clear.
        """
        scores, are_logits = self._scores(names, file)
        site = _SITE if self.site is None and _SITE in names else self.site
        if self.sites is not None and site is None:
            raise InputError(
                f"Expected a column of sites in {file} with a list of sites, found none; name it with site."
            )
        stated = {"label": self.label, "site": site, "unit": self.unit, "time": self.time, "rival": self.rival}
        others = {option: None if name is None else _one(name, names, file, option) for option, name in stated.items()}
        groups = tuple(_one(name, names, file, "group") for name in self.groups)
        return ColumnLayout(scores, are_logits, **others, groups=groups)

    def _scores(self, names: Sequence[str], file: str) -> tuple[tuple[str, ...], bool]:
        if self.score is not None:
            return (_one(self.score, names, file, "score"),), False
        if self.logits is not None:
            return _several(self.logits, names, file, "logits"), True
        if self.probs is not None:
            return _several(self.probs, names, file, "probs"), False
        return _usual(names, file)


def _usual(names: Sequence[str], file: str) -> tuple[tuple[str, ...], bool]:
    """Find the score columns by their usual names, if exactly one kind of them is there."""
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
            f"Expected a column '{name}' in {file}, found {listing(names)}; name the column with {option}."
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
    """The first columns by name, and how many more there are."""
    if not names:
        return "no columns"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ("the columns " if len(names) > 1 else "the column ") + ", ".join(f"'{n}'" for n in names[:most]) + more
