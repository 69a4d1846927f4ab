"""Records for the metric tests: drawn by Hypothesis, drawn at random, and real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fedcalib.records import softmax


@st.composite
def scored_records(draw: Any, most: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (n, c) with exact zeros, ones and ties among them, and labels."""
    classes, n = draw(st.integers(2, 5)), draw(st.integers(1, most))
    row = st.lists(st.integers(0, 6), min_size=classes, max_size=classes).filter(any)
    weights = np.array(draw(st.lists(row, min_size=n, max_size=n)), dtype=float)
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=n, max_size=n))
    return weights / weights.sum(axis=1, keepdims=True), np.array(labels)


@st.composite
def binary_records(draw: Any, most: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Scores (n,) with bin edges, both ends and ties among them, and 0/1 labels."""
    score = st.one_of(st.floats(0, 1), st.integers(0, 15).map(lambda k: k / 15))
    pairs = draw(st.lists(st.tuples(score, st.integers(0, 1)), min_size=1, max_size=most))
    return np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])


def random_records(seed: int, n: int = 3000, classes: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """Overconfident probabilities without ties, and labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, classes)) * 1.5
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return softmax(1.6 * logits), labels


def random_scores(seed: int, n: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """Binary scores rounded to two digits, so that many are tied, and labels."""
    rng = np.random.default_rng(seed)
    scores = rng.beta(1.2, 2.0, n).round(2)
    return scores, (rng.random(n) < scores**1.3).astype(int)


def cifar10(shared: Path, network: str) -> tuple[np.ndarray, np.ndarray]:
    """Ten thousand real predictions over ten classes."""
    with np.load(shared / "cifar10_logits" / "cifar10_logits.npz") as data:
        return softmax(data[network].astype(float)), data["y"].astype(int)


def cifar100(shared: Path, network: str) -> tuple[np.ndarray, np.ndarray]:
    """Ten thousand real predictions over a hundred classes."""
    with np.load(shared / "cifar100_probs" / "cifar100_logp.npz") as data:
        return softmax(data[network].astype(float)), data["y"].astype(int)


def flights(shared: Path, every: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Real binary scores of delayed flights, every tenth of a million and a half."""
    import pyarrow.parquet as pq

    table = pq.read_table(shared / "flights_scored" / "flights_scored.parquet", columns=["score", "label"])
    return table["score"].to_numpy()[::every], table["label"].to_numpy()[::every].astype(int)
