"""Scalings as graphs."""

from __future__ import annotations

import numpy as np

from fedcalib.artifacts.order_preserving import OrderPreservingNetwork, OrderPreservingVector
from fedcalib.artifacts.platt import Beta, Platt
from fedcalib.artifacts.scaling import MatrixScaling, Temperature, VectorScaling
from fedcalib.export.arithmetic import both_classes, log1p, scaled, sigmoid, softmax, softplus
from fedcalib.export.building import Scores, calibrated, classes_of
from fedcalib.export.graph import Graph
from fedcalib.types import Array


@calibrated.register
def _(calibrator: Temperature, graph: Graph, scores: Scores) -> str:
    return softmax(graph, scaled(graph, scores.logits, 1 / calibrator.temperature))


@calibrated.register
def _(calibrator: VectorScaling, graph: Graph, scores: Scores) -> str:
    scaled = graph.op("Mul", scores.logits, np.array([calibrator.scale]))
    return softmax(graph, graph.op("Add", scaled, np.array([calibrator.shift])))


@calibrated.register
def _(calibrator: MatrixScaling, graph: Graph, scores: Scores) -> str:
    mixed = graph.op("MatMul", scores.logits, np.array(calibrator.matrix).T)
    return softmax(graph, graph.op("Add", mixed, np.array([calibrator.shift])))


@calibrated.register
def _(calibrator: Platt, graph: Graph, scores: Scores) -> str:
    zero, one = (graph.columns(scores.logits, k, k + 1) for k in (0, 1))
    odds = scaled(graph, graph.op("Sub", one, zero), calibrator.slope)
    return both_classes(graph, sigmoid(graph, graph.op("Add", odds, calibrator.intercept)))


@calibrated.register
def _(calibrator: Beta, graph: Graph, scores: Scores) -> str:
    zero, one = (graph.columns(scores.logits, k, k + 1) for k in (0, 1))
    apart = graph.op("Exp", graph.op("Neg", graph.op("Abs", graph.op("Sub", one, zero))))
    mass = graph.op("Add", graph.op("Max", zero, one), log1p(graph, apart))
    rising = scaled(graph, graph.op("Sub", one, mass), calibrator.low)
    falling = scaled(graph, graph.op("Sub", zero, mass), calibrator.high)
    odds = graph.op("Add", graph.op("Sub", rising, falling), calibrator.intercept)
    return both_classes(graph, sigmoid(graph, odds))


@calibrated.register
def _(calibrator: OrderPreservingVector, graph: Graph, scores: Scores) -> str:
    values, order = _ranked(graph, scores.logits)
    above = graph.columns(order, 0, -1)
    slope = graph.op("Gather", np.array(calibrator.slope), above)
    shift = graph.op("Gather", np.array(calibrator.shift), above)
    raw = graph.op("Add", graph.op("Mul", slope, graph.columns(values, 0, -1)), shift)
    return _stretched(graph, scores.logits, values, order, raw)


@calibrated.register
def _(calibrator: OrderPreservingNetwork, graph: Graph, scores: Scores) -> str:
    hidden = graph.op("Clip", scores.logits, -1e6, 1e6)
    for weight, bias in zip(calibrator.weights[:-1], calibrator.biases[:-1], strict=True):
        hidden = graph.op("Max", _layer(graph, hidden, weight, bias), 0.0)
    raw = graph.op("Clip", _layer(graph, hidden, calibrator.weights[-1], calibrator.biases[-1]), -1e3, 1e3)
    values, order = _ranked(graph, scores.logits)
    return _stretched(graph, scores.logits, values, order, graph.columns(raw, 0, -1))


@classes_of.register
def _(calibrator: VectorScaling | MatrixScaling) -> int | None:
    return len(calibrator.shift)


@classes_of.register
def _(calibrator: Platt | Beta) -> int | None:
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
    """Sort each record's logits in falling order, ties by class; give the values and the classes."""
    width = graph.op("Slice", graph.op("Shape", logits), np.array([1]), np.array([2]))
    values, order = graph.ops("TopK", 2, logits, width, axis=1, largest=1, sorted=1)
    return values, order


def _stretched(graph: Graph, logits: str, values: str, order: str, raw: str) -> str:
    """Stretch the gaps by softplus of `raw`, add them up from the last class, and put them back to their classes."""
    gaps = graph.op("Sub", graph.columns(values, 0, -1), graph.columns(values, 1, None))
    steps = graph.op("Mul", gaps, softplus(graph, raw))
    sums = graph.op("CumSum", steps, graph.op("Squeeze", np.array([1])), reverse=1)
    last = graph.op("Mul", graph.columns(values, -1, None), 0.0)
    sorted_ = graph.op("Concat", sums, last, axis=1)
    return softmax(graph, graph.op("ScatterElements", logits, order, sorted_, axis=1))
