"""Graphs of step functions, offsets and shifts."""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from fedcalib.artifacts.logit_shifts import LogitOffsets, LogitShifts
from fedcalib.artifacts.steps import Blend, EdgeSteps, Steps, TopLabelSteps
from fedcalib.errors import InputError
from fedcalib.export import graph as ops
from fedcalib.export.graph import Graph, Scores, breaks, calibrated, classes_of
from fedcalib.export.scalings import brought_to_one
from fedcalib.metrics.binning import Axis, EvenLogOdds, EvenProbability
from fedcalib.types import Floats

_MIN_PROBABILITY = 1e-12  # as in the artifact


@calibrated.register
def _(calibrator: Steps, graph: Graph, scores: Scores) -> str:
    return brought_to_one(calibrator.normaliser, graph, _raw(calibrator, graph, scores.probs), scores.probs)


@calibrated.register
def _(calibrator: Blend, graph: Graph, scores: Scores) -> str:
    raw = _raw(calibrator.steps, graph, scores.probs)
    weights = np.array([calibrator.weights])
    parts = graph.op("Add", graph.op("Mul", raw, weights), graph.op("Mul", scores.probs, 1 - weights))
    mixed = brought_to_one(calibrator.steps.normaliser, graph, parts, scores.probs)
    if not calibrator.changed_only:
        return mixed
    plain = brought_to_one(calibrator.steps.normaliser, graph, raw, scores.probs)
    same = graph.op("Equal", ops.top(graph, plain), ops.top(graph, scores.probs))
    return graph.op("Where", same, plain, mixed)


@calibrated.register
def _(calibrator: EdgeSteps, graph: Graph, scores: Scores) -> str:
    one = graph.columns(scores.probs, 1, 2)
    if not calibrator.edges:
        flat = graph.op("Add", graph.op("Mul", one, 0.0), calibrator.values[0])
        return ops.both_classes(graph, flat)
    passed = graph.cast(graph.op("GreaterOrEqual", one, np.array([calibrator.edges])), np.int64)
    bucket = graph.reduced("ReduceSum", passed)
    return ops.both_classes(graph, graph.op("Gather", np.array(calibrator.values), bucket))


@calibrated.register
def _(calibrator: TopLabelSteps, graph: Graph, scores: Scores) -> str:
    best = ops.is_class(graph, scores.probs, ops.top(graph, scores.probs))
    others = graph.op("Where", best, 0.0, scores.probs)
    remaining = graph.reduced("ReduceSum", others)
    positive = graph.op("Greater", remaining, 0.0)
    even = graph.op("Where", best, 0.0, 1 / max(calibrator.classes - 1, 1))
    divisor = graph.op("Where", positive, remaining, 1.0)
    proportions = graph.op("Where", positive, graph.op("Div", others, divisor), even)
    runner_up = graph.reduced("ReduceMax", proportions)
    cells = ops.bins(graph, graph.reduced("ReduceMax", scores.probs), len(calibrator.steps))
    stepped = graph.op("Gather", np.array(calibrator.steps), cells)
    least = graph.op("Div", runner_up, graph.op("Add", runner_up, 1.0))
    confidence = graph.op("Max", stepped, least)
    return graph.op("Where", best, confidence, graph.op("Mul", proportions, graph.op("Sub", 1.0, confidence)))


@calibrated.register
def _(calibrator: LogitOffsets, graph: Graph, scores: Scores) -> str:
    odds = _log_odds(graph, scores.probs)
    moved = graph.op("Add", odds, _of_cells(graph, odds, np.array(calibrator.table), calibrator.reach))
    return ops.normalised(graph, ops.sigmoid(graph, moved), scores.probs)


@calibrated.register
def _(calibrator: LogitShifts, graph: Graph, scores: Scores) -> str:
    shifts = _of_cells(graph, _log_odds(graph, scores.probs), np.array(calibrator.table), calibrator.reach)
    return ops.softmax(graph, graph.op("Add", ops.log_probs(graph, scores.probs), shifts))


@classes_of.register
def _(calibrator: Steps | TopLabelSteps) -> int | None:
    return calibrator.classes


@classes_of.register
def _(calibrator: Blend) -> int | None:
    return calibrator.steps.classes


@classes_of.register
def _(calibrator: EdgeSteps) -> int | None:
    return 2


@classes_of.register
def _(calibrator: LogitOffsets | LogitShifts) -> int | None:
    return len(calibrator.table)


@breaks.register
def _(calibrator: Steps) -> tuple[float, ...]:
    even = isinstance(calibrator.axis, EvenProbability)
    return _even(len(calibrator.table[0])) if even else ()  # the logarithms of two libraries may differ at an edge


@breaks.register
def _(calibrator: Blend) -> tuple[float, ...]:
    return breaks(calibrator.steps)


@breaks.register
def _(calibrator: TopLabelSteps) -> tuple[float, ...]:
    return _even(len(calibrator.steps))


@breaks.register
def _(calibrator: EdgeSteps) -> tuple[float, ...]:
    return tuple(edge for edge in calibrator.edges if 0 <= edge <= 1)


def _even(count: int) -> tuple[float, ...]:
    return tuple((np.arange(count + 1) / count).tolist())


def _log_odds(graph: Graph, probs: str) -> str:
    inside = graph.op("Clip", probs, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
    return graph.op("Sub", graph.op("Log", inside), ops.log1p(graph, graph.op("Neg", inside)))


def _of_cells(graph: Graph, odds: str, table: Floats, reach: float) -> str:
    """Entries of a table at each class's cell of the log-odds."""
    return ops.looked_up(graph, table, _odds_cells(graph, odds, table.shape[1], reach))


def _odds_cells(graph: Graph, odds: str, count: int, reach: float) -> str:
    scaled = graph.op("Mul", graph.op("Add", odds, reach), count / (2 * reach))
    return graph.cast(graph.op("Clip", scaled, 0.0, float(count - 1)), np.int64)


def _raw(steps: Steps, graph: Graph, probs: str) -> str:
    """Values of the step functions; with two classes, from that of class 1."""
    table = np.array(steps.table)
    if steps.classes == 2:
        one = _cells(steps.axis, graph, graph.columns(probs, 1, 2), table.shape[1])
        return ops.both_classes(graph, graph.op("Gather", table[0], one))
    return ops.looked_up(graph, table, _cells(steps.axis, graph, probs, table.shape[1]))


@singledispatch
def _cells(axis: Axis, graph: Graph, probs: str, count: int) -> str:
    """Number of each probability's bin."""
    raise InputError(f"Expected an axis that can be exported, found {type(axis).__name__}.")


@_cells.register
def _(axis: EvenProbability, graph: Graph, probs: str, count: int) -> str:
    return ops.bins(graph, probs, count)


@_cells.register
def _(axis: EvenLogOdds, graph: Graph, probs: str, count: int) -> str:
    return _odds_cells(graph, _log_odds(graph, probs), count, axis.reach)
