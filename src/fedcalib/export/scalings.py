"""Graphs of scalings, of normalisers, and of calibrators that contain other calibrators."""

from __future__ import annotations

from functools import reduce, singledispatch

import numpy as np

from fedcalib.artifacts.calibrator import TOP_MARGIN, Chain, Identity, KeepTop, Mixture
from fedcalib.artifacts.logit_shifts import LabelShift
from fedcalib.artifacts.scaling import (
    BEYOND,
    Beta,
    MatrixScaling,
    OddsCurve,
    OrderPreservingNetwork,
    OrderPreservingVector,
    Platt,
    Temperature,
    VectorScaling,
)
from fedcalib.artifacts.steps import NEWTON_STEPS, ODDS_MARGIN, ByOdds, ByScale, Normaliser
from fedcalib.errors import InputError
from fedcalib.export import graph as ops
from fedcalib.export.graph import Graph, Scores, breaks, calibrated, classes_of
from fedcalib.types import Array


@calibrated.register
def _(calibrator: Temperature, graph: Graph, scores: Scores) -> str:
    return ops.softmax(graph, ops.scaled(graph, scores.logits, 1 / calibrator.temperature))


@calibrated.register
def _(calibrator: VectorScaling, graph: Graph, scores: Scores) -> str:
    logits = ops.one_score(graph, scores.logits, len(calibrator.shift))
    scaled = graph.op("Mul", logits, np.array([calibrator.scale]))
    return ops.softmax(graph, graph.op("Add", scaled, np.array([calibrator.shift])))


@calibrated.register
def _(calibrator: MatrixScaling, graph: Graph, scores: Scores) -> str:
    logits = ops.one_score(graph, scores.logits, len(calibrator.shift))
    mixed = graph.op("MatMul", logits, np.array(calibrator.matrix).T)
    return ops.softmax(graph, graph.op("Add", mixed, np.array([calibrator.shift])))


def _within_span(calibrator: Platt | Beta, graph: Graph, scores: Scores) -> str:
    """The log-odds, of which little counts beyond the span of the fit."""
    zero, one = (graph.columns(scores.logits, k, k + 1) for k in (0, 1))
    odds = graph.op("Sub", one, zero)
    if calibrator.span is None:
        return odds
    inside = graph.op("Clip", odds, *calibrator.span)
    return graph.op("Add", inside, ops.scaled(graph, graph.op("Sub", odds, inside), BEYOND))


@calibrated.register
def _(calibrator: Platt, graph: Graph, scores: Scores) -> str:
    odds = ops.scaled(graph, _within_span(calibrator, graph, scores), calibrator.slope)
    return ops.both_classes(graph, ops.sigmoid(graph, graph.op("Add", odds, calibrator.intercept)))


@calibrated.register
def _(calibrator: Beta, graph: Graph, scores: Scores) -> str:
    one = _within_span(calibrator, graph, scores)
    decay = graph.op("Exp", graph.op("Neg", graph.op("Abs", one)))
    mass = graph.op("Add", graph.op("Max", one, 0.0), ops.log1p(graph, decay))
    rising = ops.scaled(graph, graph.op("Sub", one, mass), calibrator.low)
    falling = ops.scaled(graph, mass, calibrator.high)
    odds = graph.op("Add", graph.op("Add", rising, falling), calibrator.intercept)
    return ops.both_classes(graph, ops.sigmoid(graph, odds))


@calibrated.register
def _(calibrator: OddsCurve, graph: Graph, scores: Scores) -> str:
    """The first value, and for each piece its slope times the part of it that lies below the log-odds."""
    zero, one = (graph.columns(scores.logits, k, k + 1) for k in (0, 1))
    odds = graph.op("Sub", one, zero)
    nodes, values = np.array([calibrator.odds]), np.array([calibrator.values])
    widths = np.diff(nodes)
    covered = graph.op("Min", graph.op("Max", graph.op("Sub", odds, nodes[:, :-1]), 0.0), widths)
    risen = graph.reduced("ReduceSum", graph.op("Mul", covered, np.diff(values) / widths))
    inside = graph.op("Clip", odds, calibrator.odds[0], calibrator.odds[-1])
    beyond = ops.scaled(graph, graph.op("Sub", odds, inside), BEYOND)
    curve = graph.op("Add", graph.op("Add", risen, calibrator.values[0]), beyond)
    return ops.both_classes(graph, ops.sigmoid(graph, curve))


