"""Draw figures.png from figures.csv and the natural clients of results.csv."""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Any

import numpy as np

from benchmarks.maddock.statistics import HERE, Rows, average, grouped, results

PANELS = {
    "rounds": ("rounds T of a tenth of the clients", "Sums need one round, local fits many"),
    "beta": ("Dirichlet beta of the labels (left: more skew)", "Skew hurts local fits, not sums"),
    "M": ("M: up to 2^M bins", "Bins hardly matter, noise does"),
    "clip": ("clip of FedTemp's updates", "The best clip is known only afterwards"),
    "epsilon, 100 clients": ("epsilon, 100 clients of 50 records", "Few clients: one number survives"),
    "epsilon, 1000 clients": ("epsilon, 1000 clients of 50 records", "Many clients: shifts by class pay"),
}
COLOURS = {
    "FedTemp": "tab:blue", "FedBBQ": "tab:orange", "FedVector": "tab:green", "Auto": "black", "FedBin": "tab:red",
}  # fmt: skip


def colour(method: str) -> str:
    return next((value for name, value in COLOURS.items() if method.startswith(name)), "tab:grey")


def style(method: str) -> str:
    return "--" if "weighted" in method or "no noise" in method else "-"


def lines(axis: Any, rows: Rows) -> None:
    """A line a method: the error over the base model's, averaged geometrically, with the networks' range."""
    found: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (method, x, _), part in grouped(rows, "method", "x", "network").items():
        ratios = [float(row["cwece"]) / float(row["base"]) for row in part]
        found[method][float(x)].append(float(np.mean(ratios)))
    for method, by_x in found.items():
        places = sorted(by_x)
        middle = [np.exp(np.mean(np.log(by_x[x]))) for x in places]
        axis.plot(places, middle, style(method), marker="o", ms=3, label=method, color=colour(method))
        low, high = [min(by_x[x]) for x in places], [max(by_x[x]) for x in places]
        axis.fill_between(places, low, high, alpha=0.12, color=colour(method), lw=0)
    axis.axhline(1, color="tab:grey", lw=0.8)
    axis.set_yscale("log")
    ticks = (
        [0.4, 0.5, 0.7, 1, 1.5] if max(map(max, (line.get_ydata() for line in axis.lines))) < 2 else [0.5, 1, 2, 5, 10]
    )
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ylim(0.8 * ticks[0], 1.3 * ticks[-1])
    axis.minorticks_off()
    axis.legend(fontsize=6)


def naive(axis: Any, rows: Rows) -> None:
    """Bars: what averages of local temperatures do."""
    names = ["mean of 1/T", "mean of ln T", "mean of T", "together"]
    networks = sorted({row["network"] for row in rows})
    for number, network in enumerate(networks):
        part = {key[0]: some for key, some in grouped(rows, "method", "network").items() if key[1] == network}
        heights = [average(part[name], "cwece") / average(part[name], "base") for name in names]
        axis.bar(np.arange(4) + 0.27 * (number - 1), heights, 0.25, label=network)
    axis.set_xticks(range(4), names, fontsize=7)
    axis.axhline(1, color="tab:grey", lw=0.8)
    axis.set(title="What is averaged decides", xlabel="temperature from 100 skewed clients, no noise")
    axis.legend(fontsize=6)


def natural(axis: Any) -> None:
    """Bars: clients as they come, MNIST by writer."""
    rows = [row for row in results() if row["table"] == "writers"]
    kinds = ["FedBin", "FedBBQ", "FedBBQ weighted", "FedTemp", "Auto"]
    for number, (epsilon, label) in enumerate((("", "exact"), ("3.0", "epsilon 3"), ("1.0", "epsilon 1"))):
        part = [row for row in rows if row["epsilon"] == epsilon]
        base = [row for row in part if row["method"] == "base"]
        if not base:
            continue
        best = {
            name: min(average(some, "cwece") for key, some in grouped(part, "method", "setting").items() if name in key)
            for name in kinds
            if any(row["method"] == name for row in part)
        }
        heights = [min(best.get(name, np.nan) / average(base, "cwece"), 10) for name in kinds]
        axis.bar(np.arange(len(kinds)) + 0.27 * (number - 1), heights, 0.25, label=label)
    axis.set_xticks(range(len(kinds)), [name.replace(" ", "\n") for name in kinds], fontsize=7)
    axis.axhline(1, color="tab:grey", lw=0.8)
    axis.set(title="Natural clients: MNIST by writer", xlabel="best setting of each", yscale="log")
    axis.set_yticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10 or more"])
    axis.minorticks_off()
    if axis.get_legend_handles_labels()[0]:
        axis.legend(fontsize=6)


def draw() -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = results(HERE / "figures.csv")
    figure, axes = pyplot.subplots(2, 4, figsize=(17, 7.6), layout="constrained", sharey=False)
    figure.suptitle(
        "Class-wise calibration error as a multiple of the base model's (1 = no calibration; lower is better). "
        f"CIFAR-10: {', '.join(sorted({row['network'] for row in rows}))}; "
        f"{len({row['run'] for row in rows})} runs; bands span the networks.",
        fontsize=10,
    )
    naive(axes[0, 0], [row for row in rows if row["figure"] == "naive"])
    for axis, (name, (label, title)) in zip([*axes[0, 1:], *axes[1, :3]], PANELS.items(), strict=True):
        lines(axis, [row for row in rows if row["figure"] == name])
        axis.set(xlabel=label, title=title)
        if name != "M":
            axis.set_xscale("log")
    natural(axes[1, 3])
    figure.savefig(HERE / "figures.png", dpi=100)


if __name__ == "__main__":
    draw()
    sys.exit(0)
