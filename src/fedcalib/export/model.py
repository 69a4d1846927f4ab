"""Does an exported model say what the Python artifact says? Tried on random and on extreme records.

A calibrator as a checked ONNX model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.export import scalings, tables
from fedcalib.export import scalings as wrappers
from fedcalib.export.graph import IR_VERSION, OPSET, Graph, breaks, calibrated, classes_of, parts
from fedcalib.export.inputs import Input, Logits, Probabilities, Score
from fedcalib.records import softmax
from fedcalib.types import Floats

ORDINARY: Final = 1e-10  # the largest difference between probabilities that is taken for rounding
EXTREME: Final = 1e-6  # the same among logits of up to a million, whose differences are rounded themselves
_SINGLE: Final = 1e-6
_RECORDS: Final = 500
_ANY: Final = (2, 3, 10)  # numbers of classes to try where any will do


@final
@dataclass(frozen=True)
class Parity:
    """The largest differences found, and among how many records.

    A softmax may round differently in two programs. Where that alone decides on which side of a step a record falls,
    as with three equal logits and an edge at 1/3, either side counts as agreement.
    """

    records: int
    ordinary: float
    extreme: float


def compared(model: bytes, calibrator: Calibrator, takes: Input) -> Parity:
    """Run a model and its calibrator side by side, and refuse where they differ."""
    _, onnxruntime = parts()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    classes = classes_of(calibrator)
    counts = (2,) if isinstance(takes, Score) else _ANY if classes is None else (classes,)
    rng = np.random.default_rng(0)
    records, worst = 0, [0.0, 0.0]
    for count in counts:
        tried = (ordinary(takes, count, rng), extreme(takes, count, breaks(calibrator)))
        for kind, (values, limit) in enumerate(zip(tried, (ORDINARY, EXTREME), strict=True)):
            values = values.astype(takes.dtype)  # noqa: PLW2901 - what the model is fed, Python is asked
            worst[kind] = max(worst[kind], _difference(session, calibrator, takes, values, limit))
            records += len(values)
    return Parity(records, *worst)


def _difference(session: Any, calibrator: Calibrator, takes: Input, values: Floats, limit: float) -> float:
    wide = values.astype(np.float64)
    expected = takes.expected(calibrator, wide)
    (found,) = session.run(None, {takes.name: values})
    allowed = max(limit, _SINGLE) if takes.single else limit
    if found.shape != expected.shape:
        raise _refused(takes, values[0], f"an answer of shape {found.shape}", allowed)
    gap = np.abs(found - expected).reshape(len(values), -1).max(axis=1)  # (n,); NaN where either is
    for row in np.flatnonzero(~(gap <= allowed)):
        near = takes.rounded(calibrator, wide[row : row + 1])
        closest = min(float(np.abs(found[row] - other).max()) for other in near)
        if not closest <= allowed:
            raise _refused(takes, values[row], f"a difference of {gap[row]:.3g}", allowed)
        gap[row] = closest
    return float(gap.max(initial=0.0))


def _refused(takes: Input, record: Floats, what: str, allowed: float) -> InputError:
    return InputError(
        f"Expected the exported model to agree with the calibrator within {allowed:g}, found {what} for the "
        f"{takes.name} {record.tolist()}; nothing was written. Report this with the calibrator."
    )


def ordinary(takes: Input, classes: int, rng: np.random.Generator) -> Floats:
    """Draw records such as classifiers give: unsure ones and very sure ones."""
    logits = rng.normal(size=(_RECORDS, classes)) * rng.choice([0.3, 3.0, 10.0], size=(_RECORDS, 1))
    return _as_input(takes, logits, softmax(logits))


def extreme(takes: Input, classes: int, edges: tuple[float, ...]) -> Floats:
    """List certain records, ties, probabilities on and beside edges, and huge and tiny logits."""
    probs = np.concatenate(list(_extreme_probs(classes, edges)))
    return _as_input(takes, np.concatenate(list(_extreme_logits(classes))), probs)


def _as_input(takes: Input, logits: Floats, probs: Floats) -> Floats:
    if isinstance(takes, Logits):
        return logits
    return probs[:, 1] if isinstance(takes, Score) else probs


def _extreme_probs(classes: int, edges: tuple[float, ...]) -> Iterator[Floats]:
    yield np.eye(classes)
    yield np.full((1, classes), 1 / classes)
    yield from (np.roll([[0.5, 0.5] + [0.0] * (classes - 2)], k, axis=1) for k in range(classes))
    yield np.clip(np.eye(classes), 1e-300, 1.0)
    places = np.array([0.0, 1e-12, 1e-6, 0.5, 1 - 1e-6, 1.0, *edges])
    places = np.unique(np.concatenate([places, np.nextafter(places, 0), np.nextafter(places, 1)]))
    for label in range(classes):  # the rest goes to one other class, or evenly to all
        one = np.zeros((len(places), classes))
        one[:, label], one[:, (label + 1) % classes] = places, 1 - places
        yield one
        even = np.repeat((1 - places[:, None]) / (classes - 1), classes, axis=1)
        even[:, label] = places
        yield even


def _extreme_logits(classes: int) -> Iterator[Floats]:
    ramp = np.arange(classes, dtype=np.float64)
    yield np.zeros((1, classes))
    for size in (1e-300, 1e-9, 1.0, 30.0, 700.0, 1e4, 1e6):
        yield size * np.stack([ramp, -ramp, np.roll(ramp, 1), np.where(ramp < 2, 0.0, -1.0), np.full(classes, -1.0)])
        yield size * np.eye(classes)
        yield -size * np.eye(classes)


KINDS = (scalings, tables, wrappers)  # importing them registers their functions


@final
@dataclass(frozen=True)
class Exported:
    """A model as bytes, and how closely it agrees with the Python artifact."""

    model: bytes
    opset: int
    takes: str
    classes: int | None
    parity: Parity


def to_onnx(calibrator: Calibrator, takes: Input | None = None) -> Exported:
    """Write a calibrator as an ONNX model, and refuse unless it agrees with the calibrator wherever it is tried.

    A record that the Python artifact would refuse, such as one that holds NaN, comes back as NaN.
    """
    onnx, _ = parts()
    declared = takes or Probabilities()
    model = _model(calibrator, declared)
    onnx.checker.check_model(model, full_check=True)
    content = model.SerializeToString()
    found = compared(content, calibrator, declared)
    return Exported(content, OPSET, declared.name, classes_of(calibrator), found)


def _model(calibrator: Calibrator, takes: Input) -> Any:
    from fedcalib import __version__

    onnx, _ = parts()
    graph = Graph()
    shape = takes.shape(classes_of(calibrator))
    _fill(graph, calibrator, takes)
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(takes.dtype))
    ends = [onnx.helper.make_tensor_value_info(name, element, shape) for name in (takes.name, "calibrated")]
    body = onnx.helper.make_graph(graph.nodes, type(calibrator).__name__, ends[:1], ends[1:], graph.constants)
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(body, opset_imports=opsets, ir_version=IR_VERSION, producer_name="fedcalib")
    model.producer_version = __version__
    classes = classes_of(calibrator)
    told = {"input": takes.name, "artifact": type(calibrator).__name__, "classes": classes or "any"}
    onnx.helper.set_model_props(model, {f"fedcalib.{name}": str(value) for name, value in told.items()})
    return model


def _fill(graph: Graph, calibrator: Calibrator, takes: Input) -> None:
    """Clean the input, calibrate in double precision, and blank the records that were not clean."""
    values = takes.columns(graph, graph.cast(takes.name, np.float64))
    allowed = graph.cast(takes.allowed(graph, values), np.int64)
    clean = graph.cast(graph.reduced("ReduceMin", allowed), np.bool_)
    scores = takes.scores(graph, graph.op("Where", clean, values, 0.0))
    probs = graph.op("Where", clean, calibrated(calibrator, graph, scores), np.nan)
    onnx, _ = parts()
    answer = graph.cast(takes.answer(graph, probs), takes.dtype)
    graph.nodes.append(onnx.helper.make_node("Identity", [answer], ["calibrated"], name="calibrated"))
