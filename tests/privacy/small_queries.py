"""Small queries whose answers are known, and ways to sample records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import final

import numpy as np

from fedcalib.cohort import Everyone, Participation
from fedcalib.federation import Federation
from fedcalib.method import Plan
from fedcalib.privacy import Mechanism, Privacy
from fedcalib.query import Block, Bound, ClientQuery, Query, RecordQuery, Rows
from fedcalib.randomness import Randomness
from fedcalib.records import Records
from fedcalib.types import Floats


@final
@dataclass(frozen=True)
class Values(RecordQuery):
    """What the column `value` holds, in [-1, 1], in each of some cells."""

    cells: int = 1
    clip: float | None = None

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"values": Block((self.cells,), Bound(float(self.cells), sqrt(self.cells), 1.0), clip=self.clip)}

    def rows(self, records: Records) -> Rows:
        return Rows(None, np.repeat(np.clip(records.extra["value"], -1, 1)[:, None], self.cells, axis=1))


@final
@dataclass(frozen=True)
class Nothing(RecordQuery):
    """Four cells that no record touches."""

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"cells": Block((4,), integral=True, one_hot=True)}

    def rows(self, records: Records) -> Rows:
        return Rows(np.full((len(records), 1), -1), None)


@final
@dataclass(frozen=True)
class Sizes(ClientQuery):
    """How many hundred records a client holds, at most one."""

    weight: float = 1.0

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"size": Block((1,), Bound(1.0, 1.0, 1.0, "client"), weight=self.weight)}

    def term(self, records: Records, rng: np.random.Generator) -> Floats:
        return np.array([min(len(records) / 100, 1.0)])


def with_values(values: object, clients: int = 1) -> Federation:
    """Deal values out to clients, as records that hold nothing else and that nobody has checked."""
    column = np.asarray(values, dtype=np.float64)
    probs = np.full((len(column), 2), 0.5)
    records = Records(probs, np.zeros(len(column), dtype=np.int64), False, None, {"value": column})
    return Federation.grouped(records, np.arange(len(column)) % clients, clients)


def scored(seed: int, records: int, clients: int, classes: int = 2) -> Federation:
    """Draw records of a calibrated classifier and deal them out unevenly."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(classes, 0.7), records)
    labels = (probs.cumsum(axis=1) < rng.random((records, 1))).sum(axis=1).clip(max=classes - 1)
    owner = np.sort(rng.choice(clients, records, p=rng.dirichlet(np.ones(clients))))
    return Federation.grouped(Records.of_probs(probs, labels), owner, clients)


def served(privacy: Privacy, query: Query, clients: int = 10, participation: Participation | None = None) -> Mechanism:
    """Let a model serve a question that is the whole plan."""
    drawn = participation or Everyone()
    return privacy.mechanism(query, Plan((query,)), drawn.cohort(clients), drawn)


def answered(
    mechanism: Mechanism, query: Query, federation: Federation, randomness: Randomness
) -> tuple[Floats, Floats]:
    """Gather and decode, as the loop does."""
    total = mechanism.gather(query, federation, randomness)
    return mechanism.decode(query, total, len(federation), randomness.derive("server"))


def one_by_one(mechanism: Mechanism, query: Query, federation: Federation, randomness: Randomness) -> Floats:
    """Sum what each client encodes on its own: what happens where clients are apart."""
    return Mechanism.gather(mechanism, query, federation, randomness)
