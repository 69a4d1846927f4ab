"""Dealing records out: nothing is lost, and who holds what is as promised."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcalib as fc
from fedcalib.data import partition
from fedcalib.errors import InputError
from tests.examples import examples


def records(n: int = 2000, classes: int = 5) -> fc.Records:
    labels = np.random.default_rng(0).integers(classes, size=n)
    return fc.Records.of_logits(np.zeros((n, classes)), labels, row=np.arange(n))


@settings(max_examples=examples(20))
@given(st.integers(1, 12), st.integers(0, 1000))
def test_nothing_is_lost_and_nothing_dealt_twice(clients: int, seed: int) -> None:
    data = records(300)
    for federation in (
        partition.iid(data, clients, seed),
        partition.dirichlet(data, clients, 0.5, seed),
        partition.favourite_class(data, clients, seed),
    ):
        assert len(federation) == clients
        assert sorted(federation.records.extra["row"].tolist()) == list(range(300))
        counts = np.bincount(data.labels, minlength=5)
        assert partition.holdings(federation).sum(axis=0).tolist() == counts.tolist()


def test_small_beta_means_few_classes_a_client() -> None:
    def share_of_the_top_class(beta: float) -> float:
        held = partition.holdings(partition.dirichlet(records(), 10, beta, 0))
        return float((held.max(axis=1) / np.maximum(held.sum(axis=1), 1)).mean())

    assert share_of_the_top_class(0.05) > 0.7
    assert share_of_the_top_class(100.0) < 0.3


def test_a_deal_is_drawn_again_until_all_hold_enough() -> None:
    assert partition.dirichlet(records(), 10, 0.1, 0).sizes.min() < 20
    assert partition.dirichlet(records(), 10, 0.1, 0, fewest=20).sizes.min() >= 20
    with pytest.raises(InputError, match="no such partition"):
        partition.dirichlet(records(), 10, 0.1, 0, fewest=201, tries=3)


def test_favourites_weigh_four_times_the_others() -> None:
    held = partition.holdings(partition.favourite_class(records(50_000), 5, 1)).astype(float)
    shares = held / held.sum(axis=1, keepdims=True)
    off = shares[~np.eye(5, dtype=bool)].mean()
    assert np.diag(shares).mean() / off == pytest.approx(4, rel=0.3)
    assert held.sum(axis=1).max() > 1.5 * held.sum(axis=1).min()  # uneven, as on the slides


def test_natural_clients_are_those_with_enough_records() -> None:
    group = np.repeat(["a", "b", "c"], [1000, 990, 10])
    federation = partition.natural(records(), group, fewest=100)
    assert federation.names == ("a", "b")
    assert federation.sizes.tolist() == [1000, 990]
    with pytest.raises(InputError, match="the most at 1000"):
        partition.natural(records(), group, fewest=2000)


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    path = partition.plot_holdings(partition.dirichlet(records(), 10, 0.1, 0), tmp_path / "who.png")
    assert path.read_bytes()[:4] == b"\x89PNG"
