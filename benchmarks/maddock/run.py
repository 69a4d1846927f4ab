"""Fill the results file; rows that are there already are not computed again."""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from zlib import crc32

import fedcalib as fc
from benchmarks.maddock.contenders import Contender, ours, private_ours, private_published, published
from benchmarks.maddock.data import Deal, dealt, halves, networks, with_local_temperatures, writers
from benchmarks.maddock.measure import COLUMNS, row

RESULTS = Path(__file__).with_name("results.csv")
KEY = COLUMNS[:10]


class Sheet:
    """A CSV file that grows by a row at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: set[tuple[str, ...]] = set()
        if path.exists():
            with path.open(newline="") as file:
                self.done = {tuple(line[name] for name in KEY) for line in csv.DictReader(file)}
        else:
            path.write_text(",".join(COLUMNS) + "\n")

    def add(self, values: dict[str, object]) -> None:
        with self.path.open("a", newline="") as file:
            csv.DictWriter(file, COLUMNS, extrasaction="ignore").writerow({**values})

    def has(self, values: dict[str, object]) -> bool:
        return tuple(str(values[name]) for name in KEY) in self.done


def compete(
    sheet: Sheet, about: dict[str, object], fit: fc.Federation, test: fc.Records, who: Iterable[Contender]
) -> None:
    """Run contenders on one deal of the cards."""
    for contender in who:
        values = {**about, "method": contender.name, "setting": contender.setting}
        if sheet.has(values):
            continue
        privacy = contender.privacy or fc.Open()
        start = time.perf_counter()
        place = fc.InProcess(fit, fewest_clients=1)
        source = fc.Simulated(crc32(f"{about['network']} {about['run']}".encode()))  # each network its own noise
        result = fc.run(contender.method, place, privacy, participation=contender.participation, randomness=source)
        seconds = time.perf_counter() - start
        measured = {name: f"{value:.6g}" for name, value in row(result.artifact, test).items()}
        sheet.add({**values, **measured, "seconds": f"{seconds:.4g}", "bytes": result.bytes_a_client})


def cells(table: str, datasets: list[str], runs: int) -> Iterator[tuple[str, str, fc.Records, int]]:
    for dataset in datasets:
        for name, records in networks(dataset).items():
            for run in range(runs):
                yield dataset, name, records, run


def about(table: str, dataset: str, network: str, deal: Deal, *, epsilon: float | str, run: int) -> dict[str, object]:
    return {
        "table": table, "dataset": dataset, "network": network, "clients": deal.clients, "records": deal.records,
        "beta": deal.beta, "epsilon": epsilon, "run": run,
    }  # fmt: skip


BASE = Contender("base", "", fc.Pipeline((fc.Auto(epsilon=1e-9),)))  # asks nothing: the identity


def open_table(sheet: Sheet, datasets: list[str], runs: int) -> None:
    """Without privacy, K = 100 and 1000."""
    for dataset, name, records, run in cells("open", datasets, runs):
        calibration, test = halves(records, run)
        for deal in (Deal(), Deal(clients=1000, records=5)):
            few = name != "resnet20" or deal.clients > 100  # local fits of many parameters are slow
            who = [BASE, *published(few), *ours()]
            compete(
                sheet, about("open", dataset, name, deal, epsilon="", run=run), dealt(calibration, deal, run), test, who
            )


def private_table(
    sheet: Sheet, datasets: list[str], runs: int, epsilons: list[float], *, only: list[str], records_each: list[str]
) -> None:
    """For whole clients, K = 100 and 1000."""
    for dataset, name, records, run in cells("private", datasets, runs):
        calibration, test = halves(records, run)
        deals = (Deal(), Deal(1000, 5)) if dataset == "cifar100" else (Deal(), Deal(1000, 5), Deal(1000, 50))
        for deal in deals:
            if records_each and f"{deal.clients}x{deal.records}" not in records_each:
                continue
            fit = dealt(calibration, deal, run)
            for epsilon in epsilons:
                few = name != "resnet20" or deal.clients > 100 or epsilon != 1.0  # many local fits are slow
                everybody = [BASE, *private_published(epsilon, few), *private_ours(epsilon, deal)]
                who = [contender for contender in everybody if not only or contender.name in only]
                compete(sheet, about("private", dataset, name, deal, epsilon=epsilon, run=run), fit, test, who)


def writers_table(sheet: Sheet, runs: int) -> None:
    """Natural clients: MNIST by writer."""
    for run in range(runs):
        fit, held = writers(run)
        fit = with_local_temperatures(fit)
        deal = Deal(len(fit), round(len(fit.records) / len(fit)), 0.0)
        compete(
            sheet,
            about("writers", "mnist", "mlp", deal, epsilon="", run=run),
            fit,
            held.records,
            [BASE, *published(True), *ours()],
        )
        for epsilon in (1.0, 3.0):
            who = [BASE, *private_published(epsilon, True), *private_ours(epsilon, deal)]
            compete(sheet, about("writers", "mnist", "mlp", deal, epsilon=epsilon, run=run), fit, held.records, who)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", default=["open", "private", "writers"])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--datasets", nargs="*", default=["cifar10", "cifar100"])
    parser.add_argument("--epsilons", nargs="*", type=float, default=[1.0, 0.5, 3.0])
    parser.add_argument("--only", nargs="*", default=[], help="names of contenders in the private table")
    parser.add_argument("--deals", nargs="*", default=[], help="like 100x50: clients times records")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    sheet = Sheet(given.results)
    if "open" in given.tables:
        open_table(sheet, given.datasets, given.runs)
    if "private" in given.tables:
        private_table(sheet, given.datasets, given.runs, given.epsilons, only=given.only, records_each=given.deals)
    if "writers" in given.tables:
        writers_table(sheet, given.runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
