"""Sub-protocols about sub-protocols: several at once, after a calibrator, or with clients' contributions clipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator, Identity
from fedcalib.errors import InputError
from fedcalib.method import Flow
from fedcalib.queries.wrapped import Calibrated, Clipped, NormHistogram
from fedcalib.query import Answer, ClientQuery, Join, Query
from fedcalib.types import Floats


def lockstep(flows: Sequence[Flow[Any]]) -> Flow[tuple[Any, ...]]:
    """Advance all flows together, one joined message per round, until each has returned; return all results.

    A round takes as long as one query, however many flows share it, and the budget is shared by their blocks' weights.
    """
    results: dict[int, Any] = {}
    pending: dict[int, Query] = {}
    for number, flow in enumerate(flows):
        _advance(flow, None, number, pending, results)
    while pending:
        join = Join(tuple(pending.values()))
        answer = yield join
        sent, pending = list(pending), {}
        for index, number in enumerate(sent):
            _advance(flows[number], answer.part(join, index), number, pending, results)
    return tuple(results[number] for number in range(len(flows)))


def _advance(
    flow: Flow[Any], answer: Answer | None, number: int, pending: dict[int, Query], results: dict[int, Any]
) -> None:
    """Move one flow on to its next query, or note its result."""
    try:
        pending[number] = next(flow) if answer is None else flow.send(answer)
    except StopIteration as end:
        results[number] = end.value


T = TypeVar("T")


def _sent(flow: Flow[T], send: Callable[[Query], Flow[Answer]]) -> Flow[T]:
    """Run a flow whose queries are sent another way."""
    query = next(flow)
    while True:
        answer = yield from send(query)
        try:
            query = flow.send(answer)
        except StopIteration as end:
            artifact: T = end.value
            return artifact


def after(before: Calibrator, flow: Flow[T]) -> Flow[T]:
    """Run a flow whose queries are answered after clients have applied a calibrator."""

    def calibrated(query: Query) -> Flow[Answer]:
        if isinstance(query, ClientQuery):
            raise InputError(
                f"Expected queries about records in a later stage, found {type(query).__name__}, which is about whole "
                "clients; put such a method first, or use one that sums over records."
            )
        return (yield Calibrated(query, before))

    return flow if isinstance(before, Identity) else _sent(flow, calibrated)


def within_clip(clip: float, flow: Flow[T]) -> Flow[T]:
    """Run a flow in which every client's answers are clipped to `clip` records; the clip may come from an answer.

    A query whose bounds are those of whole clients needs no clipping and is sent as it is.
    """

    def clipped(query: Query) -> Flow[Answer]:
        bounded = all(block.bound.unit == "client" for block in query.blocks.values())
        return (yield query) if bounded else (yield from clipped_sum(query, clip))

    return _sent(flow, clipped)


DEFAULT_EDGES: Final = tuple(float(2 ** (i / 2)) for i in range(33))  # from 1 to 65,536 records, in half octaves


def clip_quantile(
    query: Query, quantile: float = 0.5, *, edges: tuple[float, ...] = DEFAULT_EDGES, weight: float = 0.1
) -> Flow[float]:
    """The size, in records, that a fraction `quantile` of the clients' answers to a query stays within.

    It sends one query of its own, to which a client adds one, so the choice is paid for: with `weight` of the budget,
    relative to the weights of the method's other blocks. A clip from public knowledge costs nothing; prefer one.
    """
    if not 0 < quantile < 1:
        raise InputError(f"Expected a quantile between 0 and 1, found {quantile}.")
    answer = yield NormHistogram(query, edges, weight)
    counts = answer["norms"]
    clients = answer.clients if answer.clients is not None else float(counts.sum())
    return edges[_crossing(np.cumsum(counts)[:-1], quantile * clients)]


def clipped_sum(query: Query, clip: float) -> Flow[Answer]:
    """Send a query in which no client counts for more than `clip` records; the answer is in the query's own units.

    The bounds of what is sent do not depend on the clip, so it may come from `clip_quantile`.
    """
    clipped = Clipped(query, clip)
    answer = yield clipped
    units = clipped.units
    values = {name: answer[name] * unit for name, unit in units.items()}
    variances = {name: answer.variance(name) * unit**2 for name, unit in units.items()}
    return Answer(values, variances, answer.clients)


def _crossing(below: Floats, target: float) -> int:
    """Where noisy, increasing counts pass a target: half way between the first time and the last."""
    last = len(below) - 1
    reached = np.flatnonzero(below >= target)
    missed = np.flatnonzero(below < target)
    first = int(reached[0]) if reached.size else last
    final = int(missed[-1]) + 1 if missed.size else 0
    return min((first + final) // 2, last)
