"""What every query promises: its bounds hold on any data, and its fast sum is the sum of its rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcalib as fc
from fedcalib import wire
from fedcalib.query import ClientQuery, Rows
from tests.contract.subjects import planned_queries
from tests.examples import examples
from tests.strategies import federations, records

QUERIES = list(planned_queries())
EACH = pytest.mark.parametrize("query", [query for _, query in QUERIES], ids=[mark for mark, _ in QUERIES])
ROUNDING = 1 + 1e-12


def classes_of(query: fc.query.Query) -> int:
    """How many classes the query was planned for."""
    return next(int(mark.split("-")[1]) for mark, other in QUERIES if other is query)


def check_norms(query: fc.query.Query, row: np.ndarray) -> None:
    blocks = query.blocks
    for name, part in query.split(row).items():
        bound = blocks[name].bound
        assert np.abs(part).sum() <= bound.l1 * ROUNDING
        assert np.linalg.norm(part.reshape(-1)) <= bound.l2 * ROUNDING
        assert np.abs(part).max(initial=0) <= bound.linf * ROUNDING
        if blocks[name].integral:
            assert (part == np.round(part)).all()
        if blocks[name].one_hot:
            assert sorted(set(part.reshape(-1).tolist())) in ([0.0], [0.0, 1.0], [1.0])
            assert part.sum() <= 1


@EACH
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_no_unit_exceeds_its_bound(query: fc.query.Query, data: st.DataObject) -> None:
    held = data.draw(records(classes_of(query)))
    if isinstance(query, ClientQuery):
        check_norms(query, query.term(held, np.random.default_rng(0)))
        return
    for row in query.rows(held).dense(query.size):
        check_norms(query, row)


@pytest.mark.parametrize("query", [query for _, query in QUERIES if isinstance(query, ClientQuery)], ids=repr)
def test_an_empty_client_adds_nothing(query: ClientQuery) -> None:
    """Client-level adjacency replaces a client by an empty one: were that not zero, two terms would be at stake."""
    nobody = fc.Records.empty(classes_of(query))
    assert not query.term(nobody, np.random.default_rng(0)).any()
    assert not query.total(fc.Federation.of([nobody] * 3), fc.Simulated(0)).any()


@EACH
@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_the_total_is_the_sum_of_the_rows(query: fc.query.Query, data: st.DataObject) -> None:
    held = data.draw(federations(classes_of(query)))
    total = query.total(held, fc.Simulated(0))
    if isinstance(query, ClientQuery):
        rows = query.terms(held, fc.Simulated(0))
    else:
        rows = query.rows(held.records).dense(query.size)
    np.testing.assert_allclose(total, rows.sum(axis=0), rtol=1e-9, atol=1e-9)
    scale = np.full(query.size, 2.0**20)
    whole = query.total(held, fc.Simulated(0), scale)
    assert whole.dtype.kind == "i"
    cut = np.trunc(rows * scale) if isinstance(query, ClientQuery) else on_the_grid(query, held.records, scale)
    assert whole.tolist() == cut.sum(axis=0).astype(int).tolist()


def on_the_grid(query: fc.query.Query, held: fc.Records, scale: np.ndarray) -> np.ndarray:
    """What each record adds once it is cut to integers, (n, size): entry by entry, though two may share a cell."""
    rows = query.rows(held)
    if rows.cells is None or rows.values is None:
        return np.trunc(rows.dense(query.size) * scale)
    scaled = np.asarray(rows.values) * scale[np.maximum(rows.cells, 0)]
    return Rows(rows.cells, np.trunc(scaled)).dense(query.size)


@EACH
@settings(max_examples=examples(20), deadline=None)
@given(data=st.data(), bits=st.integers(0, 12))
def test_no_record_exceeds_its_bound_on_the_grid(query: fc.query.Query, data: st.DataObject, bits: int) -> None:
    """Cutting to integers comes before noise, so the bound must hold after it, where entries share a cell too."""
    if isinstance(query, ClientQuery):
        pytest.skip("a client's vector has one entry a cell, which the cut only shortens")
    held = data.draw(records(classes_of(query)))
    for row in on_the_grid(query, held, np.full(query.size, 2.0**bits)) / 2.0**bits:
        check_norms(query, row)


@EACH
@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_client_sums_add_up_to_the_total(query: fc.query.Query, data: st.DataObject) -> None:
    held = data.draw(federations(classes_of(query)))
    summed, clients = np.zeros(query.size), 0
    for terms in query.by_client(held, fc.Simulated(0)):
        np.add.at(summed, terms.cell, terms.value)
        assert terms.owner.max(initial=-1) < terms.clients
        clients += terms.clients
    assert clients == len(held)
    np.testing.assert_allclose(summed, query.total(held, fc.Simulated(0)), rtol=1e-9, atol=1e-9)


@EACH
def test_queries_survive_the_wire(query: fc.query.Query) -> None:
    again = wire.loads(wire.dumps(query))
    assert wire.dumps(again) == wire.dumps(query)
    assert dict(again.blocks) == dict(query.blocks)
