"""The paper's methods at the paper's own settings: its tables 2 and 3 and its figures, on our logits.

Run with `python -m benchmarks.maddock.published`; rows that published.csv has are kept, so a rerun goes on where it
stopped. `--again Auto` measures a series again, on the networks whose logits are here, and `--dataset mnist` runs one
data set alone. `--quick` runs two runs of the tables on one network, into the file that `--out` names.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from pathlib import Path
from zlib import crc32

import numpy as np

import fedcalib as fc
from benchmarks.maddock.contenders import DELTA, SAMPLED
from benchmarks.maddock.data import Deal, halves, networks
from benchmarks.maddock.measure import row
from benchmarks.progress import Sheet, Table
from fedcalib.artifacts.scaling import Temperature
from fedcalib.errors import TooFewClients
from fedcalib.families.affine import TemperatureFamily

HERE = Path(__file__).parent
KEY = ("figure", "dataset", "network", "x", "series", "run")
MEASURED = ("cwece", "ece", "nll", "accuracy")
COLUMNS = (*KEY, *MEASURED, *(f"base_{name}" for name in MEASURED))
TABLES = {
    "cifar10": ("lenet5", "resnet20", "wideresnet164", "resnet32", "resnet44", "resnet56", "vgg16_plambda"),
    "cifar100": ("lenet5", "wideresnet164", "densenetbc100"),
    "mnist": ("cnn 0.1", "cnn iid"),  # benchmarks/base_models trains these; without them they are left out
    "mnist-sgd": ("cnn 0.1, rate 0.001", "cnn iid, rate 0.001"),
    "cifar10-fedavg": ("cnn 0.1", "cnn 0.3", "cnn iid"),
}
BETAS = ("0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "1.0", "iid")
EVEN = 1000.0  # stands for IID among betas
SLOW = ("FedOPVector", "FedCal")  # local fits of many parameters
FEW = 5  # how often networks of every skew have them
FIGURES = {"cifar10": ("lenet5", "resnet20", "wideresnet164"), "cifar100": ("lenet5",), "mnist": ("cnn 0.1",)}
FIGURES |= {"cifar10-fedavg": ("cnn 0.1",)}
ROUNDS, CLIP, CLIPS = 12, 0.5, (10.0, 50.0)
WEIGHTED = fc.methods.Weighted
EXACT, HUNDRED = fc.Open(), Deal()


@dataclass(frozen=True)
class Case:
    """One point of a figure, or one entry of a table."""

    figure: str
    x: float
    series: str
    method: fc.Method[fc.Calibrator]
    privacy: fc.privacy.Privacy = EXACT
    deal: Deal = HUNDRED
    participation: fc.cohort.Participation | None = SAMPLED


def binned(rounds: int, totals: tuple[float, ...]) -> Iterator[tuple[str, fc.FedBBQ]]:
    """FedBBQ and its two weightings; without noise the weights need the number of records of each class."""
    yield "FedBBQ", fc.FedBBQ.as_published(rounds=rounds)
    yield "FedBBQ, all weight", fc.FedBBQ.as_published(WEIGHTED.as_published(totals), rounds)
    changed = WEIGHTED.as_published(totals, changed_only=True)
    yield "FedBBQ, changed weight", fc.FedBBQ.as_published(changed, rounds)


def binning_noise(epsilon: float) -> fc.UserGaussian:
    return fc.UserGaussian(epsilon, DELTA, separate=True)


def table_2(totals: tuple[float, ...]) -> Iterator[Case]:
    """Without privacy, T = 12."""
    for series, method in binned(ROUNDS, totals):
        yield Case("table 2", ROUNDS, series, method)
    corrected = fc.FedBBQ.as_published(WEIGHTED.as_published(totals), corrected=True)
    yield Case("table 2", ROUNDS, "FedBBQ, all weight, N' = 2B", corrected)
    yield Case("table 2", ROUNDS, "FedBin", fc.FedBin.as_published())
    yield Case("table 2", ROUNDS, "FedTemp", fc.FedTemp.as_published())
    yield Case("table 2", ROUNDS, "FedOPVector", fc.FedOPVector.as_published())
    yield Case("table 2", ROUNDS, "FedCal", fc.FedCal.as_published())
    yield Case("table 2", ROUNDS, "Auto", fc.Auto(), participation=None)


def table_3(epsilon: float, figure: str = "table 3") -> Iterator[Case]:
    """For whole clients, T = 12."""
    for series, method in binned(ROUNDS, ()):
        yield Case(figure, epsilon, series, method, binning_noise(epsilon))
    model = fc.UserGaussian(epsilon, DELTA)
    yield Case(figure, epsilon, "FedTemp", fc.FedTemp.as_published(clip=CLIP), model)
    yield Case(figure, epsilon, "FedOPVector", fc.FedOPVector.as_published(clip=CLIP), model)
    yield Case(figure, epsilon, "FedCal", fc.FedCal.as_published(clip=CLIP), model)
    yield Case(figure, epsilon, "Auto", fc.Auto(typical_records=50.0), model, participation=None)


def by_rounds(totals: tuple[float, ...]) -> Iterator[Case]:
    """Figures 2a and 2b, 5 and 10, with the central calibrators as the paper's dashed lines."""
    for rounds in (1, 4, 12, 30, 60):
        for series, method in binned(rounds, totals):
            yield Case("2ab", rounds, series, method)
        yield Case("2ab", rounds, "FedTemp", fc.FedTemp.as_published(rounds=rounds))
        if rounds <= 12:
            yield Case("2ab", rounds, "FedVector", fc.FedVector.as_published(rounds=rounds))
            yield Case("2ab", rounds, "FedOPVector", fc.FedOPVector.as_published(rounds=rounds))
            yield Case("2ab", rounds, "FedCal", fc.FedCal.as_published(rounds=rounds))
    yield Case("2ab", 0, "BBQ, central", fc.FedBBQ.as_published(rounds=1), participation=None)
    pooled = fc.OneShotTemperature(reach=30.0, refinements=2)
    yield Case("2ab", 0, "temperature, central", pooled, participation=None)


