"""Fill the results file; rows that are there already are not computed again.

Run with `python -m benchmarks.maddock.run`; `--fashion DIRECTORY` adds Fashion-MNIST, read from there.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

import fedcalib as fc
from benchmarks.maddock.contenders import (
    Contender,
    ours,
    private_ours,
    private_published,
    private_published_of_many_parameters,
    published,
    published_of_many_parameters,
)
from benchmarks.maddock.data import Deal, dealt, halves, networks, with_local_temperatures, writers
from benchmarks.maddock.measure import COLUMNS, row
from benchmarks.maddock.small_models import fashion
from fedcalib.errors import TooFewClients

RESULTS = Path(__file__).with_name("results.csv")
KEY = COLUMNS[:10]
BASE = Contender("base", "", fc.methods.Pipeline((fc.Auto(epsilon=1e-9),)))  # asks nothing: the identity
HUNDRED, THOUSAND, LARGER = Deal(), Deal(1000, 5), Deal(1000, 50)


class Sheet:
    """A CSV file that grows by a row at a time."""

    def __init__(self, path: Path, only: Iterable[str] = ()) -> None:
        self.path = path
        self.only = frozenset(only)  # methods that are wanted; none: all
        self.done: set[tuple[str, ...]] = set()
        if path.exists():
            with path.open(newline="") as file:
                self.done = {tuple(line[name] for name in KEY) for line in csv.DictReader(file)}
        else:
            path.write_text(",".join(COLUMNS) + "\n")

    def add(self, values: dict[str, object]) -> None:
        with self.path.open("a", newline="") as file:
            csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n").writerow({**values})

    def has(self, values: dict[str, object]) -> bool:
        if self.only and values["method"] not in self.only:
            return True
        return tuple(str(values[name]) for name in KEY) in self.done


@dataclass(frozen=True)
class Card:
    """One deal of the cards: a network's records, dealt to clients, and those to measure on."""

    table: str
    dataset: str
    network: str
    deal: Deal
    run: int
    fit: fc.Federation
    test: fc.Records

    def about(self, epsilon: float | str) -> dict[str, object]:
        return {
            "table": self.table, "dataset": self.dataset, "network": self.network, "clients": self.deal.clients,
            "records": self.deal.records, "beta": self.deal.beta, "epsilon": epsilon, "run": self.run,
        }  # fmt: skip


def released(contender: Contender, card: Card) -> fc.Result[fc.Calibrator]:
    """Run a contender with noise of its network's own; where chance draws nobody for a round, draw again."""
    place, privacy = fc.InProcess(card.fit, fewest_clients=1), contender.privacy or fc.Open()
    for again in ("", " again", " and again"):
        source = fc.Simulated(crc32(f"{card.network} {card.run}{again}".encode()))
        with suppress(TooFewClients):
            return fc.run(
                contender.method, place, privacy, participation=contender.participation, randomness=source
            )  # fmt: skip
    raise SystemExit(f"Nobody was drawn in some round of {contender.name}, three times over; draw more clients.")


def compete(sheet: Sheet, card: Card, epsilon: float | str, who: Iterable[Contender]) -> None:
    """Run contenders on one deal; seconds are of the processor, because the machine may be shared."""
    for contender in who:
        values = {**card.about(epsilon), "method": contender.name, "setting": contender.setting}
        if sheet.has(values):
            continue
        start = time.process_time()
        result = released(contender, card)
        seconds = time.process_time() - start
        measured = {name: f"{value:.6g}" for name, value in row(result.artifact, card.test).items()}
        sheet.add({**values, **measured, "seconds": f"{seconds:.4g}", "bytes": result.bytes_per_client})


@dataclass(frozen=True)
class Effort:
    """How much of the benchmark to run."""

    datasets: tuple[str, ...]
    runs: int
    slow_runs: int  # of methods whose local fits take longest
    epsilons: tuple[float, ...] = (1.0, 0.5, 3.0)
    deals: tuple[str, ...] = field(default=())
    first: int = 0  # run

    def wants(self, deal: Deal) -> bool:
        return not self.deals or f"{deal.clients}x{deal.records}" in self.deals


def open_cell(sheet: Sheet, card: Card, effort: Effort) -> None:
    """Without privacy."""
    slow = published_of_many_parameters(card.test.classes) if card.run < effort.slow_runs else ()
    compete(sheet, card, "", [BASE, *published(), *ours(), *slow])


def private_cell(sheet: Sheet, card: Card, effort: Effort) -> None:
    """For whole clients, at every epsilon."""
    for epsilon in effort.epsilons:
        few = card.run >= effort.slow_runs or (card.deal == LARGER and epsilon != 1.0)
        slow = () if few else private_published_of_many_parameters(epsilon, card.test.classes)
        everybody = [BASE, *private_published(epsilon), *private_ours(epsilon, card.deal), *slow]
        compete(sheet, card, epsilon, everybody)


TABLES = {"open": ((HUNDRED, THOUSAND), open_cell), "private": ((HUNDRED, THOUSAND, LARGER), private_cell)}


def table(sheet: Sheet, name: str, effort: Effort) -> None:
    """Fill a table run by run, so that whatever is there is there for every network."""
    deals, cell = TABLES[name]
    for run in range(effort.first, effort.runs):
        for dataset in effort.datasets:
            for network, records in networks(dataset).items():
                calibration, test = halves(records, run)
                for deal in filter(effort.wants, deals):
                    if deal == LARGER and dataset != "cifar10":
                        continue
                    card = Card(name, dataset, network, deal, run, dealt(calibration, deal, run), test)
                    cell(sheet, card, effort)


def writers_table(sheet: Sheet, effort: Effort) -> None:
    """Natural clients: MNIST by writer."""
    for run in range(effort.first, effort.runs):
        fit, held = writers(run)
        deal = Deal(len(fit), round(len(fit.records) / len(fit)), 0.0)
        card = Card("writers", "mnist", "mlp", deal, run, with_local_temperatures(fit), held.records)
        open_cell(sheet, card, effort)
        private_cell(sheet, card, effort)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", default=["open", "private", "writers"])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--first-run", type=int, default=0, help="go on from this one")
    parser.add_argument("--slow-runs", type=int, default=5)
    parser.add_argument("--datasets", nargs="*", default=["cifar10", "cifar100", "mnist"])
    parser.add_argument("--epsilons", nargs="*", type=float, default=[1.0, 0.5, 3.0])
    parser.add_argument("--deals", nargs="*", default=[], help="like 100x50: clients times records")
    parser.add_argument("--only", nargs="*", default=[], help="names of methods: run no others")
    parser.add_argument("--fashion", type=Path, help="the directory of Fashion-MNIST: adds it to the data sets")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    if given.fashion:
        fashion(given.fashion)
        given.datasets.append("fashion-mnist")
    effort = Effort(
        tuple(given.datasets), given.runs, given.slow_runs, tuple(given.epsilons), tuple(given.deals), given.first_run
    )
    sheet = Sheet(given.results, given.only)
    for name in given.tables:
        if name == "writers":
            writers_table(sheet, effort)
        else:
            table(sheet, name, effort)
    return 0


if __name__ == "__main__":
    sys.exit(main())
