"""Train a logistic regression at one hospital, score four hospitals, and write the data set that ships with fedcalib.

    python examples/heart_disease/train.py heart_disease.csv --out src/fedcalib/data/heart_disease.csv

The input holds the four files `processed.*.data` of the UCI heart disease data, one below the other, with a header and
a column `site`. The model is trained in Cleveland on the seven features that all hospitals recorded. It scores the
other three hospitals; Cleveland's own patients are scored out of fold, by models that did not see them.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

TRAINED_AT = "cleveland"
USED = ("age", "sex", "cp", "trestbps", "thalach", "exang", "oldpeak")


def main(argv: list[str] | None = None) -> None:
    """Read the four hospitals, train, score and write."""
    parser = argparse.ArgumentParser(description="Write the heart disease data with the risks of a logistic model.")
    parser.add_argument("data", type=Path, help="the four hospitals in one CSV file with a column 'site'")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    told = parser.parse_args(argv)
    with told.data.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    write(rows, risks(rows), told.out)


def risks(rows: list[dict[str, str]]) -> Any:
    """The model's probability of heart disease for each patient, shape (n,)."""
    X = np.array([[float(row[name] or "nan") for name in USED] for row in rows])
    y = np.array([int(row["label"]) for row in rows])
    own = np.array([row["site"] == TRAINED_AT for row in rows])
    model = make_pipeline(SimpleImputer(strategy="median"), StandardScaler(), LogisticRegression())
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    risk = model.fit(X[own], y[own]).predict_proba(X)[:, 1]
    risk[own] = cross_val_predict(model, X[own], y[own], cv=folds, method="predict_proba")[:, 1]
    return risk


def write(rows: list[dict[str, str]], risk: Any, path: Path) -> None:
    """Write hospitals, features, outcome and risk."""
    features = [name for name in rows[0] if name not in ("site", "num", "label")]
    with path.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(["hospital", *features, "disease", "risk"])
        for row, score in zip(rows, risk, strict=True):
            cells = (row[name].removesuffix(".0") for name in features)
            writer.writerow([row["site"], *cells, row["label"], f"{score:.4f}"])


if __name__ == "__main__":
    main()
