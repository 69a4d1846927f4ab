"""What a row of the reproduction page is made of: numbers from CSV files, and sentences that hold no other number."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from fedcalib.types import Floats

BENCHMARKS = Path(__file__).parents[1]
Row = dict[str, str]
Rows = list[Row]


@cache
def read(name: str) -> tuple[Row, ...]:
    """Every row of a CSV file, by its path below benchmarks/."""
    with (BENCHMARKS / name).open(newline="") as file:
        return tuple(csv.DictReader(file))


def pick(name: str, **wanted: object) -> Rows:
    """The rows of a file that agree with what is wanted; a tuple, a list or a set stands for any of its members."""
    allowed = {
        column: {str(one) for one in (value if isinstance(value, (tuple, list, set)) else (value,))}
        for column, value in wanted.items()
    }
    return [row for row in read(name) if all(row[column] in values for column, values in allowed.items())]


def has(name: str, **wanted: object) -> bool:
    """Whether a file has such rows: what was not run has no claim on the page."""
    return (BENCHMARKS / name).exists() and bool(pick(name, **wanted))


def column(rows: Rows, name: str) -> Floats:
    return np.array([float(row[name]) for row in rows])


def names(rows: Rows, name: str) -> list[str]:
    """The different values of a column, in the order in which they come."""
    return list(dict.fromkeys(row[name] for row in rows))


def mean(rows: Rows, name: str) -> float:
    return float(column(rows, name).mean())


def interval(values: Floats) -> tuple[float, float]:
    """95% of the mean, by a bootstrap over runs."""
    draws = np.random.default_rng(0).choice(values, (2000, len(values))).mean(axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)


def decided(low: float, high: float) -> bool | None:
    """Whether a difference is below zero: yes, no, or not to be told from its interval."""
    return True if high < 0 else False if low > 0 else None


@dataclass(frozen=True)
class Finding:
    """A measurement: does the conclusion hold (None: cannot be told), and a sentence with numbers from `values` "
    "only."""

    holds: bool | None
    sentence: str
    values: dict[str, float] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.sentence.format(**self.values)


@dataclass(frozen=True)
class Claim:
    """What a source concludes, in our words, and how we measured it."""

    says: str
    measured: Callable[[], Finding]


def rows_of(file: str, what: str, **wanted: object) -> Finding:
    """How many rows were run."""
    return Finding(True, f"{{rows}} {what}", {"rows": len(pick(file, **wanted))})


@dataclass(frozen=True)
class Item:
    """One table or figure of a source.

    Parameters
    ----------
    name, about
        Its number, and what it shows.
    data
        "same", "substitute" or "missing", with what was taken.
    size
        How much was run: a finding of which only the sentence counts; None where nothing was run.
    files, pictures
        CSV files and pictures below benchmarks/.
    claims
        What the source concludes, each measured.
    reason
        Why no conclusion was tested, where none was.
    testable
        Whether it shows something from which the source concludes anything.
    """

    name: str
    about: str
    data: str
    size: Callable[[], Finding] | None = None
    files: tuple[str, ...] = ()
    pictures: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    reason: str = ""
    testable: bool = True

    @property
    def verdict(self) -> str:
        held = {claim.measured().holds for claim in self.claims}
        if not held:
            return "not tested" if self.testable else "nothing to test"
        if len(held) > 1:
            return "partly"
        return {True: "confirmed", False: "refuted", None: "undecided"}[held.pop()]
