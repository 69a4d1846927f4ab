"""Building ONNX graphs: the graph, what several calibrators compute, and one function per kind of calibrator.

`Graph` collects operations; numbers become constants where needed. The functions after it compute what the Python
artifacts compute, in the same order of operations. `calibrated`, `classes_of` and `breaks` are implemented for each
kind of calibrator in the other modules, by single dispatch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Final, TypeAlias, final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.records import MAX_LOGIT
from fedcalib.types import Array, Floats

OPSET: Final = 18  # the first in which every reduction that is used takes its axes as an input
IR_VERSION: Final = 8  # the format that came with it, so that older runtimes read the file too

Value: TypeAlias = str | float | Array  # a value of the graph by its name, or a constant


def parts() -> tuple[Any, Any]:
    """The modules onnx and onnxruntime; an error that says what to install if one is missing."""
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise InputError(
            f"Expected the packages onnx and onnxruntime, found none of the name {error.name}; "
            "install them with: pip install 'fedcalib[onnx]'."
        ) from error
    return onnx, onnxruntime


@final
class Graph:
    """The nodes and constants of a graph; every operation returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def op(self, kind: str, *inputs: Value, **attributes: Any) -> str:
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, results: int, *inputs: Value, **attributes: Any) -> tuple[str, ...]:
        onnx, _ = parts()
        number = len(self.nodes)
        names = tuple(f"{kind.lower()}_{number}" + (f"_{k}" if k else "") for k in range(results))
        given = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        self.nodes.append(onnx.helper.make_node(kind, given, list(names), name=f"{kind}_{number}", **attributes))
        return names

    def constant(self, value: float | Array) -> str:
        """Add a constant; plain numbers become doubles, arrays of integers stay integers."""
        onnx, _ = parts()
        array = np.asarray(value)
        typed = array.astype(np.int64 if array.dtype.kind in "iu" and array.ndim else np.float64)
        name = f"constant_{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(typed, name))
        return name

    def single(self, value: Array) -> str:
        """Add a constant in single precision."""
        onnx, _ = parts()
        name = f"constant_{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(value, dtype=np.float32), name))
        return name

    def cast(self, value: str, dtype: type[Any]) -> str:
        """Convert values to another type; doubles become integers by truncation."""
        onnx, _ = parts()
        return self.op("Cast", value, to=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def reduced(self, kind: str, value: str, keep: bool = True) -> str:
        """Reduce each record to one number, such as ReduceSum or ReduceMax."""
        return self.op(kind, value, np.array([1]), keepdims=int(keep))

    def columns(self, value: str, start: int, stop: int | None) -> str:
        """Columns `start` to `stop` of every record."""
        last = np.iinfo(np.int64).max if stop is None else stop
        return self.op("Slice", value, np.array([start]), np.array([last]), np.array([1]))


def scaled(graph: Graph, values: str, factor: float) -> str:
    """Multiply by a factor, in two steps: runtimes read constants in single precision and drop factors close to 1."""
    return graph.op("Mul", graph.op("Mul", values, 0.5), 2 * factor)


def softmax(graph: Graph, logits: str) -> str:
    """Softmax; written out, so that rounding is the same as in numpy."""
    shifted = graph.op("Sub", logits, graph.reduced("ReduceMax", logits))
    exponentials = graph.op("Exp", shifted)
    return graph.op("Div", exponentials, graph.reduced("ReduceSum", exponentials))


def log_probs(graph: Graph, probs: str) -> str:
    """Logarithms of probabilities, which are at least 1e-12."""
    return graph.op("Log", graph.op("Max", probs, 1e-12))


def one_score(graph: Graph, logits: str, classes: int) -> str:
    """Logits of two classes as log-probabilities, as `fedcalib.records.one_score` has them."""
    if classes != 2:
        return logits
    zero, one = (graph.columns(logits, k, k + 1) for k in (0, 1))
    odds = graph.op("Clip", graph.op("Sub", one, zero), -2 * MAX_LOGIT, 2 * MAX_LOGIT)
    mass = log1p(graph, graph.op("Exp", graph.op("Neg", graph.op("Abs", odds))))
    parts = [graph.op("Add", graph.op("Max", side, 0.0), mass) for side in (odds, graph.op("Neg", odds))]
    return graph.op("Neg", graph.op("Concat", *parts, axis=1))


def log1p(graph: Graph, value: str) -> str:
    """ln(1 + x) in full precision, for which ONNX has no operation: ln(u) x / (u - 1) with u = 1 + x rounded."""
    up = graph.op("Add", value, 1.0)
    lost = graph.op("Equal", up, 1.0)
    step = graph.op("Where", lost, 1.0, graph.op("Sub", up, 1.0))
    return graph.op("Where", lost, value, graph.op("Div", graph.op("Mul", graph.op("Log", up), value), step))


def softplus(graph: Graph, raw: str) -> str:
    """ln(1 + exp(x)) without overflow."""
    tail = graph.op("Exp", graph.op("Neg", graph.op("Abs", raw)))
    return graph.op("Add", graph.op("Max", raw, 0.0), log1p(graph, tail))


def sigmoid(graph: Graph, odds: str) -> str:
    """Probabilities of log-odds, by the hyperbolic tangent as in the artifacts."""
    return graph.op("Mul", graph.op("Add", graph.op("Tanh", graph.op("Div", odds, 2.0)), 1.0), 0.5)


def normalised(graph: Graph, values: str, fallback: str) -> str:
    """Rows divided by their sums; a row of zeros is replaced by the row of `fallback`."""
    mass = graph.reduced("ReduceSum", values)
    positive = graph.op("Greater", mass, 0.0)
    divided = graph.op("Div", values, graph.op("Where", positive, mass, 1.0))
    return graph.op("Where", positive, divided, fallback)


def both_classes(graph: Graph, one: str) -> str:
    """Probabilities of both classes, (n, 2), from those of class 1, (n, 1)."""
    return graph.op("Concat", graph.op("Sub", 1.0, one), one, axis=1)


def bins(graph: Graph, probs: str, count: int) -> str:
    """Number of each probability's bin, among bins of equal width."""
    return graph.cast(graph.op("Min", graph.op("Mul", probs, float(count)), float(count - 1)), np.int64)


def looked_up(graph: Graph, table: Floats, cells: str) -> str:
    """Entries of a table, (classes, cells), at each class's cell."""
    starts = np.arange(table.shape[0], dtype=np.int64)[None] * table.shape[1]
    return graph.op("Gather", table.reshape(-1), graph.op("Add", cells, starts))


def top(graph: Graph, probs: str) -> str:
    """Number of the most probable class, (n, 1); ties go to the lowest class."""
    return graph.op("ArgMax", probs, axis=1, keepdims=1)


def is_class(graph: Graph, like: str, label: str) -> str:
    """Whether each column is that of the record's class, (n, classes)."""
    zero, one = (graph.op("Squeeze", np.array([k])) for k in (0, 1))
    classes = graph.op("Gather", graph.op("Shape", like), one)
    return graph.op("Equal", label, graph.op("Range", zero, classes, one))


@final
@dataclass(frozen=True)
class Scores:
    """The names of a graph's probabilities and logits, (n, classes) each."""

    probs: str
    logits: str


@singledispatch
def calibrated(calibrator: Calibrator, graph: Graph, scores: Scores) -> str:
    """Add a calibrator to a graph and return the name of its probabilities.

    For a calibrator of your own, add a function with `calibrated.register`.
    """
    raise InputError(
        f"Expected a calibrator that can be exported, found {type(calibrator).__name__}; "
        "register a function for it with fedcalib.export.graph.calibrated.register."
    )


@singledispatch
def classes_of(calibrator: Calibrator) -> int | None:
    """Number of classes that a calibrator is for; None if it takes any number."""
    return None


@singledispatch
def breaks(calibrator: Calibrator) -> tuple[float, ...]:
    """Probabilities at which a calibrator is discontinuous, so that its export is tested exactly there."""
    return ()
