"""Choosing, privately, how much one client may add."""

from __future__ import annotations

from typing import Final

import numpy as np

from fedcalib.answer import Answer
from fedcalib.errors import InputError
from fedcalib.method import Flow
from fedcalib.queries.clipped import Clipped, NormHistogram
from fedcalib.query import Query
from fedcalib.types import Floats

EDGES: Final = tuple(float(2 ** (i / 2)) for i in range(33))  # from 1 to 65,536 records' worth, in half octaves


def clip_quantile(
    query: Query, quantile: float = 0.5, *, edges: tuple[float, ...] = EDGES, weight: float = 0.1
) -> Flow[float]:
    """Find the size, in records' worth, that a share `quantile` of the clients' answers to a question stays within.

    It asks one question of its own, to which a client adds one, so the choice is paid for: with `weight` of the budget,
    relative to the weights of the method's other blocks. A clip from public knowledge costs nothing; prefer one.
    """
    if not 0 < quantile < 1:
        raise InputError(f"Expected a quantile between 0 and 1, found {quantile}.")
    answer = yield NormHistogram(query, edges, weight)
    counts = answer["norms"]
    clients = answer.clients if answer.clients is not None else float(counts.sum())
    return edges[_crossing(np.cumsum(counts)[:-1], quantile * clients)]


def clipped_sum(query: Query, clip: float) -> Flow[Answer]:
    """Ask a question in which no client counts for more than `clip` records' worth, and answer in its own units.

    The bounds of what is asked do not depend on the clip, so it may come from `clip_quantile`.
    """
    asked = Clipped(query, clip)
    answer = yield asked
    units = asked.units
    return Answer(
        {name: answer[name] * units[name] for name in query.blocks},
        {name: answer.variance(name) * units[name] ** 2 for name in query.blocks},
        answer.clients,
    )


def _crossing(below: Floats, target: float) -> int:
    """Find where noisy, rising counts pass a target: half way between the first time and the last."""
    last = len(below) - 1
    reached = np.flatnonzero(below >= target)
    missed = np.flatnonzero(below < target)
    first = int(reached[0]) if reached.size else last
    final = int(missed[-1]) + 1 if missed.size else 0
    return min((first + final) // 2, last)
