"""Sums of single clients: wide rows are written out for few records at a time, and the sums stay the same."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
import pytest

import fedcalib as fc
from fedcalib.query import Block, Bound, RecordQuery, Rows, groups
from fedcalib.records import Records


@final
@dataclass(frozen=True)
class Shares(RecordQuery):
    """Larger and larger shares of the column `value`, in [0, 1]: every record touches every cell."""

    cells: int

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"shares": Block((self.cells,), Bound(self.cells, self.cells, 1.0))}

    def rows(self, records: Records) -> Rows:
        return Rows(None, records.extra["value"][:, None] * np.linspace(0.5, 1, self.cells))


def values(n: int) -> fc.Records:
    rng = np.random.default_rng(0)
    return fc.Records.of_logits(np.zeros((n, 2)), np.zeros(n, dtype=int), value=rng.random(n))


@pytest.mark.parametrize("clients", [1, 3, 400])
def test_wide_rows_stay_small_in_memory(clients: int) -> None:
    """3,000 records of 8,192 cells are 188 MiB of values alone, with their keys the double."""
    federation, query = fc.Federation.iid(values(3000), clients, 0), Shares(8192)
    tracemalloc.start()
    sums = [terms.value.sum() for terms in query.by_client(federation, fc.Simulated(0))]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 250 * 2**20
    assert sum(sums) == pytest.approx(query.total(federation, fc.Simulated(0)).sum())


def test_a_client_larger_than_a_slice_is_summed_in_slices() -> None:
    federation, query = fc.Federation.of([values(700), values(3), values(900)]), Shares(9000)
    found = list(query.by_client(federation, fc.Simulated(0)))
    assert [terms.clients for terms in found] == [1, 1, 1]
    for terms, records in zip(found, federation.clients(), strict=True):
        np.testing.assert_array_equal(terms.cell, np.arange(9000))
        np.testing.assert_allclose(terms.value, query.rows(records).dense(9000).sum(axis=0))


def test_groups_hold_at_most_what_is_asked_or_one_client() -> None:
    sizes = np.array([3, 0, 4, 20, 0, 0, 5, 5, 1])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    found = list(groups(offsets, 10))
    assert found[0][0] == 0
    assert [last for _, last in found][:-1] == [first for first, _ in found][1:]
    assert found[-1][1] == len(sizes)
    assert all(sizes[first:last].sum() <= 10 or last - first == 1 for first, last in found)


def test_nobody_with_records_adds_nothing() -> None:
    empty = fc.Federation.of([values(0), values(0)])
    (terms,) = Shares(5).by_client(empty, fc.Simulated(0))
    assert (terms.clients, len(terms.cell)) == (2, 0)
    assert Shares(5).total(empty, fc.Simulated(0)).tolist() == [0.0] * 5
