"""Audits of whatever a pipeline writes, from documents that it wrote with and without a unit.

A document is anything that JSON can hold. Its decimals, also those within texts, are numbers, which noise may change;
everything else (keys, words, lengths, whole numbers, null) are facts, and whole numbers are numbers as well. A fifth
of the documents teaches several tests how the sides differ: by one fact, by all facts together, by single numbers, by
many numbers. Another fifth chooses the test and its threshold, and the rest gives the bound. So the bound is valid at
its confidence, whatever the tests have learnt.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, TypeAlias, final

import numpy as np

from fedcalib.audit.evidence import Audit, Evidence, ScoreEvent, Threshold, at_least, at_most
from fedcalib.errors import InputError
from fedcalib.types import Array, Floats

_FEWEST: Final = 20  # documents on each side
_DECIMAL: Final = re.compile(r"[-+]?\d+\.\d+(?:[eE][-+]?\d+)?")
_LARGEST: Final = 1e100  # numbers beyond are cut, so that no square overflows
_BINS: Final = 12  # of a number's values, with about as many values in each
_MANY: Final = (4, 16, 64)  # how many of the most telling numbers a test looks at


def audit_outputs(
    present: Iterable[Any],
    absent: Iterable[Any],
    claimed: float,
    *,
    delta: float = 0.0,
    confidence: float = 0.999,
    subject: str = "outputs",
) -> Audit:
    """Lower bound on the epsilon of anything that writes documents, such as a workflow or a pipeline of your own.

    Parameters
    ----------
    present, absent
        Documents of independent runs with and without the unit, as many of each, in the order of the runs: plain data
        as JSON holds it. Put everything in that a reader can see.
    claimed
        The epsilon that is claimed.
    delta
        The delta of both.
    confidence
        Confidence of the bound.
    subject
        What is audited, for reports.

    Returns
    -------
    Audit
        The bound beside the claim; its evidence names the test that distinguished the sides best.

    Raises
    ------
    InputError
        If there are fewer than 20 documents on a side, or not as many on both sides.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> rng = np.random.default_rng(0)
    >>> def release(records):
    ...     return {"mean": rng.laplace(sum(records)), "warning": f"{len(records)} records were read"}
    >>> with_unit, without = ([release(records) for _ in range(200)] for records in ([0, 1, 1], [0, 1]))
    >>> audit = fc.audit.audit_outputs(with_unit, without, claimed=1.0)
    >>> audit.passes
    False
    """
    book = _Book()
    sides = [[book.read(document) for document in documents] for documents in (present, absent)]
    runs = len(sides[0])
    if runs != len(sides[1]) or runs < _FEWEST:
        raise InputError(
            f"Expected as many documents on both sides, at least {_FEWEST}, found {runs} and {len(sides[1])}."
        )
    one, other = (book.table(side) for side in sides)
    part, evidence = runs // 5, Threshold(delta)
    learning, choosing, rest = slice(0, part), slice(part, 2 * part), slice(2 * part, runs)
    tests = list(_tests(one[learning], other[learning], book, evidence, 1 - confidence))
    trials = [_Trial.of(test, one[choosing], other[choosing], evidence, confidence) for test in tests]
    best = max(trials, key=lambda trial: (trial.strength, trial.distance))
    scores = best.test.score(one[rest]), best.test.score(other[rest])
    lower = evidence.epsilon(best.event.strength(*scores, evidence, confidence))
    return Audit(subject, lower, claimed, delta, confidence, runs, best.test.name)


Leaf: TypeAlias = tuple[str, Any]


def _leaves(document: Any, path: str = "") -> Iterator[Leaf]:
    """Each fact and number of a document with its place."""
    if isinstance(document, Mapping):
        yield f"{path}/", ", ".join(map(str, document))
        for name, part in document.items():
            yield from _leaves(part, f"{path}/{name}")
    elif isinstance(document, Sequence) and not isinstance(document, str):
        yield f"{path}#", str(len(document))
        for index, part in enumerate(document):
            yield from _leaves(part, f"{path}/{index}")
    elif isinstance(document, str):
        yield path, _DECIMAL.sub("~", document)
        yield from ((f"{path}~{index}", float(text)) for index, text in enumerate(_DECIMAL.findall(document)))
    elif isinstance(document, float) and isfinite(document):
        yield path, document
    else:
        yield path, str(document)
        if isinstance(document, int):
            yield path, float(document)


@final
@dataclass(frozen=True, eq=False)
class _Page:
    """One document: its facts and its numbers, by their places in the book."""

    facts: Array
    columns: Array
    values: Floats


@final
class _Book:
    """Numbers the facts and the places of numbers in the order of their appearance."""

    def __init__(self) -> None:
        self.facts: dict[str, int] = {}
        self.columns: dict[str, int] = {}

    def read(self, document: Any) -> _Page:
        leaves = list(_leaves(document))
        facts = [f"{path}={value}" for path, value in leaves if not isinstance(value, float)]
        numbers = {path: value for path, value in leaves if isinstance(value, float)}
        structure = [*facts, *numbers]  # all facts, and where there are numbers
        ids = [self.facts.setdefault(fact, len(self.facts)) for fact in (*facts, "\n".join(structure))]
        columns = [self.columns.setdefault(path, len(self.columns)) for path in numbers]
        return _Page(np.array(ids), np.array(columns, dtype=np.int64), np.array(list(numbers.values())))

    def table(self, pages: Sequence[_Page]) -> _Table:
        numbers = np.full((len(pages), len(self.columns)), np.nan)
        for row, page in enumerate(pages):
            numbers[row, page.columns] = np.clip(page.values, -_LARGEST, _LARGEST)
        return _Table([page.facts for page in pages], numbers)


@final
@dataclass(frozen=True, eq=False)
class _Table:
    """Documents of one side: the facts of each, the last being its whole structure; and its numbers, NaN if missing."""

    facts: list[Array]
    numbers: Floats

    def __getitem__(self, rows: slice) -> _Table:
        return _Table(self.facts[rows], self.numbers[rows])

    def counts(self, facts: int) -> Array:
        """In how many documents each fact is stated."""
        return np.bincount(np.concatenate(self.facts), minlength=facts)


@final
@dataclass(frozen=True, eq=False)
class _Test:
    """A score of documents that was learnt from others."""

    name: str
    score: Callable[[_Table], Floats]


@final
@dataclass(frozen=True, eq=False)
class _Trial:
    """A test with its strongest event in some documents, how strong it is there, and how far apart the sides are."""

    test: _Test
    event: ScoreEvent
    strength: float
    distance: float  # in standard deviations; decides between tests that make no mistake

    @classmethod
    def of(cls, test: _Test, one: _Table, other: _Table, evidence: Evidence, confidence: float) -> _Trial:
        scores = test.score(one), test.score(other)
        event = ScoreEvent.strongest(*scores, evidence, confidence).centred(np.concatenate(scores))
        apart, spread = abs(scores[0].mean() - scores[1].mean()), max(score.std() for score in scores)
        distance = float(apart / max(spread, 1e-9 * apart, 1e-300))
        return cls(test, event, event.strength(*scores, evidence, confidence), distance)


def _tests(one: _Table, other: _Table, book: _Book, evidence: Evidence, error: float) -> Iterator[_Test]:
    """Learn every test from some documents of both sides."""
    fact = _telling_fact(one.counts(len(book.facts)), other.counts(len(book.facts)), len(one.facts), evidence, error)
    told = next(name for name, index in book.facts.items() if index == fact)
    name = f"a fact: {told}" if "\n" not in told else "the structure"
    yield _Test(name, lambda table: np.array([float(fact in facts) for facts in table.facts]))
    yield _Test("all facts together", _of_structures(one, other))
    if not book.columns:
        return
    ratios = [_Ratios.of(*columns) for columns in zip(one.numbers.T, other.numbers.T, strict=True)]
    order = np.argsort([-ratio.information for ratio in ratios], kind="stable")
    names = list(book.columns)
    for column in map(int, order[:3]):
        yield _Test(f"a number: {names[column]}", lambda table, column=column: _filled(table.numbers[:, column]))  # type: ignore[misc]
    shifts = _Shifts.of(one.numbers, other.numbers)
    for count in _MANY:
        yield _Test(f"{count} numbers by bins", _of_ratios(ratios, order[:count]))
        yield _Test(f"{count} numbers as shifted Laplace noise", shifts.largest(count))
    yield _Test("a linear discriminant", _discriminant(one.numbers, other.numbers, order[: _MANY[-1]]))


def _telling_fact(one: Array, other: Array, runs: int, evidence: Evidence, error: float) -> int:
    """The fact whose presence, or absence, is the strongest evidence."""
    best = np.full(len(one), -np.inf)
    for likely, rare in ((one, other), (other, one), (runs - one, runs - other), (runs - other, runs - one)):
        low, high = at_least(likely, runs, error / 2), at_most(rare, runs, error / 2)
        best = np.maximum(best, np.where(low > 0, evidence.strength(np.maximum(low, 1e-300), high), -np.inf))
    return int(np.argmax(best))


def _of_structures(one: _Table, other: _Table) -> Callable[[_Table], Floats]:
    """How much more often the whole structure of a document was seen on one side."""
    counts = [Counter(int(facts[-1]) for facts in table.facts) for table in (one, other)]
    ratio = {key: np.log((counts[0][key] + 0.5) / (counts[1][key] + 0.5)) for key in counts[0] | counts[1]}
    return lambda table: np.array([ratio.get(int(facts[-1]), 0.0) for facts in table.facts])


@final
@dataclass(frozen=True, eq=False)
class _Ratios:
    """The log-likelihood ratio of a number by the bin that it is in; the last bin is that of a missing number."""

    edges: Floats
    ratio: Floats
    information: float

    @classmethod
    def of(cls, one: Floats, other: Floats) -> _Ratios:
        both = np.concatenate([one, other])
        known = both[~np.isnan(both)]
        edges = np.unique(np.quantile(known, np.arange(1, _BINS) / _BINS)) if known.size else known
        shares = [np.bincount(_bins(edges, side), minlength=len(edges) + 2) + 1.0 for side in (one, other)]
        ratio = np.log(shares[0] / shares[1])
        return cls(edges, ratio, float((shares[0] - shares[1]) @ ratio))

    def __call__(self, values: Floats) -> Floats:
        return self.ratio[_bins(self.edges, values)]


def _bins(edges: Floats, values: Floats) -> Array:
    return np.where(np.isnan(values), len(edges) + 1, np.searchsorted(edges, values, side="right"))


def _of_ratios(ratios: Sequence[_Ratios], columns: Array) -> Callable[[_Table], Floats]:
    """The sum of log-likelihood ratios, as if the numbers were independent."""
    return lambda table: np.sum([ratios[column](table.numbers[:, column]) for column in columns], axis=0)


@final
@dataclass(frozen=True, eq=False)
class _Shifts:
    """Medians of numbers on both sides, and their mean deviation: log-likelihood ratios if the noise is Laplace's."""

    centres: tuple[Floats, Floats]
    spread: Floats

    @classmethod
    def of(cls, one: Floats, other: Floats) -> _Shifts:
        one, other = _filled(one), _filled(other)
        centres = np.median(one, axis=0), np.median(other, axis=0)
        spread = (np.abs(one - centres[0]).mean(axis=0) + np.abs(other - centres[1]).mean(axis=0)) / 2
        return cls(centres, np.where(spread > 0, spread, np.inf))

    def largest(self, count: int) -> Callable[[_Table], Floats]:
        """The sum of the ratios of the numbers that are shifted most."""
        shift = np.abs(self.centres[0] - self.centres[1]) / self.spread
        columns = np.argsort(-shift, kind="stable")[:count]
        one, other, spread = (part[columns] for part in (*self.centres, self.spread))

        def score(table: _Table) -> Floats:
            values = _filled(table.numbers[:, columns])
            return np.asarray(((np.abs(values - other) - np.abs(values - one)) / spread).sum(axis=1))

        return score


def _discriminant(one: Floats, other: Floats, columns: Array) -> Callable[[_Table], Floats]:
    """The linear discriminant of numbers, which are standardised and cut, with a ridge."""
    both = _filled(np.concatenate([one, other])[:, columns])
    centre, spread = np.median(both, axis=0), both.std(axis=0)

    def standard(numbers: Floats) -> Floats:
        return np.clip((_filled(numbers[:, columns]) - centre) / np.where(spread > 0, spread, 1.0), -4, 4)

    first, second = standard(one), standard(other)
    within = (np.cov(first, rowvar=False) + np.cov(second, rowvar=False)) / 2 + 0.1 * np.eye(len(columns))
    weights = np.linalg.solve(np.atleast_2d(within), first.mean(axis=0) - second.mean(axis=0))
    return lambda table: np.asarray(standard(table.numbers) @ weights)


def _filled(values: Floats) -> Floats:
    return np.nan_to_num(values, nan=0.0)
