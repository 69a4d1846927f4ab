"""README.md and annex.md from the CSV files."""

from __future__ import annotations

import csv
from collections import defaultdict
from itertools import pairwise, product
from pathlib import Path

import numpy as np

import fedcalib as fc
from benchmarks.auto.data import HUNDRED, NETWORKS, SETS
from benchmarks.auto.shift import MILD
from benchmarks.filled import fill
from fedcalib.types import Floats

HERE = Path(__file__).parent
CHOSEN = ("resnet20", "resnet44", "lenet5")  # on which constants were chosen


def read(name: str) -> list[dict[str, str]]:
    path = HERE / name
    return list(csv.DictReader(path.open())) if path.exists() else []


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] + ["--:"] * (len(header) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


Errors = dict[str, Floats]  # of one network: by method, one row per split of log loss, classwise ECE and ECE
METRICS = ("nll", "cwece", "ece")
OURS = ("Auto", "Auto, guard=False")


def by_split(name: str) -> dict[str, Errors]:
    """Errors by network and method, split by split."""
    found: dict[str, dict[str, list[list[float]]]] = defaultdict(lambda: defaultdict(list))
    for row in read(name):
        found[row["network"]][row["method"]].append([float(row[key]) for key in METRICS])
    return {key: {method: np.array(rows) for method, rows in one.items()} for key, one in found.items()}


def ratio(mine: Floats, best: Floats) -> str:
    """Of two means over the same splits, with the half width of its 95% interval."""
    middle = mine.mean() / best.mean()
    if len(mine) < 2:
        return f"{middle:.3f}"
    error = np.std(mine - middle * best, ddof=1) / len(mine) ** 0.5 / best.mean()
    return f"{middle:.3f} ± {1.96 * error:.3f}"


def classes(name: str, order: tuple[str, ...]) -> str:
    found, rows = by_split(name), []
    for network in [network for network in order if network in found]:
        peers = {key: one for key, one in found[network].items() if key not in {*OURS, "none"}}
        line = [f"{network}{' (chosen on)' if network in CHOSEN else ''}"]
        for place in range(len(METRICS)):
            best = min(peers, key=lambda peer: peers[peer][:, place].mean())
            both = [ratio(found[network][one][:, place], peers[best][:, place]) for one in OURS]
            line += [both[0], both[1], best.replace("probmetrics ", "").replace("scikit-learn ", "sk ")]
        rows.append(line)
    names = ("log loss", "classwise ECE", "ECE")
    header = [part for one in names for part in (one, "guard=False", "best")]
    return table(["network", *header], rows)


def two_classes() -> str:
    found: dict[tuple[str, str], dict[str, tuple[float, float]]] = defaultdict(dict)
    for row in read("two_classes.csv"):
        found[row["set"], row["model"]][row["method"]] = float(row["nll"]), float(row["error"])
    models = list(dict.fromkeys(model for _, model in found))
    rows, above = [], defaultdict(list)
    for name in SETS:
        line = [name]
        for model in models:
            others = {key: value for key, value in found.get((name, model), {}).items() if key != "Auto"}
            if not others:
                line.append("")
                continue
            best = min(others, key=lambda other: others[other][0])
            change = 100 * (found[name, model]["Auto"][0] / others[best][0] - 1)
            above[model].append(change)
            line.append(f"{change:+.2f} ± {196 * others[best][1] / others[best][0]:.2f}")
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
        share = [f"{100 * part:.2f}%" for part in (np.mean(often), max(often), np.mean(changed))]
        privacy = model if model == "exact" else f"{model} {epsilon}"
        rows.append(
            [privacy, f"{len(every)}", f"{runs:,}", f"{max(means):.3f}", *share[:2], f"{max(worst):.2f}", share[2]]
        )
    return table(
        ["privacy", "models", "runs", "largest mean", "2% worse", "of one model", "worst run", "changed at all"], rows
    )


def monotony() -> str:
    """By set and privacy model: the error at each epsilon, and the largest rise in standard errors."""
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = defaultdict(list)
    for row in read("monotone.csv"):
        found[row["set"], row["model"]].append((float(row["epsilon"]), float(row["error"]), float(row["spread"])))
    rows, epsilons = [], sorted({one[0] for every in found.values() for one in every})
    for (name, model), every in found.items():
        every.sort()
        rises = [
            (after[1] - before[1]) / max((before[2] ** 2 + after[2] ** 2) ** 0.5, 1e-12)
            for before, after in pairwise(every)
        ]
        digits = 4 if name in NETWORKS else 3
        rows.append([f"{name}, {model}", *(f"{one[1]:.{digits}f}" for one in every), f"{max(*rises, 0.0):.1f}"])
    return table(["set, privacy", *(f"{epsilon:g}" for epsilon in epsilons), "largest rise, SE"], rows)


def shifts() -> str:
    """Mean ECE in percent, of mild shifts one by one and of others by severity."""
    every = [{**row, **{key: float(row[key]) for key in ("before", "AccT", "without")}} for row in read("shift.csv")]
    mild = [row for row in every if row["before"] < MILD]
    groups = {f"{row['corruption']} {row['severity']}": [row] for row in mild}
    groups[f"**mean of the {len(mild)} mild**"] = mild
    for severity in ("1", "3", "5"):
        others = [row for row in every if row["severity"] == severity and row["before"] >= MILD]
        groups[f"**the {len(others)} others of severity {severity}**"] = others
    rows = []
    for name, some in groups.items():
        if some:
            before, after, without = (np.mean([row[key] for row in some]) for key in ("before", "AccT", "without"))
            numbers = [f"{100 * before:.2f}", f"{100 * after:.2f}", f"{after / before:.2f}", f"{100 * without:.2f}"]
            rows.append([name, *numbers])
    return table(["shift", "before", "AccT", "ratio", "without the rule"], rows)


def deployment() -> str:
    rows = [[row["classes"], row["privacy"], *list(row.values())[2:]] for row in read("deployment.csv")]
    return table(["classes", "privacy", "seconds per job", "processor seconds per site", "load"], rows)


def messages() -> str:
    """Queries and bytes per client of what Auto sends, by public facts alone."""
    rows = []
    for classes_, clients, privacy in product((2, 10, 100), (1000,), PRIVACY):
        method = PRIVACY[privacy].adapt(fc.Auto())
        queries = fc.method.Plan.of(method, fc.Schema(classes_, clients)).queries
        numbers = sum(query.size for query in queries)
        rows.append([str(classes_), privacy, str(len(queries)), f"{numbers:,}", f"{8 * numbers:,}"])
    return table(["classes", "privacy", "queries", "numbers", "bytes"], rows)


PRIVACY = {
    "exact sums": fc.SecAgg(),
    "DistributedDP(1)": fc.DistributedDP(1.0),
    "LocalDP(5)": fc.LocalDP(5.0),
    "SourceLaplace(1)": fc.SourceLaplace(1.0),
    "UserGaussian(1)": fc.UserGaussian(1.0, 1e-5),
}


def speed() -> str:
    rows = [
        [row["task"], f"{float(row['Auto']):.3f}", f"{float(row['peer']):.3f}", f"{float(row['ratio']):.2f}"]
        for row in read("speed.csv")
    ]
    return table(["task", "Auto, s", "peer, s", "ratio"], rows)


def runs(name: str) -> str:
    found = sorted({int(row["runs"]) for row in read(name)})
    return " to ".join(str(number) for number in (found[:1] + found[-1:] if len(found) > 1 else found))


def splits(name: str) -> int:
    """The least number of splits of a network."""
    return min((len(next(iter(one.values()))) for one in by_split(name).values()), default=0)


def write() -> None:
    """Fill in what README.md and annex.md have between their marks."""
    page = {
        "ten": classes("ten_classes.csv", NETWORKS),
        "ten splits": f"Mean of {splits('ten_classes.csv')} splits.",
        "two": two_classes(),
        "two splits": f"Mean of {runs('two_classes.csv')} splits.",
        "harm": harm(),
    }
    annex = {
        "hundred": classes("hundred_classes.csv", HUNDRED),
        "monotone": monotony(),
        "shift": shifts(),
        "speed": speed(),
        "deployment": deployment(),
        "messages": messages(),
    }
    fill(HERE / "README.md", page)
    fill(HERE / "annex.md", annex)


if __name__ == "__main__":
    write()
