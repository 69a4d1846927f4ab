"""Write the tables of README.md and annex.md from the CSV files: `python -m benchmarks.cormode_markov.tables`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.filled import fill, markdown

HERE = Path(__file__).parent
EXACT, DISTRIBUTED, LOCAL = "no noise", "DistDP eps=1", "LocalDP eps=5"
OURS, PUBLISHED = "ours", "published tree"
CALIBRATORS = ("none", "quantile binning", "quantile binning, default", "BBQ", "isotonic", "Platt", "beta")


def read(name: str) -> pd.DataFrame:
    return pd.read_csv(HERE / f"{name}.csv")


def rates(model: str, height: int, estimator: str, column: str = "mean") -> float:
    """The median over runs of the mean over precision, recall and accuracy of flights."""
    frame = read("figure_2_rates_by_height").query(
        "set == 'flights' and model == @model and height == @height and estimator == @estimator"
    )
    return float(frame.groupby("run")[column].mean().median())


def areas(model: str, buckets: int, estimator: str) -> float:
    frame = read("figure_4_auc_by_buckets").query(
        "set == 'flights' and model == @model and buckets == @buckets and estimator == @estimator"
    )
    return float(frame["error"].median())


def levels() -> str:
    """Published levels beside ours."""
    lines = []
    for model, heights, level in ((EXACT, (14,), "< 1e-4"), (DISTRIBUTED, (10,), "1e-3"), (LOCAL, (6, 8, 10), "5e-3")):
        for height in heights:
            cells = [
                f"{rates(model, height, estimator):.1e} / {rates(model, height, estimator, 'median'):.1e}"
                for estimator in (PUBLISHED, OURS)
            ]
            lines.append([f"2: P/R/A, {model}, h = {height} (mean / median over thresholds)", level, *cells])
    for model, buckets, level in (
        (EXACT, 100, "1e-5"),
        (EXACT, 400, ""),
        (DISTRIBUTED, 100, "1e-3"),
        (LOCAL, 100, "5e-3"),
    ):
        ours = f"{areas(model, buckets, OURS):.1e}; all leaves {areas(model, buckets, 'ours, all leaves'):.1e}"
        lines.append([f"4: AUC, {model}, {buckets} buckets", level, f"{areas(model, buckets, PUBLISHED):.1e}", ours])
    return markdown(["figure", "published level, about", "published tree, here", "ours"], lines)


def slopes() -> str:
    """The slope of the AUC error against buckets without noise, by data set."""
    frame = read("figure_4_auc_by_buckets").query("model == @EXACT and estimator == @OURS")
    found = []
    for name, part in frame.groupby("set", sort=False):
        slope = np.polyfit(np.log(part["buckets"]), np.log(part["error"]), 1)[0]
        found.append(f"{name} {slope:.2f}")
    return f"{', '.join(found)}."


def limit() -> str:
    """Local reports by tree, beside somebody who knew the thresholds."""
    if not (HERE / "local_limit.csv").exists():
        return "Not run yet: `python -m benchmarks.cormode_markov.run local_limit`."
    frame = read("local_limit").query("set == 'flights'")
    runs = frame["run"].nunique()
    lines = []
    for name, part in frame.groupby("estimator", sort=False):
        tens = [part[part["run"] // 10 == ten]["mean"].median() for ten in range(runs // 10)]
        cells = [f"{part[column].median():.1e}" for column in ("mean", "median", "up_to_5_11")]
        lines.append([str(name), *cells, f"{min(tens):.1e} to {max(tens):.1e}"])
    header = ["asked", "mean over thresholds", "median over thresholds", "mean up to 5/11", "mean, medians of ten runs"]
    return markdown(header, lines)


def calibration() -> str:
    """ECE in 15 bins in percent and the change of AUC in thousandths, medians over runs."""
    frame = read("figure_5_ece_by_bins").query("bins == 15")
    lines = []
    for (name, model), part in frame.groupby(["set", "model"], sort=False):
        middle = part.groupby("calibrator")[["ece", "auc_change"]].median()
        cells = [
            f"{100 * middle.loc[one, 'ece']:.2f}"
            + ("" if one == "none" else f" / {1e3 * middle.loc[one, 'auc_change']:+.1f}")
            for one in CALIBRATORS
        ]
        lines.append([f"{name}, {model}", *cells])
    header = ["set, model", "none", "quantile, 15", "quantile, default", "BBQ, 8", "isotonic", "Platt", "beta"]
    return markdown(header, lines)


def exponent(frame: pd.DataFrame, column: str) -> str:
    """The slope of an error against clients: the mean over rates of each run, the median over runs, a line in logs."""
    middle = frame.groupby(["clients", "run"])[column].mean().groupby("clients").median()
    return f"{np.polyfit(np.log(middle.index), np.log(middle.to_numpy()), 1)[0]:.2f}"


def growth() -> str:
    """Slopes of errors against clients, from 1,000 clients up, beside the source's exponents."""
    lines = []
    rates, sets = "figure_3_rates_by_clients", ("flights", "census_lightgbm", "nycflights_logit")
    for file, column, what, only, model, source in (
        (rates, "mean", "recall and accuracy", ("recall", "accuracy"), DISTRIBUTED, "-2/3"),
        (rates, "mean", "recall and accuracy", ("recall", "accuracy"), LOCAL, "-1/3"),
        (rates, "mean", "precision", ("precision",), DISTRIBUTED, "-2/3"),
        (rates, "mean", "precision", ("precision",), LOCAL, "-1/3"),
        ("auc_by_clients", "error", "AUC", (), DISTRIBUTED, "-1"),
        ("auc_by_clients", "error", "AUC", (), LOCAL, "-1/2"),
    ):
        frame = read(file).query("model == @model")
        if only:
            frame = frame[frame["rate"].isin(only)]
        cells = []
        for name in sets:
            own = frame[frame["set"] == name]
            found = [exponent(own[own["estimator"] == estimator], column) for estimator in (PUBLISHED, OURS)]
            cells.append(" / ".join(found))
        lines.append([f"{what}, {model}", source, *cells])
    head = ["published tree / ours", "source", "flights", "census (LightGBM)", "New York"]
    return markdown(head, lines)


