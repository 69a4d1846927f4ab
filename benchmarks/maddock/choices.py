"""What Auto is made of, and what it might have been: the alternatives, on splits that no table uses.

Run with `python -m benchmarks.maddock.choices [--fashion DIRECTORY]`; writes choices.csv beside itself. Errors are
relative to the lowest of the same cell's alternatives, network by network; the column says the mean and the largest.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import numpy as np

import fedcalib as fc
from benchmarks.maddock.contenders import DELTA
from benchmarks.maddock.data import Deal, dealt, halves, networks, writers
from benchmarks.maddock.small_models import fashion
from benchmarks.maddock.statistics import HERE
from fedcalib import metrics

RUNS = range(50, 55)
DATASETS = ["cifar10", "cifar100", "mnist"]
Alternatives = dict[str, fc.Method[fc.Calibrator]]
Found = dict[tuple[str, str], dict[str, list[tuple[float, float]]]]  # cell and network, alternative: cwECE, log loss

WARM = fc.OneShotTemperature(reach=30.0, refinements=2)
REST = fc.methods.ResidualBinning(sharing=fc.methods.TwoLevel())


def chains(classes: int) -> Alternatives:
    """With exact sums: each chain of Auto alone, both averaged, and with offsets after the guard."""
    vector = fc.methods.Pipeline((fc.methods.RidgeVector(ridge=3.0), REST))
    order = fc.Auto()._by_order(classes)
    both = fc.methods.Averaged((vector, order))
    guarded = {"vector chain": vector, "order-preserving chain": order, "both, averaged": both}
    return {
        "temperature alone": WARM,
        **{name: fc.methods.Pipeline((WARM, method), guard=True) for name, method in guarded.items()},
        "Auto: and offsets after the guard": fc.Auto(),
        "Auto without the guard": fc.Auto(guard=False),
    }


def temperatures() -> Alternatives:
    """For whole clients: votes with several doubts, cuts and constants, and slopes as they were clipped before."""
    return {
        "BoundedTemperature": fc.BoundedTemperature(),
        **{f"doubt {doubt:g}": fc.BoundedTemperature(doubt=doubt) for doubt in (0.0, 1.0, 2.0, 4.0)},
        **{f"cut {cut:g}": fc.BoundedTemperature(cut=cut) for cut in (1.0, 4.0, 1e3)},
        **{f"quiet {quiet:g}": fc.BoundedTemperature(quiet=quiet) for quiet in (0.5, 8.0)},
        "slopes, clipped by a guess": fc.OneShotTemperature(lowest=0.7, highest=3.0, breadth=1.0, doubt=1.5),
        "nothing": fc.methods.Pipeline((fc.Auto(epsilon=1e-9),)),
    }


def shares() -> Alternatives:
    """For whole clients, enough of them: how much of the budget a temperature gets before shifts by class."""
    return {
        f"{share:.0%} for the temperature": fc.methods.Pipeline(
            (fc.BoundedTemperature(weight=share), fc.methods.ClassShifts(weight=1 - share)), guard=True
        )
        for share in (0.05, 0.1, 0.2, 0.4)
    } | {"all of it, and no shifts": fc.BoundedTemperature()}


def cards(names: list[str], deal: Deal, run: int) -> Iterator[tuple[str, fc.Federation, fc.Records]]:
    """Deal a run's cards: network, clients, records to measure on."""
    for dataset in names:
        for network, records in networks(dataset).items():
            calibration, test = halves(records, run)
            yield f"{dataset} {network}", dealt(calibration, deal, run), test
    fit, held = writers(run)
    yield "writers", fit, held.records


def measured(names: list[str]) -> Found:
    """Run every alternative on every card."""
    found: Found = defaultdict(lambda: defaultdict(list))
    for run in RUNS:
        for network, fit, test in cards(names, Deal(), run):
            place = fc.InProcess(fit, fewest_clients=1)
            trials = [("exact sums", chains(test.classes), None, 1)]
            trials += [(f"100 clients, epsilon {e:g}", temperatures(), e, 4) for e in (0.5, 1.0)]
            if test.classes <= 10:
                trials.append(("100 clients, epsilon 3", shares(), 3.0, 4))
            for cell, alternatives, epsilon, draws in trials:
                model = fc.Open() if epsilon is None else fc.UserGaussian(epsilon, DELTA)
                for name, method in alternatives.items():
                    for draw in range(draws):
                        source = fc.Simulated(crc32(f"{network} {run} {draw}".encode()))
                        probs = fc.run(method, place, model, randomness=source).artifact.of(test)
                        errors = 100 * metrics.classwise_ece(probs, test.labels), metrics.nll(probs, test.labels)
                        found[cell, network][name].append(errors)
    return found


def lines(found: Found) -> Iterator[list[object]]:
    """A line an alternative: how its error compares with the lowest, on average over networks and at worst."""
    for cell in dict.fromkeys(cell for cell, _ in found):
        ratios: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for (where, _), alternatives in found.items():
            if where == cell:
                means = {name: np.mean(values, axis=0) for name, values in alternatives.items()}
                lowest = np.min(list(means.values()), axis=0)
                for name, mean in means.items():
                    ratios[name].append(tuple(mean / lowest))
        for name, values in ratios.items():
            errors, losses = np.array(values).T
            numbers = (errors.mean(), errors.max(), losses.mean(), losses.max())
            yield [cell, name, len(values), *(f"{number:.3f}" for number in numbers)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fashion", type=Path, help="the directory of Fashion-MNIST: adds it to the data sets")
    given = parser.parse_args()
    if given.fashion:
        fashion(given.fashion)
    names = [*DATASETS, "fashion-mnist"] if given.fashion else DATASETS
    with (HERE / "choices.csv").open("w", newline="") as file:
        sheet = csv.writer(file, lineterminator="\n")
        sheet.writerow(
            ["where", "alternative", "networks", "cwECE to the lowest", "worst", "NLL to the lowest", "worst NLL"]
        )
        sheet.writerows(lines(measured(names)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
