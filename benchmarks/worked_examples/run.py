"""Worked examples from the shell: hospitals and flights through `calibrate` and `evaluate`.

Run with `python -m benchmarks.worked_examples.run DATA`, where DATA holds `heart_disease_4sites` and `flights_scored`.
Writes results.csv beside itself; the figures in docs/explanation/worked-examples.md are from there.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
HEADLINE = ("ece", "nll", "brier", "auc", "accuracy")


def score_hearts(folder: Path, out: Path) -> Path:
    """Score the patients of three hospitals with a logistic regression trained on the fourth, Cleveland."""
    import pandas as pd
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    table = pd.read_csv(folder / "heart_disease_4sites" / "heart_disease.csv")
    features = table.drop(columns=["site", "num", "label"])
    cleveland = table.site == "cleveland"
    model = make_pipeline(SimpleImputer(strategy="median"), StandardScaler(), LogisticRegression(C=1.0))
    model.fit(features[cleveland], table.label[cleveland])
    scored = table[["site", "label"]].assign(score=model.predict_proba(features)[:, 1])
    path = out / "hearts.csv"
    scored[~cleveland].to_csv(path, index=False)
    return path


def shell(*words: str) -> tuple[dict, float]:
    """Run a command, and give its JSON and its seconds."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "fedcalib", *words, "--format", "json"], capture_output=True, check=True
    )
    return json.loads(done.stdout), time.perf_counter() - start


def rows(data: Path) -> list[dict[str, object]]:
    """Every example, one row a measurement."""
    found: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        hearts = str(score_hearts(data, work))
        flights = str(data / "flights_scored" / "flights_scored.parquet")
        state = ("--state", str(work / "state"))
        cases = [
            ("hearts", hearts, (), "platt-scaling", "secagg", ()),
            ("hearts", hearts, (), "fed-bin", "secagg", ()),
            ("hearts", hearts, (), "platt-scaling", "distributed", ("--epsilon", "2")),
            ("flights", flights, ("--site", "origin"), "fed-bin", "secagg", ()),
            ("flights", flights, ("--site", "origin"), "fed-bin", "distributed", ("--epsilon", "1")),
            ("flights", flights, ("--site", "origin"), "platt-scaling", "laplace", ("--epsilon", "1")),
        ]
        for number, (label, file, site, method, privacy, budget) in enumerate(cases):
            out = ("--out", str(work / f"out{number}"))
            told, seconds = shell(
                "calibrate", file, *site, "--method", method, "--privacy", privacy, *budget, *out, *state
            )
            for when in ("before", "after"):
                found.append(
                    _row(label, f"calibrate, {method}, {privacy} {' '.join(budget)}".strip(), when, told[when], seconds)
                )
        for label, file, site, privacy, budget in (
            ("hearts", hearts, (), "open", ()),
            ("flights", flights, ("--site", "origin"), "secagg", ()),
            ("flights", flights, ("--site", "origin"), "distributed", ("--epsilon", "1")),
        ):
            told, seconds = shell("evaluate", file, *site, "--privacy", privacy, *budget, *state)
            found.append(_row(label, f"evaluate, {privacy} {' '.join(budget)}".strip(), "", told["metrics"], seconds))
    return found


def _row(data: str, command: str, when: str, metrics: dict, seconds: float) -> dict[str, object]:
    shown = {
        name: "-" if metrics[name] is None else "{value:.4f} [{low:.4f}, {high:.4f}]".format(**metrics[name])
        for name in HEADLINE
    }
    return {"data": data, "command": command, "when": when, **shown, "seconds": round(seconds, 1)}


def main() -> None:
    """Measure and write down."""
    table = rows(Path(sys.argv[1]))
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    for row in table:
        print(" | ".join(str(value) for value in row.values()))


if __name__ == "__main__":
    main()
