"""README.md from the CSV files."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.auto.data import NETWORKS, SETS

HERE = Path(__file__).parent
CHOSEN = ("resnet20", "resnet44", "lenet5")  # on which constants were chosen


def read(name: str) -> list[dict[str, str]]:
    path = HERE / name
    return list(csv.DictReader(path.open())) if path.exists() else []


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] + ["--:"] * (len(header) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def ten_classes() -> str:
    found: dict[str, dict[str, dict[str, float]]] = defaultdict(dict)
    for row in read("ten_classes.csv"):
        found[row["network"]][row["method"]] = {key: float(row[key]) for key in ("nll", "cwece", "ece")}
    rows = []
    for name in [name for name in NETWORKS if name in found]:
        peers = {key: one for key, one in found[name].items() if key not in {"Auto", "none"}}
        line = [f"{name}{' (chosen on)' if name in CHOSEN else ''}"]
        for metric in ("nll", "cwece", "ece"):
            best = min(peers, key=lambda peer: peers[peer][metric])
            line.append(f"{found[name]['Auto'][metric] / peers[best][metric]:.3f} ({best})")
        rows.append(line)
    return table(["network", "log loss", "classwise ECE", "ECE"], rows)


def two_classes() -> str:
    found: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in read("two_classes.csv"):
        found[row["set"], row["model"]][row["method"]] = float(row["nll"])
    models = list(dict.fromkeys(model for _, model in found))
    rows, above = [], defaultdict(list)
    for name in SETS:
        line = [name]
        for model in models:
            others = {key: value for key, value in found.get((name, model), {}).items() if key != "Auto"}
            if not others:
                line.append("")
                continue
            best = min(others, key=lambda other: others[other])
            change = 100 * (found[name, model]["Auto"] / others[best] - 1)
            above[model].append(change)
            line.append(f"{change:+.2f}")
        rows.append(line)
    rows.append(["**median**", *(f"**{np.median(above[model]):+.2f}**" if above[model] else "" for model in models)])
    return table(["set", *models], rows)


def harm() -> str:
    rows = []
    found: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in read("harm.csv"):
        found[row["model"], row["epsilon"]].append(row)
    for (model, epsilon), every in found.items():
        means, worst = [float(row["mean"]) for row in every], [float(row["worst"]) for row in every]
        often, changed = [float(row["above 2%"]) for row in every], [float(row["changed"]) for row in every]
        runs = sum(int(row["runs"]) for row in every)
        share = f"{100 * np.mean(often):.1f}%", f"{100 * np.mean(changed):.1f}%"
        rows.append([f"{model} {epsilon}", str(runs), f"{max(means):.3f}", share[0], f"{max(worst):.2f}", share[1]])
    return table(["privacy", "runs", "largest mean", "more than 2% worse", "worst run", "changed at all"], rows)


def speed() -> str:
    rows = [
        [row["task"], f"{float(row['Auto']):.3f}", f"{float(row['peer']):.3f}", f"{float(row['ratio']):.2f}"]
        for row in read("speed.csv")
    ]
    return table(["task", "Auto, s", "peer, s", "ratio"], rows)


def runs(name: str) -> str:
    found = sorted({int(row["runs"]) for row in read(name)})
    return " to ".join(str(number) for number in (found[:1] + found[-1:] if len(found) > 1 else found))


def write() -> None:
    (HERE / "README.md").write_text(f"""# Auto beside everything else

Written from the CSV files by `python -m benchmarks.auto.run RUNS`, which goes on where it was stopped. Thirty
splits and 200 runs would be enough; the numbers of runs below are what there was time for, so differences of a percent
on small sets are chance.

**What was chosen on what.** Constants of two classes were chosen on the synthetic families in `data.py`
(calibrated, over-confident, shifted, lopsided, ten values, scores of 0 and 1, waved), those of ten classes on
resnet20, resnet44 and lenet5, on other splits. Three choices were made after a look at sets that are reported
here: the guard is off with two classes because of the naive Bayes rows, and how noisy cells are weighed and
clients' temperatures are held to the rule was changed after a first run of the calibrated adult-trees and
heart-logistic. No constant was fitted to them.

**What is missed.** Ten classes: wideresnet164 is 1.7% above the best central log loss (wanted: 1%), 9% above the
best classwise ECE and 17% above the best ECE, since sms may change the top class and `Auto` does not; resnet20,
resnet56 and lenet5 miss 3% of ECE. Two classes: exact sums miss 0.2% on census-bayes and on the heart sets;
census-logistic misses 1% under local reports at epsilon 5 and under user-level privacy; naive Bayes misses it
where noise hides whole clients, whose residuals say little about scores next to 0 and 1; the heart sets are left
alone under large noise. No harm: one run of 3,456 was more than 10% worse, and with wideresnet164 at epsilon 3 a
fifth of the runs changed something, though to the better on average: the likelihood of shifts is not exact there.

## Ten classes, exact sums: Auto over the best central method

CIFAR-10 networks, 5,000 records to fit at 100 skewed clients, 5,000 to test, mean of {runs("ten_classes.csv")}
splits. The best central method (in brackets) is chosen per network and metric on the test half, of scikit-learn
temperature, sigmoid and isotonic, netcal temperature, probmetrics svs, sms and ts-mix, fitted on the pooled
records. Below 1 Auto is better. `Auto` keeps the top class; sms and svs do not.

{ten_classes()}

## Two classes: log loss of Auto above the best other method, in percent

Mean of {runs("two_classes.csv")} splits; up to 30,000 records to fit and as many to test (heart: 306); natural
sites, or as many clients as named. Others are no calibration, `PlattScaling`, `BetaScaling`, `IsotonicBuckets`,
`BinaryBBQ`, with clients `BoundedTemperature`, and with exact sums central sigmoid, isotonic and beta; the best of
them is chosen on the test half. Below 0 Auto is better.

{two_classes()}

census-bayes has most of its scores beyond 1e-12 from 0 and 1, which a table of log-odds does not tell apart and
isotonic regression on raw floats does. The heart sets have 306 records: there the rule against harm leaves small
errors alone, which a central calibrator corrects.

## No harm: calibrated classifiers

Labels are drawn from each classifier's own probabilities, 5,000 records to fit at 100 clients and the others to
test. Figures are the (classwise) ECE after over before, over six classifiers (flights, adult-trees,
heart-logistic, resnet56, lenet5, wideresnet164): the largest mean of a classifier, the share of runs that are more
than 2% worse, the worst run, and how often anything was changed.

{harm()}

## Speed and messages

Processor seconds of one thread, best of three, one run, under secure aggregation with ten clients.

{speed()}

With exact sums Auto sends 6 messages up to 32 classes (14 before), 37 beyond, as before; with two classes 1. With
ten classes a client sends 2,358 numbers of 8 bytes in all, with two classes 16,384. Under noise: 1 or 2 messages,
with two classes 1, and 3 where whole clients are hidden. The time of a three-site deployment, a million clients
under user-level privacy, monotony in epsilon over a hundred runs, and `AccT` on the corrupted images were not
measured again for this page; tests hold smaller forms of the last two.
""")


if __name__ == "__main__":
    write()
