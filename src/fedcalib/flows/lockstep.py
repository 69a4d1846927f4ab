"""Several conversations at once: what does not wait for each other goes into one message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedcalib.answer import Answer
from fedcalib.method import Flow
from fedcalib.query import Join, Query


def lockstep(flows: Sequence[Flow[Any]]) -> Flow[tuple[Any, ...]]:
    """Advance all flows together, one joined message a round, until each has returned; give back all results.

    A round takes as long as one question, however many flows share it, and the budget is shared by their blocks'
    weights.
    """
    results: dict[int, Any] = {}
    pending: dict[int, Query] = {}
    for number, flow in enumerate(flows):
        _advance(flow, None, number, pending, results)
    while pending:
        join = Join(tuple(pending.values()))
        answer = yield join
        asked, pending = list(pending), {}
        for index, number in enumerate(asked):
            _advance(flows[number], answer.part(join, index), number, pending, results)
    return tuple(results[number] for number in range(len(flows)))


def _advance(
    flow: Flow[Any], answer: Answer | None, number: int, pending: dict[int, Query], results: dict[int, Any]
) -> None:
    """Move one flow on to its next question, or note its result."""
    try:
        pending[number] = next(flow) if answer is None else flow.send(answer)
    except StopIteration as end:
        results[number] = end.value
