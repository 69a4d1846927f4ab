"""Bounds are not only valid but attained: noise is sized for what somebody can really add, and no more."""

from __future__ import annotations

import numpy as np
import pytest

import fedcalib as fc
from fedcalib import registry
from fedcalib.methods.domain_shift import DomainGaps
from fedcalib.queries.class_outcomes import ClassOutcomes
from fedcalib.queries.class_tables import LabelCounts
from fedcalib.queries.reliability import PairedHits, ScoreGaps
from fedcalib.queries.scaling import ScalingGradient
from fedcalib.queries.scores import PairedBuckets, PairedCells, ScoreLeaves
from fedcalib.queries.wrapped import ByGroup, Calibrated
from fedcalib.query import ClientQuery
from tests.contract.subjects import kinds
from tests.contract.test_queries import EACH, QUERIES, classes_of


def extremes(classes: int) -> list[fc.Records]:
    """Records that go as far as records can: certain and wrong, undecided among 2, 3, ... classes, far apart."""
    rng = np.random.default_rng(0)
    rows: list[np.ndarray] = []
    for high in (1.0, 2.0, 2.4, 2.7, 3.0, 3.4, 10.0, 30.0, 60.0, 1e3, 1e5):
        rows += [high * np.eye(classes)[0], -high * np.eye(classes)[0], np.linspace(0, high, classes)]
        rows += [high * np.linspace(-1, 1, classes)[::-1]]
    for equal in range(2, classes + 1):
        rows += [np.where(np.arange(classes) < equal, level, level - 60.0) for level in (0.0, 1e3)]
    rows += list(rng.normal(0, 8, (40, classes)))
    logits = np.array(rows)
    labels = [np.full(len(rows), label) for label in range(classes)]
    given = [fc.Records.of_logits(logits, label) for label in labels]
    exact = np.concatenate([np.eye(classes), np.full((1, classes), 1 / classes)])
    sure = [fc.Records.of_probs(exact, np.full(len(exact), label)) for label in range(classes)]
    return [*given, *sure]


def crowds(classes: int) -> list[fc.Records]:
    """Clients that go as far as clients can: many records, all alike, or none, or with odds of e^2 and either label."""
    wrong = fc.Records.of_logits(np.tile(30.0 * np.eye(classes)[0], (400, 1)), np.full(400, classes - 1))
    right = fc.Records.of_logits(np.tile(3.0 * np.eye(classes)[0], (400, 1)), np.zeros(400, dtype=int))
    rng = np.random.default_rng(1)
    mixed = fc.Records.of_logits(rng.normal(0, 9, (400, classes)), rng.integers(classes, size=400))
    odds = np.where(np.arange(1600)[:, None] % 2, 2.0001, 0.0) * np.eye(classes)[0]
    odds += np.where(np.arange(1600)[:, None] % 2, 0.0, 2.0001) * np.eye(classes)[1]
    edge = fc.Records.of_logits(odds, np.arange(1600) // 2 % 2)
    return [wrong, right, mixed, edge, fc.Records.empty(classes)]


def contributions(query: fc.query.Query, classes: int) -> np.ndarray:
    """What each extreme unit adds, (units, size); a query about calibrated records bounds what it wraps."""
    if isinstance(query, Calibrated):
        return contributions(query.query, classes)
    if isinstance(query, ClientQuery):
        clients = [*crowds(classes), *extremes(classes)]
        return np.stack([query.term(held, np.random.default_rng(0)) for held in clients])
    return np.concatenate([query.rows(held).dense(query.size) for held in extremes(classes)])


ALONE = [  # what no method in the contract asks: it needs a column of its own, or is the exact form of another
    LabelCounts(2),
    ScoreLeaves(4),
    DomainGaps((0.5, 1.0, 2.0), 2),
    PairedBuckets((0.3, 0.6), (0.5,), 3),
    PairedCells(3, column="rival"),
    ScoreGaps(15),
    PairedHits(fc.artifacts.Identity()),
    ClassOutcomes(2),
    ByGroup(ClassOutcomes(2), "rival", (0.7,)),
]


def test_every_query_that_may_cross_the_wire_keeps_its_bound() -> None:
    tried = {kind for query in [*ALONE, *(query for _, query in QUERIES)] for kind in kinds(query)}
    types = {row.name: row.load() for row in registry.ROWS if row.wire}
    assert {name for name, kind in types.items() if issubclass(kind, fc.query.Query)} <= tried


@pytest.mark.parametrize("query", ALONE, ids=lambda query: type(query).__name__)
def test_one_record_attains_every_bound(query: fc.query.RecordQuery) -> None:
    sure = fc.Records.of_probs([[1.0, 0.0]], [1], domain=[1], rival=[0.7])
    for name, part in query.split(query.rows(sure).dense(query.size)[0]).items():
        bound = query.blocks[name].bound
        reached = float(np.linalg.norm(part.reshape(-1)))
        assert 0.99 * bound.l2 <= reached <= bound.l2


@EACH
def test_some_unit_attains_the_l2_bound(query: fc.query.Query) -> None:
    added = contributions(query, classes_of(query))
    sizes = [block.size for block in query.blocks.values()]
    parts = np.split(added, np.cumsum(sizes)[:-1], axis=1)
    for (name, block), part in zip(query.blocks.items(), parts, strict=True):
        if isinstance(query, ScalingGradient) and name == "curvature" and classes_of(query) == 2:
            continue  # log-probabilities of two classes never curve as much as free logits may
        if name.endswith("gain"):
            continue  # attained where a calibrator makes a certain, wrong record right: see tests/methods/test_auto.py
        reached = float(np.linalg.norm(part, axis=1).max())
        assert reached >= 0.99 * block.bound.l2, f"{name}: {reached:.4f} of {block.bound.l2:.4f}"


@EACH
def test_some_unit_attains_the_l1_bound_of_one_record(query: fc.query.Query) -> None:
    """Where clients are cut to an L2 norm, L1 follows from it and depends on how a client's sum is spread."""
    if isinstance(query, ClientQuery):
        pytest.skip("a client's L1 norm is bounded by the square root of the cells")
    added = contributions(query, classes_of(query))
    sizes = [block.size for block in query.blocks.values()]
    parts = np.split(added, np.cumsum(sizes)[:-1], axis=1)
    for (name, block), part in zip(query.blocks.items(), parts, strict=True):
        reached = float(np.abs(part).sum(axis=1).max())
        if name.endswith("gain"):
            continue
        derived = abs(block.bound.l1 - block.size**0.5 * block.bound.l2) < 1e-9 and block.size > 1
        assert derived or reached >= 0.99 * block.bound.l1, f"{name}: {reached:.4f} of {block.bound.l1:.4f}"
