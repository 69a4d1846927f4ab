"""Write the table of README.md, annex.md and the pictures from the results: `python -m benchmarks.ccvr.tables`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev

from benchmarks.filled import fill
from benchmarks.progress import Table

HERE = Path(__file__).parent
START, END = "<!-- tables start -->", "<!-- tables end -->"
SETTING = ("data", "alpha", "base", "records", "rounds", "epochs", "batch")
SHOWN = ("CCVR", "CCVR, 1000 per class, whitened", "closed form", "oracle: real pooled features")
Row = dict[str, str]


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[str, ...], list[Row]]:
    """Put rows together that agree in some columns, in the order in which they come."""
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def column(rows: Sequence[Row], name: str) -> list[float]:
    return [float(row[name]) for row in rows]


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """Write a mean, and the standard deviation of several."""
    shown = format(mean(values), form)
    return shown if len(values) < 2 else f"{shown} ± {format(stdev(values), form)}"


def gains(rows: Sequence[Row], before: Sequence[Row]) -> list[float]:
    """Give each run's change in accuracy."""
    started = {row["seed"]: float(row["accuracy"]) for row in before}
    return [float(row["accuracy"]) - started[row["seed"]] for row in rows]


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *lines))


def repairs_table(rows: Sequence[Row]) -> str:
    """Put every repair of one setting below the other."""
    by_repair = {repair: own for (repair,), own in grouped(rows, "repair").items()}
    lines = []
    for repair, own in by_repair.items():
        change = gains(own, by_repair["none"])
        gained = "" if repair == "none" else f"{mean(change):+.2f} ({min(change):+.2f} to {max(change):+.2f})"
        numbers = [spread(column(own, "accuracy")), gained]
        numbers += [
            spread(column(own, name), form) for name, form in (("ece", ".2f"), ("cwece", ".2f"), ("nll", ".3f"))
        ]
        better = "" if repair == "none" else f"{mean(column(own, 'clients_better')):.1f}"
        lines.append([repair, *numbers, f"{mean(column(own, 'worst_class')):.1f}", better])
    head = ["repair", "accuracy", "gain", "ECE", "cwECE", "log loss", "worst class", "clients better off, of 10"]
    return markdown(head, lines)


def summary(rows: Sequence[Row]) -> str:
    """One line a setting: before, and after the repairs that are shown."""
    lines = []
    for setting, own in grouped(rows, *SETTING).items():
        by_repair = {repair: some for (repair,), some in grouped(own, "repair").items()}
        cells = [f"{mean(gains(by_repair[name], by_repair['none'])):+.2f}" for name in SHOWN]
        errors = [f"{mean(column(by_repair[name], 'ece')):.1f}" for name in ("none", *SHOWN[:-1])]
        started = spread(column(by_repair["none"], "accuracy"))
        lines.append(
            [
                ", ".join(setting[:3]),
                " x ".join(setting[3:]),
                str(len(by_repair["none"])),
                started,
                *cells,
                " / ".join(errors),
            ]
        )
    head = [
        "data, alpha, base",
        "records x rounds x epochs x batch",
        "runs",
        "accuracy before",
        *(f"gain: {name}" for name in SHOWN),
    ]
    return markdown([*head, "ECE: before / " + " / ".join(SHOWN[:-1])], lines)


def raw() -> str:
    """CCVR as published: gains by skew, and how far heads favour what clients hold."""
    lines = []
    for (data, alpha), own in sorted(grouped(Table(HERE / "as_published.csv").rows, "data", "alpha").items()):
        by_repair = {repair: some for (repair,), some in grouped(own, "repair").items()}
        before = by_repair["none"]
        kinds = ("CCVR, as published", "CCVR, shrunken covariances", "oracle")
        cells = [f"{mean(gains(by_repair[name], before)):+.2f}" for name in kinds]
        lengths = f"{mean(column(before, 'norm_correlation')):.2f}"
        lines.append([f"{data}, {alpha}", str(len(before)), spread(column(before, "accuracy")), *cells, lengths])
    head = [
        "data, alpha",
        "runs",
        "accuracy before",
        "gain: as published",
        "gain: shrunken",
        "gain: oracle",
        "row lengths",
    ]
    return markdown(head, lines)


def annex(rows: Sequence[Row]) -> str:
    """Every repair of every setting."""
    parts = ["# CCVR: every repair of every setting\n"]
    for setting, own in grouped(rows, *SETTING).items():
        data, alpha, base, records, rounds, epochs, batch = setting
        timed = [row for row in own if row["repair"] == "none" and row["processor_seconds"]]  # of runs in one go
        lasted = f", {mean(column(timed, 'processor_seconds')):.0f} s of training each" if timed else ""
        runs = len({row["seed"] for row in own})
        parts.append(f"## {data}, alpha = {alpha}, {base}\n")
        size = f"{records} records, {rounds} rounds of {epochs} local epochs, batches of {batch}"
        parts.append(f"{size}, {runs} {'run' if runs == 1 else 'runs'}{lasted}.\n")
        parts.append(repairs_table(own) + "\n")
    return "\n".join(parts)


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draw each run before and after, and each run's gain against where it started."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.8))
    for axes, metric in zip(figure.subplots(1, 2), ("accuracy", "ece"), strict=True):
        runs = grouped(rows, *SETTING, "seed").values()
        for place, repair in enumerate(SHOWN):
            pairs = [{row["repair"]: float(row[metric]) for row in run} for run in runs]
            change = [run[repair] - run["none"] for run in pairs]
            axes.plot([run["none"] for run in pairs], change, "osD^"[place], alpha=0.6, label=repair, markersize=5)
        axes.axhline(0, color="grey", linewidth=0.8)
        axes.set(xlabel=f"{metric} before, %", ylabel=f"change in {metric}, points")
    figure.axes[0].legend(fontsize=8)
    figure.suptitle("Each dot is one run: who gains, and who does not")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def bars(rows: Sequence[Row], path: Path) -> None:
    """Draw mean accuracy before and after, setting by setting."""
    from matplotlib.figure import Figure

    settings = grouped(rows, *SETTING)
    figure = Figure(figsize=(10, 0.62 * len(settings) + 1.6))
    axes = figure.subplots()
    for place, (name, colour) in enumerate(zip(("none", *SHOWN), ("#999999", *_COLOURS), strict=True)):
        means = [mean(column([row for row in own if row["repair"] == name], "accuracy")) for own in settings.values()]
        across = [-number - 0.15 * place for number in range(len(settings))]
        axes.barh(across, means, 0.15, color=colour, label="before" if name == "none" else name)
    axes.set_yticks(
        [-number - 0.3 for number in range(len(settings))], [f"{', '.join(key[:3])} ({key[3]})" for key in settings]
    )
    axes.set(xlabel="accuracy on the published test set, %", xlim=(0, 100))
    axes.legend(fontsize=8, loc="upper right")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


_COLOURS = ("#2a6f97", "#61a5c2", "#e07a5f", "#81b29a")


def main() -> int:
    rows = Table(HERE / "results.csv").rows
    rows.sort(key=lambda row: (row["data"], float(row["alpha"]), row["base"], int(row["seed"])))
    page = HERE / "README.md"
    head, rest = page.read_text().split(START)
    page.write_text(f"{head}{START}\n\n{summary(rows)}\n\n{END}{rest.split(END)[1]}")
    (HERE / "annex.md").write_text(annex(rows))
    fill(page, {"raw": raw()})
    plot(rows, HERE / "gains.png")
    bars(rows, HERE / "accuracy.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