@calibrated.register
def _(calibrator: OrderPreservingVector, graph: Graph, scores: Scores) -> str:
    logits = ops.one_score(graph, scores.logits, len(calibrator.shift))
    values, order = _ranked(graph, logits)
    above = graph.columns(order, 0, -1)
    slope = graph.op("Gather", np.array(calibrator.slope), above)
    shift = graph.op("Gather", np.array(calibrator.shift), above)
    raw = graph.op("Add", graph.op("Mul", slope, graph.columns(values, 0, -1)), shift)
    return _stretched(graph, logits, values, order, raw)


@calibrated.register
def _(calibrator: OrderPreservingNetwork, graph: Graph, scores: Scores) -> str:
    logits = ops.one_score(graph, scores.logits, calibrator.weights[0].shape[1])
    hidden = graph.op("Clip", logits, -1e6, 1e6)
    for weight, bias in zip(calibrator.weights[:-1], calibrator.biases[:-1], strict=True):
        hidden = graph.op("Max", _layer(graph, hidden, weight, bias), 0.0)
    raw = graph.op("Clip", _layer(graph, hidden, calibrator.weights[-1], calibrator.biases[-1]), -1e3, 1e3)
    values, order = _ranked(graph, logits)
    return _stretched(graph, logits, values, order, graph.columns(raw, 0, -1))


@classes_of.register
def _(calibrator: VectorScaling | MatrixScaling) -> int | None:
    return len(calibrator.shift)


@classes_of.register
def _(calibrator: Platt | Beta | OddsCurve) -> int | None:
    return 2


@classes_of.register
def _(calibrator: OrderPreservingVector) -> int | None:
    return len(calibrator.slope)


@classes_of.register
def _(calibrator: OrderPreservingNetwork) -> int | None:
    return int(calibrator.weights[0].shape[1])


def _layer(graph: Graph, hidden: str, weight: Array, bias: Array) -> str:
    return graph.op("Add", graph.op("MatMul", hidden, np.asarray(weight, np.float64).T), np.asarray(bias)[None])


def _ranked(graph: Graph, logits: str) -> tuple[str, str]:
    """Each record's logits in decreasing order, ties by class, and their classes."""
    width = graph.op("Slice", graph.op("Shape", logits), np.array([1]), np.array([2]))
    values, order = graph.ops("TopK", 2, logits, width, axis=1, largest=1, sorted=1)
    return values, order


def _stretched(graph: Graph, logits: str, values: str, order: str, raw: str) -> str:
    """Gaps multiplied by the softplus of `raw`, summed from the last class, and assigned to their classes."""
    gaps = graph.op("Sub", graph.columns(values, 0, -1), graph.columns(values, 1, None))
    steps = graph.op("Mul", gaps, ops.softplus(graph, raw))
    sums = graph.op("CumSum", steps, graph.op("Squeeze", np.array([1])), reverse=1)
    last = graph.op("Mul", graph.columns(values, -1, None), 0.0)
    sorted_ = graph.op("Concat", sums, last, axis=1)
    return ops.softmax(graph, graph.op("ScatterElements", logits, order, sorted_, axis=1))


@singledispatch
def brought_to_one(normaliser: Normaliser, graph: Graph, values: str, fallback: str) -> str:
    """Rows with sum one, by the normaliser's rule."""
    raise InputError(f"Expected a normaliser that can be exported, found {type(normaliser).__name__}.")


@brought_to_one.register
def _(normaliser: ByScale, graph: Graph, values: str, fallback: str) -> str:
    return ops.normalised(graph, values, fallback)


@brought_to_one.register
def _(normaliser: ByOdds, graph: Graph, values: str, fallback: str) -> str:
    inside = graph.op("Clip", values, ODDS_MARGIN, 1 - ODDS_MARGIN)
    odds = graph.op("Div", inside, graph.op("Sub", 1.0, inside))
    moved = _probability(graph, graph.op("Mul", _factor(graph, odds), odds))
    positive = graph.op("Greater", graph.reduced("ReduceSum", values), 0.0)
    return ops.normalised(graph, graph.op("Where", positive, moved, 0.0), fallback)


def _probability(graph: Graph, odds: str) -> str:
    return graph.op("Div", odds, graph.op("Add", odds, 1.0))


