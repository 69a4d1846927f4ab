"""Which columns hold what: `Columns` as a user states it, `ColumnLayout` as one file has it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.types import Array

_SITE = "site"
_SCORE = "score"
_LOGITS = ("logit_*", "logits_*")
_PROBS = ("p_*", "probs_*")
_NAMED = "prob_*"  # whose star may stand for a class's name
_PERSON = re.compile(r"(patient|person|subject|user|customer|member)(_?(id|nr|no|number))?|mrn|pid", re.IGNORECASE)


@final
@dataclass(frozen=True)
class ColumnLayout:
    """The columns of one file: a single score of class 1, or one column per class.

    A single column of logits holds the log-odds of class 1.

    Parameters
    ----------
    scores
        The score columns in order of the classes; one column is the score of class 1.
    are_logits
        Whether the scores are logits rather than probabilities.
    label, site, unit, time, rival
        The other columns, or None where the file is read without them.
    class_names
        The names of the classes in order, which are public; empty where they have none.
    positive
        The label of class 1 of two classes, where all other labels are one other class.
    percent
        Whether probabilities are percentages.
    person
        A column that seems to name people though no unit was stated.
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
    class_names: tuple[str, ...] = ()
    positive: str | None = None
    percent: bool = False
    person: str | None = None
    rival: str | None = None
    groups: tuple[str, ...] = ()

    @property
    def classes(self) -> int:
        """The number of classes; a single score belongs to two."""
        return max(len(self.scores), 2)

    @property
    def needed(self) -> tuple[str, ...]:
        """The names of all columns to read, each once."""
        stated = (self.label, self.site, self.unit, self.time, self.person, self.rival)
        return tuple(dict.fromkeys((*self.scores, *(name for name in stated if name is not None), *self.groups)))

    def empty_columns(self) -> dict[str, Array]:
        """The columns beside scores and labels, without any row."""
        rival = {} if self.rival is None else {self.rival: np.zeros(0)}
        return {**{name: np.zeros(0, dtype=str) for name in self.groups}, **rival}


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
        from 0 or for the class's name (then classes are in alphabetical order), or the names of the columns in
        order. A single column of logits holds the
        log-odds of class 1.
    label
        The column of true classes: numbers from 0, booleans, or words that `positive`, `classes` or the names of the
        score columns explain. None where no labels are needed.
    site
        The column that names the site; a column called 'site' is found by itself.
    unit
        The column that identifies the privacy unit, such as a patient's number.
    time
        A column of dates or of numbered days.
    sites
        All sites that the column `site` may name, which are public: one without records is a site too. Without a list,
        the sites that occur are taken to be public.
    positive
        The label of class 1, such as 'yes'; then the column holds one other label.
    classes
        All labels in the order of the classes, which are public, such as ['no', 'yes'].
    percent
        Whether probabilities are percentages from 0 to 100.
    one_site
        Whether a single file or frame without a site column is one site. Otherwise it is refused.
    max_missing
        The largest share of a file's records that may be left out because a number is missing. Under an epsilon it
        stops nothing: how many are missing is a fact about the records, and must not decide whether there is a release.
    rival
        A column of another model's scores of class 1.
    groups
        Columns that say to which group a record belongs, such as a sex; they are read as text, and a record without a
        value is in no group.

    Raises
    ------
    InputError
        If more than one of `score`, `logits` and `probs` is stated, or both `positive` and `classes`.

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
    positive: str | int | None = None
    classes: Sequence[str | int] | str | None = None
    percent: bool = False
    one_site: bool = False
    max_missing: float = 0.5
    rival: str | None = None
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for group in (("score", "logits", "probs"), ("positive", "classes")):
            stated = [name for name in group if getattr(self, name) is not None]
            if len(stated) > 1:
                listed = f"{', '.join(group[:-1])} and {group[-1]}"
                raise InputError(f"Expected one of {listed}, found {' and '.join(stated)}; state one.")
        if not 0 <= self.max_missing <= 1:
            raise InputError(f"Expected max_missing between 0 and 1, found {self.max_missing}.")
        if self.classes is not None and len(set(self.class_names)) < max(2, len(self.class_names)):
            raise InputError(f"Expected at least two different classes, found {', '.join(self.class_names) or 'none'}.")

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes as stated, in words; empty where they are not."""
        if self.classes is None:
            return ()
        listed = self.classes.split(",") if isinstance(self.classes, str) else self.classes
        return tuple(plain_label(str(name)) for name in listed)

    def layout(self, names: Sequence[str], file: str) -> ColumnLayout:
        """Find the stated columns among the columns `names` of a file.

        Raises
        ------
        InputError
            If a column is absent or there twice, or if the kind of score is not clear.
        """
        scores, are_logits, found = self._scores(names, file)
        site = _SITE if self.site is None and _SITE in names else self.site
        if self.sites is not None and site is None:
            raise InputError(
                f"Expected a column of sites in {file} with a list of sites, found none; name it with site."
            )
        stated = {"label": self.label, "site": site, "unit": self.unit, "time": self.time, "rival": self.rival}
        others = {option: None if name is None else _one(name, names, file, option) for option, name in stated.items()}
        groups = tuple(_one(name, names, file, "group") for name in self.groups)
        _check_label(others, scores, file)
        used = {*scores, *others.values(), *groups}
        person = next((name for name in names if _PERSON.fullmatch(name) and name not in used), None)
        layout = ColumnLayout(
            scores,
            are_logits,
            **others,
            groups=groups,
            class_names=self.class_names or found,
            positive=None if self.positive is None else plain_label(str(self.positive)),
            percent=self.percent and not are_logits,
            person=person if self.unit is None and self.label is not None and names.count(person) == 1 else None,
        )
        self._check_classes(layout, file)
        return layout

    def _check_classes(self, layout: ColumnLayout, file: str) -> None:
        if layout.class_names and len(layout.class_names) != layout.classes:
            raise InputError(
                f"Expected one name per class, found {len(layout.class_names)} names ({', '.join(layout.class_names)}) "
                f"with classes and scores of {layout.classes} classes in {file}."
            )
        if layout.positive is not None and layout.classes > 2:
            raise InputError(
                f"Expected two classes with positive, found scores of {layout.classes} in {file}; state all labels in "
                "order with classes."
            )

    def _scores(self, names: Sequence[str], file: str) -> _Found:
        if self.score is not None:
            return (_one(self.score, names, file, "score"),), False, ()
        for stated, option in ((self.logits, "logits"), (self.probs, "probs")):
            if stated is not None:
                columns, found = _several(stated, names, file, option, self.class_names)
                return columns, option == "logits", found
        return _usual(names, file, self.class_names)


_Found: TypeAlias = tuple[tuple[str, ...], bool, tuple[str, ...]]  # columns, whether logits, names of classes


def plain_label(word: str) -> str:
    """A label as it is compared: without padding, 'True' as 'true' and '1.0' as '1'."""
    trimmed = word.strip()
    return trimmed.lower() if trimmed.lower() in ("true", "false") else re.sub(r"^([+-]?[0-9]+)\.0*$", r"\1", trimmed)


def _usual(names: Sequence[str], file: str, classes: Sequence[str]) -> _Found:
    """Find the score columns by their usual names, if exactly one kind of them is there."""
    found: list[tuple[str, _Found]] = []
    if _SCORE in names:
        found.append((f"'{_SCORE}'", ((_one(_SCORE, names, file, "score"),), False, ())))
    for patterns, option, are_logits in ((_LOGITS, "logits", True), (_PROBS, "probs", False)):
        for pattern in patterns:
            if _numbered(pattern, names):
                columns, _ = _several(pattern, names, file, option, classes)
                found.append((f"'{pattern}'", (columns, are_logits, ())))
    if not found and len(_starred(_NAMED, names)) > 1:
        columns, words = _several(_NAMED, names, file, "probs", classes)
        found.append((f"'{_NAMED}'", (columns, False, words)))
    if len(found) == 1:
        return found[0][1]
    if found:
        both = " and ".join(wording for wording, _ in found)
        raise InputError(f"Expected one kind of score in {file}, found {both}; state score, logits or probs.")
    raise InputError(
        f"Expected a column 'score', columns 'logit_0', 'logit_1', ... or columns 'p_0', 'p_1', ... in {file}, "
        f"found {listing(names)}; {_no_header(names)}state score, logits or probs."
    )


def _no_header(names: Sequence[str]) -> str:
    """Advice for a file whose first line holds numbers."""
    numbers = [name for name in names if re.fullmatch(r"[+-]?[0-9]*[.,]?[0-9]+", name)]
    return "the first line seems to be data: add a header line, or " if len(numbers) > len(names) / 2 else ""


def _one(name: str, names: Sequence[str], file: str, option: str) -> str:
    count = sum(other == name for other in names)
    if count == 0:
        raise InputError(
            f"Expected a column '{name}' in {file}, found {listing(names)}; "
            f"{_no_header(names)}name the column with {option}."
        )
    if count > 1:
        raise InputError(f"Expected one column '{name}' in {file}, found {count}; rename all but one.")
    return name


def _check_label(others: Mapping[str, str | None], scores: Sequence[str], file: str) -> None:
    """Refuse a label that is another column too, above all a score: every figure would be perfect, and wrong."""
    label = others["label"]
    stated = {name for option, name in others.items() if option != "label"} | set(scores)
    if label is not None and label in stated:
        raise InputError(
            f"Expected the true classes in a column of their own, found that '{label}' of {file} is stated twice; "
            "name another column with label."
        )


def _several(
    stated: str | Sequence[str], names: Sequence[str], file: str, option: str, classes: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns in order of the classes, and the names of the classes where columns are named after them."""
    if isinstance(stated, str) and stated in names:
        return (_one(stated, names, file, option),), ()  # of class 1
    if isinstance(stated, str) and "*" not in stated and "," not in stated:
        stated = f"{stated}_*"  # a matrix is laid out as columns numbered like this
    if isinstance(stated, str) and "*" in stated:
        return _classes(stated, names, file, option, classes)
    listed = stated.split(",") if isinstance(stated, str) else stated
    chosen = tuple(_one(name.strip(), names, file, option) for name in listed)
    if not chosen or len(set(chosen)) < len(chosen):
        raise InputError(f"Expected different columns in {option}, found {', '.join(chosen) or 'none'}.")
    return chosen, ()