def by_skew(totals: tuple[float, ...]) -> Iterator[Case]:
    """Figures 1a and 2c."""
    for beta in (0.05, 0.1, 0.5, 1.0, 10.0):
        deal = Deal(beta=beta)
        for series, method in binned(ROUNDS, totals):
            yield Case("2c", beta, series, method, deal=deal)
        yield Case("2c", beta, "FedTemp", fc.FedTemp.as_published(), deal=deal)
        yield Case("1a", beta, "FedBin, T = 1", fc.FedBin.as_published(rounds=1), deal=deal)
        yield Case("1a", beta, "FedBin", fc.FedBin.as_published(), deal=deal)


def by_budget() -> Iterator[Case]:
    """Figures 3a, 3b and 8, and with several rounds 3c and 9."""
    for epsilon in (0.25, 0.5, 1.0, 3.0, 10.0):
        for series, method in binned(ROUNDS, ()):
            yield Case("3ab", epsilon, series, method, binning_noise(epsilon))
        temperature = fc.FedTemp.as_published(clip=CLIP)
        yield Case("3ab", epsilon, "FedTemp", temperature, fc.UserGaussian(epsilon, DELTA))
    for epsilon in (1.0, 3.0):
        for rounds in (1, 4, 12, 30):
            for series, method in binned(rounds, ()):
                yield Case("9", rounds, f"{series}, epsilon {epsilon:g}", method, binning_noise(epsilon))
            warm = fc.FedTemp.as_published(clip=CLIP, rounds=rounds)
            yield Case("9", rounds, f"FedTemp, epsilon {epsilon:g}", warm, fc.UserGaussian(epsilon, DELTA))


def by_bins(totals: tuple[float, ...]) -> Iterator[Case]:
    """Figure 4: bins at T = 1, then bins and rounds without and with noise."""
    for finest in (3, 4, 5, 6, 7, 8, 10):
        for series, method in binned(1, totals):
            yield Case("4a", finest, series, replace(method, finest=finest))
    for finest in (4, 7, 10):
        for rounds in (1, 12, 30):
            _, (series, method), _ = binned(rounds, totals)
            yield Case("4b", rounds, f"{series}, M = {finest}", replace(method, finest=finest))
            _, (series, method), _ = binned(rounds, ())
            yield Case("4c", rounds, f"{series}, M = {finest}", replace(method, finest=finest), binning_noise(3.0))


def by_clip() -> Iterator[Case]:
    """Figure 8c, clips of positives and negatives, and figure 11, clips of FedTemp; -1 is none, as in the paper."""
    for positives in (1.0, 10.0, 50.0):
        for negatives in (10.0, 50.0, 100.0):
            method = replace(fc.FedBBQ.as_published(), clip=(positives, negatives))
            yield Case("8c", positives, f"FedBBQ, C- = {negatives:g}", method, binning_noise(1.0))
    for clip in (0.1, 0.5, 1.0, inf):
        for rounds in (1, 12, 30, 60):
            method = fc.FedTemp.as_published(clip=clip, rounds=rounds)
            yield Case("11", rounds, f"FedTemp, C = {-1 if clip == inf else clip:g}", method)


def own_skew(beta: float, totals: tuple[float, ...]) -> Iterator[Case]:
    """Figure 6c, and tables 2 and 3 by skew: clients of the skew that trained a network calibrate it."""
    for figure, cases in (("6c", table_2(totals)), ("6c, epsilon 1", table_3(1.0))):
        yield from (replace(case, figure=figure, x=beta, deal=Deal(beta=beta)) for case in cases)


def figures(dataset: str, totals: tuple[float, ...]) -> Iterator[Case]:
    yield from by_rounds(totals)
    yield from by_skew(totals)
    if dataset == "mnist":  # the paper has no other figure of it
        return
    yield from by_budget()
    yield from by_bins(totals)
    yield from by_clip()


