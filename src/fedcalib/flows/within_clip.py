"""Holding a conversation in which no client counts for more than so many records."""

from __future__ import annotations

from typing import TypeVar

from fedcalib.flows.clip_quantile import clipped_sum
from fedcalib.method import Flow

T = TypeVar("T")


def within_clip(clip: float, flow: Flow[T]) -> Flow[T]:
    """Cut every client's answers to `clip` records' worth; the clip may itself be an answer.

    A question that bounds whole clients as it is needs no cut, and is asked as it is.
    """
    query = next(flow)
    while True:
        bounded = all(block.bound.unit == "client" for block in query.blocks.values())
        answer = (yield query) if bounded else (yield from clipped_sum(query, clip))
        try:
            query = flow.send(answer)
        except StopIteration as end:
            artifact: T = end.value
            return artifact
