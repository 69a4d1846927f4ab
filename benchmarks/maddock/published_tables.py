"""The short tables of README.md: the paper's methods at its settings, and Auto beside them, from published.csv."""

from __future__ import annotations

from statistics import median

from benchmarks.filled import markdown
from benchmarks.reproduction.findings import Rows, column, interval, mean, names, pick
from benchmarks.reproduction.multiclass_claims import FEDERATED, POINT, by_network, lost, published

OPEN, PRIVATE = "table 2", "table 3"
CELLS = "maddock/cells.csv"
SKEWED = {"6c": "exact", "6c, epsilon 1": "epsilon 1"}
SHORT = ("FedBBQ, all weight", "FedTemp", "FedOPVector", "FedCal", "Auto")
METHODS = ("FedBin", *FEDERATED[:3], "FedBBQ, all weight, N' = 2B", *FEDERATED[3:], "Auto")


def cell(rows: Rows, series: str) -> str:
    """The median over networks of cwECE over the base model's, and the worst network's loss of accuracy in points."""
    found = by_network(rows, series)
    if not found:
        return ""
    ratio = median(mean(own, "cwece") / mean(own, "base_cwece") for own in found.values())
    return f"{ratio:.2f} / {max(lost(own) for own in found.values()):.1f}"


def both_tables() -> str:
    """The paper's tables 2 and 3, by data set."""
    parts = {(figure, data): published(figure, dataset=data) for figure in (OPEN, PRIVATE) for data in datasets()}
    words = {OPEN: "exact", PRIVATE: "epsilon 1"}
    lines = [[series, *(cell(rows, series) for rows in parts.values())] for series in METHODS]
    return markdown(["method", *(f"{data}, {words[figure]}" for figure, data in parts)], lines)


def datasets() -> list[str]:
    return names(published(OPEN), "dataset")


def margins() -> str:
    """How many times lower Auto's cwECE is than that of the best published method that keeps its accuracy."""
    words = {OPEN: "exact sums", PRIVATE: "epsilon 1, whole clients"}
    parts = {f"{data}, {word}": published(own, dataset=data) for own, word in words.items() for data in datasets()}
    parts |= {f"mnist at every skew, {word}": published(own) for own, word in zip(SKEWED, words.values(), strict=True)}
    lines = []
    for where, rows in parts.items():
        tables = {series: by_network(rows, series) for series in (*FEDERATED, "Auto")}
        best = {network: _best(tables, network) for network in tables["Auto"]}
        times = [mean(tables[best[one]][one], "cwece") / mean(tables["Auto"][one], "cwece") for one in best]
        least = min(zip(times, best, strict=True))
        who = ", ".join(f"{name} {list(best.values()).count(name)}" for name in dict.fromkeys(best.values()))
        lines.append([where, str(len(best)), f"{median(times):.2f}", f"{least[0]:.2f} ({least[1][1]})", who])
    return markdown(["cell", "networks", "median", "least", "best published on so many networks"], lines)


def _best(tables: dict[str, dict[tuple[str, str], Rows]], network: tuple[str, str]) -> str:
    kept = [name for name in FEDERATED if lost(tables[name][network]) <= POINT]
    return min(kept, key=lambda name: mean(tables[name][network], "cwece"))


def weighted() -> str:
    """Weighted FedBBQ for whole clients at epsilon 1, with 95% intervals over runs."""
    lines = []
    for (data, network), own in by_network(published(PRIVATE), "FedBBQ, all weight").items():
        ratios = column(own, "cwece") / column(own, "base_cwece")
        losses = 100 * (column(own, "base_accuracy") - column(own, "accuracy"))
        cells = [
            f"{values.mean():.2f} [{low:.2f}, {high:.2f}]"
            for values in (ratios, losses)
            for low, high in [interval(values)]
        ]
        lines.append([f"{data}, {network}", str(len(own)), f"{mean(own, 'base_cwece'):.3f}", *cells])
    return markdown(["network", "runs", "base cwECE, %", "cwECE / base", "points of accuracy lost"], lines)


def by_skew() -> str:
    """Networks of every skew, calibrated by clients of the same skew: a column per network."""
    parts = {figure: published(figure) for figure in SKEWED}
    every = list(by_network(parts["6c"], "FedTemp"))
    own = {
        (figure, network): [row for row in rows if (row["dataset"], row["network"]) == network]
        for figure, rows in parts.items()
        for network in every
    }
    base = [f"{mean(own['6c', network], 'base_cwece'):.3f}" for network in every]
    lines = [["base cwECE, %", *base]]
    for figure, word in SKEWED.items():
        for series in METHODS:
            shown = [cell(own[figure, network], series) for network in every]
            lines += [[f"{series}, {word}", *shown]] if any(shown) else []
        lines.append([f"best published over Auto, {word}", *(_margin(own[figure, one], one) for one in every)])
    return markdown(["method", *(network.removeprefix("cnn ") for _, network in every)], lines)


def _margin(rows: Rows, network: tuple[str, str]) -> str:
    tables = {series: by_network(rows, series) for series in (*FEDERATED, "Auto")}
    rival = _best(tables, network)
    return f"{mean(tables[rival][network], 'cwece') / mean(tables['Auto'][network], 'cwece'):.2f}, {rival}"


def averaged() -> str:
    """What averages of the clients' own temperatures do, without a ridge."""
    rows = published("averages")
    parts = []
    for series in names(rows, "series"):
        ratios = [mean(own, "cwece") / mean(own, "base_cwece") for own in by_network(rows, series).values()]
        parts.append(f"{series} {min(ratios):.2f} to {max(ratios):.2f}")
    return f"cwECE over the base model's, over networks: {', '.join(parts)}."


def cells() -> str:
    """Other data, more clients, natural clients: cwECE over the base model's, and the worst network's lost points."""
    lines = []
    for where, own in by_cell(pick(CELLS, figure=(OPEN, PRIVATE))).items():
        parts = {figure: [row for row in own if row["figure"] == figure] for figure in (OPEN, PRIVATE)}
        shown = [cell(rows, series) for rows in parts.values() for series in SHORT]
        lines.append([where, str(len(names(own, "network"))), str(len(names(own, "run"))), *shown])
    words = {OPEN: "exact", PRIVATE: "epsilon 1"}
    shown = [f"{series}, {words[figure]}" for figure in (OPEN, PRIVATE) for series in SHORT]
    return markdown(["cell", "networks", "runs", *shown], lines)


def by_cell(rows: Rows) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for row in rows:
        where = f"{row['dataset']}, {row['clients']} clients of {row['records']}"
        found.setdefault(where, []).append(row)
    return found


PAGE = {"both tables": both_tables, "margins": margins, "cells": cells}
ANNEX = {"weighted": weighted, "by skew": by_skew, "averages": averaged}
