"""Holding a conversation in which no client counts for more than so many records."""

from __future__ import annotations

from typing import TypeVar

from fedcalib.flows.clip_quantile import clipped_sum
from fedcalib.method import Flow

T = TypeVar("T")


def within_clip(clip: float, flow: Flow[T]) -> Flow[T]:
    """Cut every client's answers to `clip` records' worth; the clip may itself be an answer."""
    query = next(flow)
    while True:
        answer = yield from clipped_sum(query, clip)
        try:
            query = flow.send(answer)
        except StopIteration as end:
            artifact: T = end.value
            return artifact
