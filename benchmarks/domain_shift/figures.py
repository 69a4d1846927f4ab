"""The figure panels in the published layout, one picture a corruption and severity: sources, samples, epsilon.

Run with `python -m benchmarks.domain_shift.figures`; writes figures/*.png beside itself.
"""

from __future__ import annotations

from collections import defaultdict
from io import BytesIO
from typing import Any

from benchmarks.domain_shift import tables
from benchmarks.domain_shift.run import HERE, RESULTS

SHOWN = {  # a published search has one colour: drawn through with the wide bracket, dashed with the published one
    "No recalibration": ("#5b6673", "-"),
    "One source": ("#b8860b", "-"),
    "Histogram binning": ("#009e73", "-"),
    "ECE-T": ("#56a0d3", "--"),
    "NLL-T": ("#d55e00", "--"),
    "Acc-T": ("#a3195b", "--"),
    "Ours: AccT": ("#0072b2", "-"),
    "Ours: SourceBinning": ("#7fc8a9", "-"),
    "ECE-T, wide": ("#56a0d3", "-"),
    "NLL-T, wide": ("#d55e00", "-"),
    "Acc-T, wide": ("#a3195b", "-"),
}
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
    from PIL import Image

    figure: Any = Figure(figsize=(11, 3.7), layout="constrained")
    found = lines(corruption, severity)
    for axes, (panel, title) in zip(figure.subplots(1, 3, sharey=True), PANELS.items(), strict=True):
        for name, (colour, style) in SHOWN.items():
            x, y = zip(*sorted(found[panel][name]), strict=True)
            width = 2.2 if name == tables.DEFAULT else 1.2
            axes.plot(x, y, label=name, color=colour, linestyle=style, linewidth=width)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel(AXES[panel], fontsize=9)
        axes.set_ylim(bottom=0)
    figure.axes[0].set_ylabel("ECE", fontsize=9)
    figure.suptitle(f"CIFAR-10, {corruption.replace('_', ' ')}, severity {severity}", fontsize=10)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=8)
    drawn = BytesIO()
    figure.savefig(drawn, dpi=90)
    folder = HERE / "figures"
    folder.mkdir(exist_ok=True)
    few = Image.open(drawn).convert("RGB").quantize(192)  # few colours, half the size
    few.save(folder / f"{corruption}_{severity}.png", optimize=True)


def main() -> None:
    """Draw every corruption at every severity that there are results for."""
    for corruption, severity in sorted({(row["corruption"], int(row["severity"])) for row in tables.lines(RESULTS)}):
        draw(corruption, severity)


if __name__ == "__main__":
    main()
