"""What several calibrators compute, in the order in which the Python artifacts compute it."""

from __future__ import annotations

import numpy as np

from fedcalib.export.graph import Graph
from fedcalib.types import Floats


def scaled(graph: Graph, values: str, factor: float) -> str:
    """Multiply by a factor, in two steps: runtimes read constants in single precision and drop factors close to 1."""
    return graph.op("Mul", graph.op("Mul", values, 0.5), 2 * factor)


def softmax(graph: Graph, logits: str) -> str:
    """Turn logits into probabilities; written out, so that rounding is as in numpy."""
    shifted = graph.op("Sub", logits, graph.reduced("ReduceMax", logits))
    exponentials = graph.op("Exp", shifted)
    return graph.op("Div", exponentials, graph.reduced("ReduceSum", exponentials))


def log_probs(graph: Graph, probs: str) -> str:
    """Take logarithms, with zero read as 1e-12."""
    return graph.op("Log", graph.op("Max", probs, 1e-12))


def log1p(graph: Graph, value: str) -> str:
    """Take ln(1 + x) to full precision, which ONNX has no operation for: ln(u) x / (u - 1) with u = 1 + x rounded."""
    up = graph.op("Add", value, 1.0)
    lost = graph.op("Equal", up, 1.0)
    step = graph.op("Where", lost, 1.0, graph.op("Sub", up, 1.0))
    return graph.op("Where", lost, value, graph.op("Div", graph.op("Mul", graph.op("Log", up), value), step))


def softplus(graph: Graph, raw: str) -> str:
    """Take ln(1 + exp(x)) without overflow."""
    tail = graph.op("Exp", graph.op("Neg", graph.op("Abs", raw)))
    return graph.op("Add", graph.op("Max", raw, 0.0), log1p(graph, tail))


def sigmoid(graph: Graph, odds: str) -> str:
    """Turn log-odds into a probability by way of tanh."""
    return graph.op("Mul", graph.op("Add", graph.op("Tanh", graph.op("Div", odds, 2.0)), 1.0), 0.5)


def normalised(graph: Graph, values: str, fallback: str) -> str:
    """Scale rows to sum to one; a row without any mass keeps the fallback's."""
    mass = graph.reduced("ReduceSum", values)
    held = graph.op("Greater", mass, 0.0)
    shared = graph.op("Div", values, graph.op("Where", held, mass, 1.0))
    return graph.op("Where", held, shared, fallback)


def both_classes(graph: Graph, one: str) -> str:
    """Put the complement of class 1's column, (n, 1), beside it."""
    return graph.op("Concat", graph.op("Sub", 1.0, one), one, axis=1)


def bins(graph: Graph, probs: str, count: int) -> str:
    """Number the equal-width bin of each probability."""
    return graph.cast(graph.op("Min", graph.op("Mul", probs, float(count)), float(count - 1)), np.int64)


def looked_up(graph: Graph, table: Floats, cells: str) -> str:
    """Look each class's cell up in the class's row of a table, (classes, cells)."""
    starts = np.arange(table.shape[0], dtype=np.int64)[None] * table.shape[1]
    return graph.op("Gather", table.reshape(-1), graph.op("Add", cells, starts))


def top(graph: Graph, probs: str) -> str:
    """Number the class on top, (n, 1); ties go to the lowest class."""
    return graph.op("ArgMax", probs, axis=1, keepdims=1)


def is_class(graph: Graph, like: str, label: str) -> str:
    """Mark the column of each record's class, (n, classes)."""
    zero, one = (graph.op("Squeeze", np.array([k])) for k in (0, 1))
    classes = graph.op("Gather", graph.op("Shape", like), one)
    return graph.op("Equal", label, graph.op("Range", zero, classes, one))
