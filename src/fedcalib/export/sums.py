"""Normalisers as graphs."""

from __future__ import annotations

from functools import singledispatch

from fedcalib.errors import InputError
from fedcalib.export.arithmetic import is_class, normalised, top
from fedcalib.export.graph import Graph
from fedcalib.normalisers import INSIDE, NEWTON_STEPS, ByOdds, ByScale, Normaliser


@singledispatch
def shared(normaliser: Normaliser, graph: Graph, values: str, fallback: str) -> str:
    """Bring rows to a sum of one."""
    raise InputError(f"Expected a normaliser that can be exported, found {type(normaliser).__name__}.")


@shared.register
def _(normaliser: ByScale, graph: Graph, values: str, fallback: str) -> str:
    return normalised(graph, values, fallback)


@shared.register
def _(normaliser: ByOdds, graph: Graph, values: str, fallback: str) -> str:
    inside = graph.op("Clip", values, INSIDE, 1 - INSIDE)
    odds = graph.op("Div", inside, graph.op("Sub", 1.0, inside))
    moved = _probability(graph, graph.op("Mul", _factor(graph, odds), odds))
    held = graph.op("Greater", graph.reduced("ReduceSum", values), 0.0)
    return normalised(graph, graph.op("Where", held, moved, 0.0), fallback)


def _probability(graph: Graph, odds: str) -> str:
    return graph.op("Div", odds, graph.op("Add", odds, 1.0))


def _factor(graph: Graph, odds: str) -> str:
    """Take the same steps from the same place."""
    largest = graph.reduced("ReduceMax", odds)
    others = graph.op("Where", is_class(graph, odds, top(graph, odds)), 0.0, odds)
    factor = graph.op("Div", largest, largest)
    for _ in range(NEWTON_STEPS):
        factor = graph.op(
            "Mul", factor, _step(graph, graph.op("Mul", factor, largest), graph.op("Mul", factor, others))
        )
    return factor


def _step(graph: Graph, largest: str, others: str) -> str:
    """Say what to multiply the factor by, given the odds as multiplied so far."""
    rest = _probability(graph, others)
    mass = graph.reduced("ReduceSum", rest)
    spread = graph.reduced("ReduceSum", graph.op("Mul", rest, graph.op("Sub", 1.0, rest)))
    growth = graph.op("Add", graph.op("Div", spread, mass), _probability(graph, largest))
    gap = graph.op("Log", graph.op("Mul", mass, graph.op("Add", largest, 1.0)))
    return graph.op("Exp", graph.op("Neg", graph.op("Div", gap, growth)))
