"""A calibrator as a checked ONNX model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.export import scalings, tables, wrappers
from fedcalib.export.building import calibrated, classes_of
from fedcalib.export.graph import IR_VERSION, OPSET, Graph, parts
from fedcalib.export.inputs import Input, Probabilities
from fedcalib.export.parity import Parity, compared

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