def calibration_growth() -> str:
    """The same of the calibration error, on simulated scores whose true probabilities are known."""
    frame, sources = read("ece_by_clients"), {EXACT: "-1/3", DISTRIBUTED: "-1/3", LOCAL: "-1/4"}
    lines = []
    for model, source in sources.items():
        own = frame[frame["model"] == model]
        middle = own.groupby("clients")["distance"].median()
        lines.append([model, source, exponent(own, "distance"), f"{middle.iloc[0]:.3f}", f"{middle.iloc[-1]:.4f}"])
    sizes = [f"{size:,} clients" for size in sorted(frame["clients"].unique())[:: len(frame["clients"].unique()) - 1]]
    return markdown(["ECE", "source", "exponent", *sizes], lines)


def references() -> str:
    """AUC errors of the tree beside those of the source's references, a hundred buckets, medians over runs."""
    frame = read("figure_4_auc_by_buckets").query("buckets == 100")
    names = (PUBLISHED, OURS, "uniform buckets", "Laplace at thresholds", "flipped labels, scores public")
    lines = []
    for model in (EXACT, DISTRIBUTED, LOCAL):
        own = frame[(frame["model"] == model) & (frame["set"] == "flights")].groupby("estimator")["error"].median()
        lines.append([model, *(f"{own[name]:.1e}" if name in own else "" for name in names)])
    return markdown(["AUC, flights, 100 buckets", *names], lines)


def ways() -> str:
    """The same epsilon spent in several ways, flights."""
    frame = read("equal_epsilon").query("set == 'flights'")
    lines = []
    for name in frame["estimator"].unique():
        part = frame[frame["estimator"] == name]
        middle = part.groupby("model")[["rates_mean", "auc"]].median()
        cells = [f"{middle.loc[model, one]:.1e}" for model in (DISTRIBUTED, LOCAL) for one in ("rates_mean", "auc")]
        lines.append([name, *cells])
    return markdown(["flights", "DistDP P/R/A", "DistDP AUC", "LocalDP P/R/A", "LocalDP AUC"], lines)


PAGE = {
    "levels": levels, "slopes": slopes, "growth": growth, "calibration growth": calibration_growth,
    "references": references, "ways": ways,
}  # fmt: skip
ANNEX = {"limit": limit, "calibration": calibration}

if __name__ == "__main__":
    fill(HERE / "README.md", {name: table() for name, table in PAGE.items()})
    fill(HERE / "annex.md", {name: table() for name, table in ANNEX.items()})
