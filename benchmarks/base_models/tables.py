"""Write the tables and the picture of the README; run with `python -m benchmarks.base_models.tables`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.ccvr.tables import END, START, Row, markdown
from benchmarks.progress import Table

HERE = Path(__file__).parent


def place(row: Row) -> tuple[float, int]:
    """Order by skew, the even deal last, then by seed."""
    return (2.0 if row["beta"] == "iid" else float(row["beta"]), int(row["seed"]))


def digits_table(rows: Sequence[Row]) -> str:
    head = ["beta", "seed", "accuracy, %", "source, %", "difference", "ECE, %", "cwECE, %"]
    return markdown(
        head,
        (
            [
                row["beta"], row["seed"], row["accuracy"], row["source_accuracy"],
                f"{float(row['accuracy']) - float(row['source_accuracy']):+.2f}", row["ece"], row["cwece"],
            ]
            for row in rows
        ),
    )  # fmt: skip


def sgd_table(rows: Sequence[Row]) -> str:
    head = ["rate", "beta", "seed", "accuracy, %", "source, %", "ECE, %", "cwECE, %"]
    fields = ("rate", "beta", "seed", "accuracy", "source_accuracy", "ece", "cwece")
    return markdown(head, ([row[name] for name in fields] for row in rows))


def pictures_table(rows: Sequence[Row]) -> str:
    head = ["beta", "epochs", "accuracy, %", "source, %", "ECE, %", "cwECE, %"]
    fields = ("beta", "epochs", "accuracy", "source_accuracy", "ece", "cwece")
    return markdown(head, ([row[name] for name in fields] for row in rows))


def roles_table(rows: Sequence[Row]) -> str:
    names = [
        "clients",
        "records",
        "rounds",
        "hidden",
        "log_loss",
        "frequencies",
        "pairs",
        "accuracy",
        "source_accuracy",
    ]
    head = [name.replace("_", " ") for name in names]
    return markdown([*head, "ECE, %"], ([*(row[name] for name in names), row["ece"]] for row in rows))


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draw accuracies by skew beside the source's."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.8))
    axes = figure.subplots()
    axes.plot([row["beta"] for row in rows], [float(row["accuracy"]) for row in rows], "o", label="here")
    axes.plot(
        [row["beta"] for row in rows], [float(row["source_accuracy"]) for row in rows], "_", ms=16, label="source"
    )
    axes.set(xlabel="beta: small means few classes per client", ylabel="test accuracy, %", title="Simple CNN, MNIST")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> int:
    digits = sorted(Table(HERE / "results.csv").rows, key=place)
    roles = Table(HERE / "shakespeare.csv").rows
    page = HERE / "README.md"
    head, rest = page.read_text().split(START)
    body = f"### MNIST, local Adam\n\n{digits_table(digits)}\n"
    body += f"\n### MNIST, local SGD and plain means\n\n{sgd_table(Table(HERE / 'sgd.csv').rows)}\n"
    pictures = sorted(Table(HERE / "cifar.csv").rows, key=lambda row: row["beta"])
    body += f"\n### CIFAR-10, local Adam\n\n{pictures_table(pictures)}\n"
    body += f"\n### Shakespeare's roles\n\n{roles_table(roles)}\n" if roles else ""
    page.write_text(f"{head}{START}\n\n{body}\n{END}{rest.split(END)[1]}")
    plot(digits, HERE / "results.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
