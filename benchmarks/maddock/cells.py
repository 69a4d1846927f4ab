"""The published methods at the paper's settings with many clients, on Fashion-MNIST, and with real writers as clients.

Run with `python -m benchmarks.maddock.cells [--fashion DIRECTORY]`; rows that cells.csv has are kept. Tables 2 and 3 of
the paper on 1,000 clients of 5 and of 50 records, on Fashion-MNIST, and on MNIST by writer, where rounds vary too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

import fedcalib as fc
from benchmarks.maddock.data import Deal, halves, networks, writers
from benchmarks.maddock.measure import row
from benchmarks.maddock.published import MEASURED, Case, binned, calibrated, table_2, table_3
from benchmarks.maddock.small_models import fashion
from benchmarks.progress import Sheet

HERE = Path(__file__).parent
KEY = ("figure", "dataset", "network", "clients", "records", "x", "series", "run")
COLUMNS = (*KEY, *MEASURED, *(f"base_{name}" for name in MEASURED))
HUNDRED, THOUSAND, LARGER = Deal(), Deal(1000, 5), Deal(1000, 50)
CIFAR = ("lenet5", "resnet20", "wideresnet164")
CELLS = (
    *(("fashion-mnist", "mlp", deal) for deal in (HUNDRED, THOUSAND)),
    *(("cifar10", network, THOUSAND) for network in CIFAR),
)
SLOW = tuple(("cifar10", network, LARGER) for network in CIFAR)
ASKED = (1, 4, 30, 60)  # rounds, beside the twelve of table 2
Split = tuple[fc.Federation, fc.Records]


@cache
def dealt(dataset: str, network: str, deal: Deal, run: int) -> Split:
    """A deal of a network's records; where clients hold more than there is, records come with replacement."""
    calibration, test = halves(networks(dataset)[network], run)
    if deal.clients * deal.records != len(calibration):
        rows = np.random.default_rng([run, 2]).integers(len(calibration), size=deal.clients * deal.records)
        calibration = calibration.take(rows)
    return fc.Federation.dirichlet(calibration, deal.clients, deal.beta, seed=run), test


def totals(fit: fc.Federation) -> tuple[float, ...]:
    return tuple(np.bincount(fit.records.labels, minlength=fit.records.classes).astype(float).tolist())


def both_tables(fit: fc.Federation) -> Iterator[Case]:
    """Tables 2 and 3; Auto is told how many records a client has, as it is on the other pages."""
    for case in (*table_2(totals(fit)), *table_3(1.0)):
        auto = case.series == "Auto" and case.figure == "table 3"
        typical = len(fit.records) / len(fit)
        yield replace(case, method=fc.Auto(typical_records=typical)) if auto else case


def by_rounds(fit: fc.Federation) -> Iterator[Case]:
    """Figure 7's curves."""
    for rounds in ASKED:
        for series, method in binned(rounds, totals(fit)):
            yield Case("7", rounds, series, method)
        yield Case("7", rounds, "FedTemp", fc.FedTemp.as_published(rounds=rounds))


def fill(sheet: Sheet, where: tuple[object, ...], run: int, split: Split, cases: Iterable[Case]) -> None:
    fit, test = split
    base = row(fc.artifacts.Identity(), test)
    for case in cases:
        key = (case.figure, *where, f"{case.x:g}", case.series, run)
        if not sheet.has(*key):
            found = row(calibrated(case, fit, " ".join(map(str, key))), test)
            values = [f"{part[name]:.6g}" for part in (found, base) for name in MEASURED]
            sheet.add(dict(zip(COLUMNS, (*key, *values), strict=True)))


def shuffled(sheet: Sheet, dataset: str, network: str, deal: Deal, run: int) -> None:
    """One run of a cell whose records are dealt to clients."""
    split = dealt(dataset, network, deal, run)
    fill(sheet, (dataset, network, deal.clients, deal.records), run, split, both_tables(split[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--fashion", type=Path, help="the directory of Fashion-MNIST; without it, it is left out")
    parser.add_argument("--out", type=Path, default=HERE / "cells.csv")
    told = parser.parse_args()
    if told.fashion:
        fashion(told.fashion)
    sheet = Sheet(told.out, KEY)
    for cell in CELLS:
        for run in range(told.runs if cell[0] == "cifar10" or told.fashion else 0):
            shuffled(sheet, *cell, run)
    for run in range(told.runs):
        fit, held = writers(run)
        held_by_all = len(fit.records) + len(held.records)  # half of a writer's records on average, whatever the split
        where = ("mnist-writers", "mlp", len(fit), round(held_by_all / 2 / len(fit)))
        fill(sheet, where, run, (fit, held.records), (*both_tables(fit), *by_rounds(fit)))
    for cell in SLOW:
        for run in range(told.runs):
            shuffled(sheet, *cell, run)


if __name__ == "__main__":
    main()
