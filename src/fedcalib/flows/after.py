"""Holding a conversation about calibrated records."""

from __future__ import annotations

from typing import TypeVar

from fedcalib.artifacts.calibrator import Calibrator, Identity
from fedcalib.errors import InputError
from fedcalib.method import Flow
from fedcalib.queries.calibrated import Calibrated
from fedcalib.query import ClientQuery, Query

T = TypeVar("T")


def after(before: Calibrator, flow: Flow[T]) -> Flow[T]:
    """Let every question of a conversation be answered after clients have applied a calibrator."""
    if isinstance(before, Identity):
        return (yield from flow)
    query = next(flow)
    while True:
        answer = yield Calibrated(_of_records(query), before)
        try:
            query = flow.send(answer)
        except StopIteration as end:
            artifact: T = end.value
            return artifact


def _of_records(query: Query) -> Query:
    if isinstance(query, ClientQuery):
        raise InputError(
            f"Expected questions about records in a later stage, found {type(query).__name__}, which asks whole "
            "clients; put such a method first, or use one that sums over records."
        )
    return query