def _classes(
    pattern: str, names: Sequence[str], file: str, option: str, classes: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Order the columns of a pattern by their class number, which must run from 0 without a gap, or by their names."""
    starred = dict(_starred(pattern, names))
    numbered = _numbered(pattern, names)
    if classes and set(classes) == starred.keys():
        return tuple(_one(starred[name], names, file, option) for name in classes), tuple(classes)
    if not numbered and len(starred) > 1 and not classes:  # in one order, whatever the order of the columns
        return tuple(_one(starred[name], names, file, option) for name in sorted(starred)), tuple(sorted(starred))
    numbers = sorted(number for number, _ in numbered)
    if not numbers:
        wanted = f"exactly the classes {', '.join(classes)}" if classes else "class numbers or names"
        raise InputError(
            f"Expected columns '{pattern}' with {wanted} for the star in {file}, found {listing(names)}; "
            f"state another pattern, or the names in order, with {option}."
        )
    if numbers != list(range(len(numbers))) or len(numbers) < 2:
        raise InputError(
            f"Expected columns '{pattern}' numbered 0, 1, 2, ... without a gap, at least two, in {file}, "
            f"found {listing([name for _, name in sorted(numbered)])}; state the names in order with {option}."
        )
    return tuple(name for _, name in sorted(numbered)), ()


def _starred(pattern: str, names: Sequence[str]) -> list[tuple[str, str]]:
    """What the star stands for in each column that matches, and the column, in their order."""
    shape = re.compile(re.escape(pattern).replace(r"\*", "(.+)", 1))
    matches = ((shape.fullmatch(name), name) for name in names)
    return [(plain_label(match.group(1)), name) for match, name in matches if match is not None]


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
