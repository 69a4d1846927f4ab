"""Calibrators around other calibrators, and the one that does nothing, as graphs."""

from __future__ import annotations

from functools import reduce

import numpy as np

from fedcalib.artifacts.calibrator import Identity
from fedcalib.artifacts.chain import Chain
from fedcalib.artifacts.guard import KeepTop
from fedcalib.artifacts.label_shift import LabelShift
from fedcalib.artifacts.mixture import Mixture
from fedcalib.export.arithmetic import is_class, log_probs, normalised, scaled, top
from fedcalib.export.building import Scores, breaks, calibrated, classes_of
from fedcalib.export.graph import Graph

_LEAD = 1e-9  # as the artifact has it


@calibrated.register
def _(calibrator: Identity, graph: Graph, scores: Scores) -> str:
    return graph.op("Identity", scores.probs)


@calibrated.register
def _(calibrator: Chain, graph: Graph, scores: Scores) -> str:
    for stage in calibrator.stages:
        probs = calibrated(stage, graph, scores)
        scores = Scores(probs, log_probs(graph, probs))
    return scores.probs


@calibrated.register
def _(calibrator: Mixture, graph: Graph, scores: Scores) -> str:
    weighed = [
        graph.op("Mul", calibrated(part, graph, scores), weight)
        for part, weight in zip(calibrator.parts, calibrator.weights, strict=True)
    ]
    return reduce(lambda one, other: graph.op("Add", one, other), weighed)


@calibrated.register
def _(calibrator: LabelShift, graph: Graph, scores: Scores) -> str:
    inner = calibrated(calibrator.inner, graph, scores)
    weights = np.array([calibrator.own]) / np.array([calibrator.overall])
    return normalised(graph, graph.op("Mul", inner, weights), inner)


@calibrated.register
def _(calibrator: KeepTop, graph: Graph, scores: Scores) -> str:
    inner = calibrated(calibrator.inner, graph, scores)
    base = top(graph, scores.probs)
    same = graph.op("Equal", top(graph, inner), base)
    return graph.op("Where", same, inner, _levelled(graph, inner, is_class(graph, inner, base)))


def _levelled(graph: Graph, probs: str, own: str) -> str:
    """Lower every class above a level to it and raise the own class there."""
    mine = graph.reduced("ReduceSum", graph.op("Where", own, probs, 0.0))
    others = graph.op("Where", own, -np.inf, probs)
    width = graph.op("Slice", graph.op("Shape", probs), np.array([1]), np.array([2]))
    ranked, _ = graph.ops("TopK", 2, others, graph.op("Sub", width, np.array([1])), axis=1, largest=1, sorted=1)
    axis = graph.op("Squeeze", np.array([1]))
    counts = graph.op("CumSum", graph.op("Add", graph.op("Mul", ranked, 0.0), 1.0), axis)
    sums = graph.op("Add", graph.op("CumSum", ranked, axis), mine)
    level = graph.reduced("ReduceMax", graph.op("Div", sums, graph.op("Add", counts, 1.0)))
    out = graph.op("Where", own, scaled(graph, level, 1 + _LEAD), graph.op("Min", probs, level))
    return graph.op("Div", out, graph.reduced("ReduceSum", out))


@classes_of.register
def _(calibrator: Chain) -> int | None:
    known = (classes_of(stage) for stage in calibrator.stages)
    return next((classes for classes in known if classes is not None), None)


@classes_of.register
def _(calibrator: Mixture) -> int | None:
    known = (classes_of(part) for part in calibrator.parts)
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