def _factor(graph: Graph, odds: str) -> str:
    """The factor of each row's odds, by the same Newton steps as in the artifact."""
    largest = graph.reduced("ReduceMax", odds)
    others = graph.op("Where", ops.is_class(graph, odds, ops.top(graph, odds)), 0.0, odds)
    factor = graph.op("Div", largest, largest)
    for _ in range(NEWTON_STEPS):
        factor = graph.op(
            "Mul", factor, _step(graph, graph.op("Mul", factor, largest), graph.op("Mul", factor, others))
        )
    return factor


def _step(graph: Graph, largest: str, others: str) -> str:
    """What Newton's method multiplies the factor by, given the odds times the current factor."""
    rest = _probability(graph, others)
    mass = graph.reduced("ReduceSum", rest)
    derivative = graph.reduced("ReduceSum", graph.op("Mul", rest, graph.op("Sub", 1.0, rest)))
    slope = graph.op("Add", graph.op("Div", derivative, mass), _probability(graph, largest))
    gap = graph.op("Log", graph.op("Mul", mass, graph.op("Add", largest, 1.0)))
    return graph.op("Exp", graph.op("Neg", graph.op("Div", gap, slope)))


@calibrated.register
def _(calibrator: Identity, graph: Graph, scores: Scores) -> str:
    return graph.op("Identity", scores.probs)


@calibrated.register
def _(calibrator: Chain, graph: Graph, scores: Scores) -> str:
    for stage in calibrator.stages:
        probs = calibrated(stage, graph, scores)
        scores = Scores(probs, ops.log_probs(graph, probs))
    return scores.probs


@calibrated.register
def _(calibrator: Mixture, graph: Graph, scores: Scores) -> str:
    weighted = [
        graph.op("Mul", calibrated(part, graph, scores), weight)
        for part, weight in zip(calibrator.parts, calibrator.weights, strict=True)
    ]
    return reduce(lambda one, other: graph.op("Add", one, other), weighted)


@calibrated.register
def _(calibrator: LabelShift, graph: Graph, scores: Scores) -> str:
    inner = calibrated(calibrator.inner, graph, scores)
    weights = np.array([calibrator.own]) / np.array([calibrator.overall])
    return ops.normalised(graph, graph.op("Mul", inner, weights), inner)


@calibrated.register
def _(calibrator: KeepTop, graph: Graph, scores: Scores) -> str:
    inner = calibrated(calibrator.inner, graph, scores)
    base = ops.top(graph, scores.probs)
    same = graph.op("Equal", ops.top(graph, inner), base)
    return graph.op("Where", same, inner, _levelled(graph, inner, ops.is_class(graph, inner, base)))


def _levelled(graph: Graph, probs: str, own: str) -> str:
    """Lower every class above a level to it and raise the top class to it."""
    mine = graph.reduced("ReduceSum", graph.op("Where", own, probs, 0.0))
    others = graph.op("Where", own, -np.inf, probs)
    width = graph.op("Slice", graph.op("Shape", probs), np.array([1]), np.array([2]))
    ranked, _ = graph.ops("TopK", 2, others, graph.op("Sub", width, np.array([1])), axis=1, largest=1, sorted=1)
    axis = graph.op("Squeeze", np.array([1]))
    counts = graph.op("CumSum", graph.op("Add", graph.op("Mul", ranked, 0.0), 1.0), axis)
    sums = graph.op("Add", graph.op("CumSum", ranked, axis), mine)
    level = graph.reduced("ReduceMax", graph.op("Div", sums, graph.op("Add", counts, 1.0)))
    out = graph.op("Where", own, ops.scaled(graph, level, 1 + TOP_MARGIN), graph.op("Min", probs, level))
    return graph.op("Div", out, graph.reduced("ReduceSum", out))


@classes_of.register
def _(calibrator: Chain | Mixture) -> int | None:
    parts = calibrator.stages if isinstance(calibrator, Chain) else calibrator.parts
    known = (classes_of(part) for part in parts)
    return next((classes for classes in known if classes is not None), None)


@classes_of.register
def _(calibrator: KeepTop) -> int | None:
    return classes_of(calibrator.inner)


@classes_of.register
def _(calibrator: LabelShift) -> int | None:
    return len(calibrator.own)


@breaks.register
def _(calibrator: Chain) -> tuple[float, ...]:
    return breaks(calibrator.stages[0]) if calibrator.stages else ()


@breaks.register
def _(calibrator: Mixture) -> tuple[float, ...]:
    return tuple(place for part in calibrator.parts for place in breaks(part))


@breaks.register
def _(calibrator: KeepTop | LabelShift) -> tuple[float, ...]:
    return breaks(calibrator.inner)
