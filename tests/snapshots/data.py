"""Small data made by a seed: for runs in Python, and as files for commands."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

import fedcalib as fc


def federation(classes: int, clients: int = 6, records: int = 240) -> fc.Federation:
    """Over-confident logits, unevenly spread over clients, with the columns that some methods read."""
    rng = np.random.default_rng(classes)
    labels = rng.integers(classes, size=records)
    logits = rng.normal(size=(records, classes)) * 2
    logits[np.arange(records), labels] += 2.5
    columns = {"domain": rng.integers(3, size=records), "rival": rng.random(records)}
    return fc.Federation.dirichlet(fc.Records.of_logits(2 * logits, labels, **columns), clients, 1.0, 0)


def write_files(folder: Path) -> None:
    """Write all files that the commands read."""
    _write(folder / "scores.csv", _scores(900, 0))
    _write(folder / "test.csv", _scores(300, 1))
    _write(folder / "classes.csv", _logits(700, 2))
    for site in range(4):
        _write(folder / f"hospital-{site}.csv", {k: v for k, v in _logits(150, 3 + site).items() if k != "site"})
    rng = np.random.default_rng(7)
    inputs = rng.normal(size=(400, 4))
    labels = (inputs @ rng.normal(size=(4, 3)) * 2 + rng.gumbel(size=(400, 3))).argmax(axis=1)
    np.savez(folder / "points.npz", inputs=inputs, labels=labels, site=np.array(list("abcd"))[np.arange(400) % 4])


def _scores(n: int, seed: int) -> dict[str, Iterable[object]]:
    """Two classes at six sites in four weeks; the odds of a positive fall in the last."""
    rng = np.random.default_rng(seed)
    day = 30 + rng.integers(28, size=n)
    odds = rng.normal(-0.3, 1.2, n)
    label = (rng.random(n) < 1 / (1 + np.exp(-odds + 1.5 * (day >= 51)))).astype(int)
    site = [f"site-{k}" for k in rng.choice(6, n, p=[0.3, 0.25, 0.2, 0.14, 0.1, 0.01])]
    score = 1 / (1 + np.exp(-2.2 * odds))
    return {"site": site, "score": score.round(6), "label": label, "day": day, "patient": np.arange(n) // 2}


def _logits(n: int, seed: int) -> dict[str, Iterable[object]]:
    """Four classes at five sites."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=n)
    logits = 2 * (rng.normal(size=(n, 4)) + 1.3 * np.eye(4)[labels])
    columns = {f"logit_{k}": logits[:, k].round(6) for k in range(4)}
    return {**columns, "label": labels, "site": [f"clinic-{k}" for k in rng.integers(5, size=n)]}


def _write(path: Path, columns: Mapping[str, Iterable[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True))
