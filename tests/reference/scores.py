"""Write scores.csv, the data set of the reference values: 400 over-confident scores of a seeded generator."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def main() -> None:
    rng = np.random.default_rng(15)
    odds = rng.normal(-1.0, 1.5, 400)
    labels = rng.random(400) < 1 / (1 + np.exp(-0.3 - 0.7 * odds))
    scores = 1 / (1 + np.exp(-odds))
    lines = [f"{score!r},{label:d}" for score, label in zip(scores.tolist(), labels.tolist(), strict=True)]
    Path(__file__).with_name("scores.csv").write_text("\n".join(["score,label", *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