def tables(totals: tuple[float, ...]) -> Iterator[Case]:
    yield from table_2(totals)
    yield from table_3(1.0)


@lru_cache(maxsize=16)
def clients(dataset: str, network: str, deal: Deal, run: int) -> tuple[fc.Federation, fc.Records, dict[str, float]]:
    """A deal of a network's records, the same as in run.py; those to measure on; and the base model's errors."""
    calibration, test = halves(networks(dataset)[network], run)
    dealt = fc.Federation.dirichlet(calibration, deal.clients, deal.beta, seed=run)
    return dealt, test, row(fc.artifacts.Identity(), test)


def known(wanted: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    """The networks whose logits are here."""
    return [(dataset, name) for dataset, names in wanted.items() for name in names if name in networks(dataset)]


def class_totals(dataset: str, network: str, run: int) -> tuple[float, ...]:
    calibration, _ = halves(networks(dataset)[network], run)
    return tuple(np.bincount(calibration.labels, minlength=calibration.classes).astype(float).tolist())


def calibrated(case: Case, fit: fc.Federation, seed: str) -> fc.Calibrator:
    """Run a case; where chance draws nobody for a round, which is rare, draw again."""
    place = fc.InProcess(fit, fewest_clients=1)
    for again in range(9):
        source = fc.Simulated(crc32(f"{seed} {again}".encode()))
        with suppress(TooFewClients):
            told = {"participation": case.participation, "randomness": source}
            return fc.run(case.method, place, case.privacy, **told).artifact
    raise SystemExit(f"Nobody was drawn in some round of {case.series}, nine times over; draw more clients.")


def line(key: tuple[object, ...], found: dict[str, float], base: dict[str, float]) -> dict[str, object]:
    """A row of published.csv."""
    values = [f"{part[name]:.6g}" for part in (found, base) for name in MEASURED]
    return dict(zip(COLUMNS, (*key, *values), strict=True))


def measure(sheet: Sheet, dataset: str, network: str, run: int, cases: Iterable[Case]) -> None:
    for case in cases:
        key = (case.figure, dataset, network, f"{case.x:g}", case.series, run)
        if sheet.has(*key):
            continue
        fit, test, base = clients(dataset, network, case.deal, run)
        found = row(calibrated(case, fit, " ".join(map(str, key))), test)
        sheet.add(line(key, found, base))


def averages(sheet: Sheet, dataset: str, network: str, run: int) -> None:
    """Why T is averaged and not 1/T: averages of the temperatures that skewed clients find alone, without a ridge."""
    fit, test, base = clients(dataset, network, HUNDRED, run)
    family, source = TemperatureFamily(), fc.Simulated(0)
    own = family.fit_each(np.ones(1), fit, ridge=0.0, steps=50, randomness=source)[:, 0][fit.sizes > 0]
    found = {"mean of 1/T": 1 / (1 / own).mean(), "mean of ln T": np.exp(np.log(own).mean()), "mean of T": own.mean()}
    for series, value in found.items():
        key = ("averages", dataset, network, "0.1", series, run)
        if not sheet.has(*key):
            sheet.add(line(key, row(Temperature(float(value)), test), base))


def forget(path: Path, series: str, wanted: dict[str, tuple[str, ...]]) -> None:
    """Drop the rows of a series that can be measured again."""
    here = set(known(wanted))
    rows = [one for one in Table(path).rows if one["series"] != series or (one["dataset"], one["network"]) not in here]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table-runs", type=int, default=20)
    parser.add_argument("--figure-runs", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="two runs of both tables on one network")
    parser.add_argument("--out", type=Path, default=HERE / "published.csv")
    parser.add_argument("--again", help="a series whose rows are dropped and measured again")
    parser.add_argument("--dataset", action="append", choices=TABLES, help="all, unless given")
    told = parser.parse_args()
    chosen, drawn, skewed = (
        {name: networks for name, networks in some.items() if name in (told.dataset or TABLES)}
        for some in (TABLES, FIGURES, {"mnist": tuple(f"cnn {beta}" for beta in BETAS)})
    )
    if told.again:
        forget(told.out, told.again, chosen)
    sheet = Sheet(told.out, KEY)
    if told.quick:
        chosen, told.table_runs, told.figure_runs = {"cifar10": ("lenet5",)}, 2, 0
    for run in range(told.table_runs):
        for dataset, name in known(chosen):
            measure(sheet, dataset, name, run, tables(class_totals(dataset, name, run)))
        for dataset, name in known({} if told.quick else skewed):
            skew = name.removeprefix("cnn ")
            own = own_skew(EVEN if skew == "iid" else float(skew), class_totals(dataset, name, run))
            measure(sheet, dataset, name, run, (case for case in own if run < FEW or case.series not in SLOW))
    for run in range(told.figure_runs):
        for dataset, name in known(drawn):
            measure(sheet, dataset, name, run, figures(dataset, class_totals(dataset, name, run)))
            averages(sheet, dataset, name, run)
    return 0


if __name__ == "__main__":
    sys.exit(main())
