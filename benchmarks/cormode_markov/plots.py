"""Pictures of the CSV files, with the published levels as dotted lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

COLOURS = {"ours": "#0072b2", "ours, all leaves": "#009e73", "published tree": "#d55e00", "uniform buckets": "#b8860b"}
PUBLISHED = {
    "rates": {"DistDP eps=1": 1e-3, "LocalDP eps=5": 5e-3},
    "auc": {"DistDP eps=1": 1e-3, "LocalDP eps=5": 5e-3},
}
FLOOR = 1e-8
AXES = {"mean": "mean absolute error", "error": "absolute error of AUC", "ece": "ECE"}


def draw_all(folder: Path) -> None:
    """Draw whatever CSV files are there."""
    drawers = {
        "figure_2_rates_by_height": lambda f: _grid(f, "height", "mean", "estimator", "rates", logx=False),
        "figure_3_rates_by_clients": lambda f: _grid(f, "clients", "mean", "estimator", "rates"),
        "figure_4_auc_by_buckets": lambda f: _grid(f, "buckets", "error", "estimator", "auc"),
        "auc_by_clients": lambda f: _grid(f, "clients", "error", "estimator", "auc"),
        "figure_5_ece_by_bins": lambda f: _grid(f, "bins", "ece", "calibrator", ""),
        "averaged_auc": _averaged,
    }
    for name, drawer in drawers.items():
        if (folder / f"{name}.csv").exists():
            figure = drawer(pd.read_csv(folder / f"{name}.csv"))
            figure.savefig(folder / f"{name}.png", dpi=110, metadata={"Software": None})


def _sheet(rows: int, columns: int) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.0 * columns, 2.9 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def _grid(frame: pd.DataFrame, x: str, y: str, by: str, published: str, *, logx: bool = True) -> Any:
    """One row a data set, one column a model, one line an estimator: medians over runs, and their range."""
    sets, models = list(frame["set"].unique()), list(frame["model"].unique())
    figure, axes = _sheet(len(sets), len(models))
    for row, name in enumerate(sets):
        for column, model in enumerate(models):
            ax = axes[row, column]
            part = frame[(frame["set"] == name) & (frame["model"] == model)]
            for place, (label, lines) in enumerate(part.groupby(by, sort=False)):
                grouped = lines.groupby(x)[y]
                middle = grouped.median()
                colour = COLOURS.get(str(label), f"C{place}")
                ax.plot(middle.index, np.maximum(middle, FLOOR), "o-", ms=3, lw=1.2, color=colour, label=label)
                low, high = grouped.min(), grouped.max()
                ax.fill_between(middle.index, np.maximum(low, FLOOR), np.maximum(high, FLOOR), color=colour, alpha=0.12)
            _guides(ax, x, published, model)
            ax.set(
                yscale="log",
                title=f"{name}, {model}",
                xlabel=x,
                ylabel={"mean": "mean absolute error", "error": "absolute error of AUC"}.get(y, "ECE"),
            )
            if logx:
                ax.set_xscale("log")
            ax.grid(alpha=0.3)
    axes[0, -1].legend(fontsize=7)
    return figure


def _guides(ax: Any, x: str, published: str, model: str) -> None:
    if x == "buckets":
        buckets = np.array([5, 400])
        ax.plot(buckets, 1 / (2 * buckets), ":", color="grey", label="1/(2B)")
        ax.plot(buckets, 1 / (3 * buckets**2), "--", color="grey", label="1/(3B^2)")
    level = PUBLISHED.get(published, {}).get(model)
    if level is not None:
        ax.axhline(level, color="black", ls=":", lw=1, label="published level")


def _averaged(frame: pd.DataFrame) -> Any:
    sets = list(frame["set"].unique())
    figure, axes = _sheet(1, len(sets))
    for ax, name in zip(axes[0], sets, strict=True):
        part = frame[frame["set"] == name]
        ax.plot(part["mixing"], part["averaged"], "o", ms=4, color=COLOURS["published tree"], label="averaged AUC")
        ax.axhline(part["pooled"].iloc[0], color=COLOURS["ours"], label="AUC of all records (ours)")
        ax.set(title=name, xlabel="share of records dealt at random", ylabel="AUC")
        ax.grid(alpha=0.3)
    axes[0, 0].legend(fontsize=7)
    return figure
