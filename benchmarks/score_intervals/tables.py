"""Write the table of the README from results.csv; run with `python -m benchmarks.score_intervals.tables`."""

from __future__ import annotations

import csv
from pathlib import Path

from benchmarks.filled import fill, markdown

HERE = Path(__file__).parent
NAMES = ("auc", "accuracy", "ece")


def table() -> str:
    """A line a model and kind of scores: how often each interval holds the truth, and how wide it is."""
    with (HERE / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    found = {(row["scores"], row["model"], row["metric"]): row for row in rows}
    lines = []
    for scores, model in dict.fromkeys((row["scores"], row["model"]) for row in rows):
        cells = [found[scores, model, name] for name in NAMES]
        tree = f"{cells[0].get('arity', 4)}^{cells[0].get('height', 5)}"  # older files hold the default tree only
        lines.append([scores, model, tree, *(f"{cell['cover']} / {cell['width']}" for cell in cells)])
    return markdown(["scores", "model", "leaves", "AUC", "accuracy", "ECE"], lines)


def worst() -> str:
    """Say the least cover and the greatest width of all lines."""
    with (HERE / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    least = min(rows, key=lambda row: float(row["cover"]))
    widest = max(rows, key=lambda row: float(row["width"]))
    return (
        f"Least cover: {least['cover']} ({least['metric']}, {least['scores']}, {least['model']}). "
        f"Greatest width: {widest['width']} ({widest['metric']}, {widest['scores']}, {widest['model']})."
    )


if __name__ == "__main__":
    fill(HERE / "README.md", {"cover": table(), "worst": worst()})
