"""Export of a calibrator as an ONNX model, which is compared with the Python artifact on random and extreme records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.export import scalings, tables
from fedcalib.export.graph import IR_VERSION, OPSET, Graph, breaks, calibrated, classes_of, parts
from fedcalib.export.inputs import Input, Logits, Probabilities, Score
from fedcalib.records import softmax
from fedcalib.types import Floats

ORDINARY_TOLERANCE: Final = 1e-10  # largest difference of probabilities that is taken as rounding
EXTREME_TOLERANCE: Final = 1e-6  # the same for logits of up to a million, whose differences are rounded themselves
_SINGLE_TOLERANCE: Final = 1e-6
_RANDOM_RECORDS: Final = 500
_CLASS_COUNTS: Final = (2, 3, 10)  # tested where a calibrator takes any number of classes


@final
@dataclass(frozen=True)
class Parity:
    """The largest differences between an exported model and the Python artifact.

    A softmax may round differently in two programs. Where that alone decides on which side of a step a record lies, as
    with three equal logits and an edge at 1/3, either side counts as agreement.

    Parameters
    ----------
    records
        Number of records that were compared.
    ordinary, extreme
        Largest difference among random records and among extreme ones.
    """

    records: int
    ordinary: float
    extreme: float


def compared(model: bytes, calibrator: Calibrator, takes: Input) -> Parity:
    """Compare a model with its calibrator; an error where they differ."""
    session = session_of(model)
    classes = classes_of(calibrator)
    counts = (2,) if isinstance(takes, Score) else _CLASS_COUNTS if classes is None else (classes,)
    rng = np.random.default_rng(0)
    records, worst = 0, [0.0, 0.0]
    for count in counts:
        tried = (ordinary(takes, count, rng), extreme(takes, count, breaks(calibrator)))
        for kind, (values, limit) in enumerate(zip(tried, (ORDINARY_TOLERANCE, EXTREME_TOLERANCE), strict=True)):
            values = values.astype(takes.dtype)  # noqa: PLW2901 - both get the same, rounded values
            worst[kind] = max(worst[kind], _difference(session, calibrator, takes, values, limit))
            records += len(values)
    return Parity(records, *worst)


def _difference(session: Any, calibrator: Calibrator, takes: Input, values: Floats, limit: float) -> float:
    wide = values.astype(np.float64)
    expected = takes.expected(calibrator, wide)
    (found,) = session.run(None, {takes.name: values})
    allowed = max(limit, _SINGLE_TOLERANCE) if takes.single else limit
    if found.shape != expected.shape:
        raise _disagreement(takes, values[0], f"an answer of shape {found.shape}", allowed)
    gap = np.abs(found - expected).reshape(len(values), -1).max(axis=1)  # (n,); NaN where either is
    for row in np.flatnonzero(~(gap <= allowed)):
        near = takes.rounded(calibrator, wide[row : row + 1])
        closest = min(float(np.abs(found[row] - other).max()) for other in near)
        if not closest <= allowed:
            raise _disagreement(takes, values[row], f"a difference of {gap[row]:.3g}", allowed)
        gap[row] = closest
    return float(gap.max(initial=0.0))


def _disagreement(takes: Input, record: Floats, what: str, allowed: float) -> InputError:
    return InputError(
        f"Expected the exported model to agree with the calibrator within {allowed:g}, found {what} for the "
        f"{takes.name} {record.tolist()}; nothing was written. Report this with the calibrator."
    )


def ordinary(takes: Input, classes: int, rng: np.random.Generator) -> Floats:
    """Random records like those of classifiers, from uncertain to very certain ones."""
    logits = rng.normal(size=(_RANDOM_RECORDS, classes)) * rng.choice([0.3, 3.0, 10.0], size=(_RANDOM_RECORDS, 1))
    return _as_input(takes, logits, softmax(logits))


def extreme(takes: Input, classes: int, edges: tuple[float, ...]) -> Floats:
    """Certain records, ties, probabilities on and beside edges, and huge and tiny logits."""
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


KINDS = (scalings, tables)  # importing them registers their functions


@final
@dataclass(frozen=True)
class Exported:
    """An ONNX model, and how closely it agrees with the Python artifact.

    Parameters
    ----------
    model
        The model's file, as bytes.
    opset
        Version of the ONNX operations.
    takes
        Name of the input: "probabilities", "logits", "score", or "inputs" of a network.
    classes
        Number of classes; None if the model takes any.
    parity
        The largest differences that were found.

    Examples
    --------
    >>> from fedcalib.export.model import Exported, Parity
    >>> Exported(b"", 18, "score", 2, Parity(100, 1e-16, 1e-12)).parity.ordinary
    1e-16
    """

    model: bytes
    opset: int
    takes: str
    classes: int | None
    parity: Parity


def to_onnx(calibrator: Calibrator, takes: Input | None = None) -> Exported:
    """Export a calibrator as an ONNX model and compare both on random and extreme records.

    For a record that the Python artifact would refuse, such as one with NaN, the model returns NaN. It needs the extra
    `onnx`.

    Parameters
    ----------
    calibrator
        The calibrator.
    takes
        The model's input; by default probabilities.

    Returns
    -------
    Exported
        The model, and how closely it agrees.

    Raises
    ------
    InputError
        If onnx is not installed, the calibrator cannot be exported, or model and calibrator differ.

    Examples
    --------
    >>> from fedcalib.artifacts.scaling import Temperature
    >>> from fedcalib.export import Logits, to_onnx
    >>> exported = to_onnx(Temperature(1.5), Logits())  # doctest: +SKIP
    >>> Path("calibrator.onnx").write_bytes(exported.model)  # doctest: +SKIP
    """
    onnx, _ = parts()
    declared = takes or Probabilities()
    model = _model(calibrator, declared)
    onnx.checker.check_model(model, full_check=True)
    content = model.SerializeToString()
    found = compared(content, calibrator, declared)
    return Exported(content, OPSET, declared.name, classes_of(calibrator), found)


def _model(calibrator: Calibrator, takes: Input) -> Any:
    onnx, _ = parts()
    graph = Graph()
    shape = takes.shape(classes_of(calibrator))
    _fill(graph, calibrator, takes)
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(takes.dtype))
    ends = [onnx.helper.make_tensor_value_info(name, element, shape) for name in (takes.name, "calibrated")]
    classes = classes_of(calibrator) or "any"
    return whole(graph, type(calibrator).__name__, ends[:1], ends[1:], {"input": takes.name, "classes": classes})


def whole(graph: Graph, artifact: str, inputs: list[Any], outputs: list[Any], properties: Mapping[str, object]) -> Any:
    """The model of a graph between its ends, with properties that say what it is."""
    from fedcalib import __version__

    onnx, _ = parts()
    body = onnx.helper.make_graph(graph.nodes, artifact, inputs, outputs, graph.constants)
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(body, opset_imports=opsets, ir_version=IR_VERSION, producer_name="fedcalib")
    model.producer_version = __version__
    told = {"input": properties["input"], "artifact": artifact, **properties}
    onnx.helper.set_model_props(model, {f"fedcalib.{name}": str(value) for name, value in told.items()})
    return model


def session_of(model: bytes) -> Any:
    """A session of onnxruntime on one thread."""
    _, onnxruntime = parts()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _fill(graph: Graph, calibrator: Calibrator, takes: Input) -> None:
    """Calibrate in double precision, with NaN for records that have invalid values."""
    values = takes.columns(graph, graph.cast(takes.name, np.float64))
    allowed = graph.cast(takes.allowed(graph, values), np.int64)
    valid = graph.cast(graph.reduced("ReduceMin", allowed), np.bool_)
    scores = takes.scores(graph, graph.op("Where", valid, values, 0.0))
    probs = graph.op("Where", valid, calibrated(calibrator, graph, scores), np.nan)
    onnx, _ = parts()
    answer = graph.cast(takes.answer(graph, probs), takes.dtype)
    graph.nodes.append(onnx.helper.make_node("Identity", [answer], ["calibrated"], name="calibrated"))
