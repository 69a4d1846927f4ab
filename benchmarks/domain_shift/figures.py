"""The figure panels in the published layout, one picture a corruption and severity: sources, samples, epsilon.

Run with `python -m benchmarks.domain_shift.figures`; writes figures/*.png beside itself.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from benchmarks.domain_shift import tables
from benchmarks.domain_shift.run import HERE, RESULTS

SHOWN = (
    "No recalibration",
    "One source",
    "Histogram binning",
    "ECE-T, wide",
    "NLL-T, wide",
    "Acc-T, wide",
    "Acc-T",
    "Ours: AccT",
)
COLOURS = ("#5b6673", "#b8860b", "#009e73", "#56a0d3", "#d55e00", "#a3195b", "#dd9bbb", "#0072b2")
PANELS = {
    "sources": "Samples = 10, epsilon = 1.0",
    "samples": "Sources = 50, epsilon = 1.0",
    "epsilon": "Samples = 30, Sources = 50",
}
AXES = {"sources": "number of sources", "samples": "samples a source", "epsilon": "epsilon"}


def lines(corruption: str, severity: int) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Read one corruption's points: by panel and method, pairs of place and error."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in tables.lines(RESULTS):
        if row["corruption"] == corruption and int(row["severity"]) == severity:
            found[row["panel"]][row["method"]].append((float(row[row["panel"]]), float(row["ece"])))
    return found


def draw(corruption: str, severity: int) -> None:
    """Draw the three panels of one corruption."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(11, 3.4), layout="constrained")
    found = lines(corruption, severity)
    for axes, (panel, title) in zip(figure.subplots(1, 3, sharey=True), PANELS.items(), strict=True):
        for name, colour in zip(SHOWN, COLOURS, strict=True):
            x, y = zip(*sorted(found[panel][name]), strict=True)
            axes.plot(x, y, label=name, color=colour, linewidth=2.2 if name.startswith("Ours") else 1.2)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel(AXES[panel], fontsize=9)
        axes.set_ylim(bottom=0)
    figure.axes[0].set_ylabel("ECE", fontsize=9)
    figure.suptitle(f"CIFAR-10, {corruption.replace('_', ' ')}, severity {severity}", fontsize=10)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=8, fontsize=8)
    folder = HERE / "figures"
    folder.mkdir(exist_ok=True)
    figure.savefig(folder / f"{corruption}_{severity}.png", dpi=90, metadata={"Software": None})


def main() -> None:
    """Draw every corruption at every severity that there are results for."""
    for corruption, severity in sorted({(row["corruption"], int(row["severity"])) for row in tables.lines(RESULTS)}):
        draw(corruption, severity)


if __name__ == "__main__":
    main()
