"""Numbers behind the tables: averages over runs, and paired bootstraps of how many times one error is another."""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import numpy as np

HERE = Path(__file__).parent
Row = dict[str, str]
Rows = list[Row]
Kind = tuple[str, str]  # a method and its setting
_DRAWS = 2000
_LEAST = 0.5  # percent: the standard error of a debiased error over five runs; what is below cannot be told from zero


def results(path: Path = HERE / "results.csv") -> Rows:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def grouped(rows: Rows, *keys: str) -> dict[tuple[str, ...], Rows]:
    groups: dict[tuple[str, ...], Rows] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
    return groups


def is_published(method: str) -> bool:
    return method.startswith("Fed")


def average(rows: Rows, field: str) -> float:
    """Average over runs; of a debiased error, whose square is what is unbiased, the root of the mean square."""
    values = np.array([float(row[field]) for row in rows])
    return float(_pool(values[None], field)[0])


def _pool(values: np.ndarray, field: str) -> np.ndarray:
    if field != "debiased":
        return values.mean(axis=1)
    return np.sqrt(np.maximum((np.sign(values) * values**2).mean(axis=1), _LEAST**2))


@dataclass(frozen=True)
class Ratio:
    """How many times one error is another, with a 95% interval from drawing runs, the same for both."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def ratio(above: Rows, below: Rows, field: str = "cwece") -> Ratio:
    """Divide the first error by the second, over the runs that both have."""
    both = sorted({row["run"] for row in above} & {row["run"] for row in below})
    if not both:
        return Ratio(float("inf"), float("nan"), float("nan"))
    first, second = (
        np.array([float({row["run"]: row for row in rows}[run][field]) for run in both]) for rows in (above, below)
    )
    draws = np.random.default_rng(0).integers(len(both), size=(_DRAWS, len(both)))
    drawn = _pool(first[draws], field) / _pool(second[draws], field)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Ratio(float(_pool(first[None], field)[0] / _pool(second[None], field)[0]), float(low), float(high))


def best_rival(rows: Rows, auto: Rows, field: str = "cwece") -> tuple[Kind, Ratio]:
    """Find the published method and setting that is best on the test half of one network."""
    kinds = {key: part for key, part in grouped(rows, "method", "setting").items() if is_published(key[0])}
    ratios = {key: ratio(part, auto, field) for key, part in kinds.items()}
    best = min(ratios, key=lambda key: ratios[key].value)
    return (best[0], best[1]), ratios[best]


@dataclass(frozen=True)
class Duel:
    """Auto against the best published method on one network."""

    network: str
    runs: int
    base: float
    rival: Kind
    times: Ratio
    debiased_rival: Kind
    debiased_times: Ratio
    auto: Rows
    rows: Rows

    @property
    def rival_rows(self) -> Rows:
        return [row for row in self.rows if (row["method"], row["setting"]) == self.rival]

    @property
    def to_base(self) -> float:
        return average(self.auto, "cwece") / self.base

    def to_lowest(self, field: str) -> tuple[Ratio, str]:
        """How many times Auto's error is that of the lowest of all methods, ours included, and which that is."""
        others = {
            key: part for key, part in grouped(self.rows, "method", "setting").items() if key[0] not in ("base", "Auto")
        }
        lowest = min(others, key=lambda key: ratio(others[key], self.auto, field).value)
        return ratio(self.auto, others[lowest], field), lowest[0]


def duels(rows: Rows) -> list[Duel]:
    """One for each network that has both."""
    found = []
    for (network,), part in sorted(grouped(rows, "network").items()):
        auto = [row for row in part if row["method"] == "Auto"]
        if not auto or not any(is_published(row["method"]) for row in part):
            continue
        base = average([row for row in part if row["method"] == "base"], "cwece")
        plain, debiased = best_rival(part, auto), best_rival(part, auto, "debiased")
        found.append(Duel(network, len(auto), base, *plain, *debiased, auto, part))
    return found


def medians(rows: Rows, field: str) -> dict[Kind, float]:
    """The median over networks of each method that was run on all of them."""
    networks = {row["network"] for row in rows}
    found = {}
    for (method, setting), part in grouped(rows, "method", "setting").items():
        by_network = grouped(part, "network")
        if len(by_network) == len(networks):
            found[method, setting] = median(average(some, field) for some in by_network.values())
    return found


def best_single(rows: Rows, field: str) -> tuple[Kind, float]:
    """The one published method that is best for all networks together."""
    found = {kind: value for kind, value in medians(rows, field).items() if is_published(kind[0])}
    best = min(found, key=lambda kind: found[kind])
    return best, found[best]


def accuracy_lost(rows: Rows) -> float:
    """In points, on average over runs."""
    return 100 * mean(float(row["base_accuracy"]) - float(row["accuracy"]) for row in rows)
