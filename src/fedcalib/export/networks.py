"""Export of a trained network as an ONNX model, alone or with a calibrator after it.

The model takes what the network takes in Python, such as images of bytes, and returns logits and probabilities. A torch
network is written layer by layer, from its forward pass on symbols; layers without a function here are refused.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.networks import Trained
from fedcalib.errors import InputError
from fedcalib.export.graph import OPSET, Graph, Scores, calibrated, parts, softmax
from fedcalib.export.inputs import Logits
from fedcalib.export.model import Exported, Parity, session_of, to_onnx, whole
from fedcalib.records import softmax as softmax_of
from fedcalib.training.network import SoftmaxRegression
from fedcalib.types import Array

if TYPE_CHECKING:
    from fedcalib.training.torch_session import TorchSession

_TOLERANCE: Final = 1e-4  # largest difference of probabilities: networks compute in single precision


def network_to_onnx(trained: Trained, examples: Array, calibrator: Calibrator | None = None) -> Exported:
    """Export a trained network as an ONNX model and compare both on examples.

    The model has one input, "inputs", and two outputs: "logits" of the network and "probabilities", which are
    calibrated if a calibrator is given. It needs the extra `onnx`, and `torch` for networks of torch.

    Parameters
    ----------
    trained
        The network with its weights.
    examples
        Some inputs, of the type and shape that the network is trained with, shape (n, ...).
    calibrator
        A calibrator of the network's logits.

    Returns
    -------
    Exported
        The model, and how closely its probabilities before calibration agree with Python's.

    Raises
    ------
    InputError
        If a package is missing, a layer cannot be exported, or model and network differ.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> from fedcalib.artifacts.networks import Trained
    >>> from fedcalib.export import network_to_onnx
    >>> network = fc.training.SoftmaxRegression(4, 3)
    >>> exported = network_to_onnx(Trained(network, network.start(0)), np.ones((5, 4)))
    >>> exported.takes, exported.classes
    ('inputs', 3)
    """
    onnx, _ = parts()
    if len(examples) == 0:
        raise InputError("Expected at least one example of the network's inputs, found none.")
    if calibrator is not None:
        to_onnx(calibrator, Logits())  # compared with Python by itself; an error where they differ
    model = _model(trained, examples, calibrator)
    onnx.checker.check_model(model, full_check=True)
    content = model.SerializeToString()
    found = _compared(content, trained, examples)
    return Exported(content, OPSET, "inputs", trained.network.outputs, found)


def _model(trained: Trained, examples: Array, calibrator: Calibrator | None) -> Any:
    onnx, _ = parts()
    graph, classes = Graph(), trained.network.outputs
    scored = graph.cast(_logits(graph, trained, examples), np.float64)
    probs = softmax(graph, scored)
    if calibrator is not None:
        probs = calibrated(calibrator, graph, Scores(probs, scored))
    for value, name in ((scored, "logits"), (probs, "probabilities")):
        graph.nodes.append(onnx.helper.make_node("Identity", [value], [name], name=name))
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.asarray(examples).dtype)
    given = onnx.helper.make_tensor_value_info("inputs", kind, ["records", *np.asarray(examples).shape[1:]])
    double = onnx.TensorProto.DOUBLE
    ends = [
        onnx.helper.make_tensor_value_info(name, double, ["records", classes]) for name in ("logits", "probabilities")
    ]
    after = "none" if calibrator is None else type(calibrator).__name__
    properties = {"input": "inputs", "classes": classes, "calibrator": after}
    return whole(graph, type(trained.network).__name__, [given], ends, properties)


def _logits(graph: Graph, trained: Trained, examples: Array) -> str:
    if isinstance(trained.network, SoftmaxRegression):
        return _linear(graph, trained.network, trained, np.asarray(examples))
    from fedcalib.export.torch_layers import logits_of

    session: TorchSession = trained.network.session(trained.weights)  # type: ignore[assignment]  # of a torch network
    return logits_of(graph, session.module, np.asarray(examples))


def _linear(graph: Graph, network: SoftmaxRegression, trained: Trained, examples: Array) -> str:
    """Softmax regression, in double precision as in Python."""
    flat = graph.op("Reshape", "inputs", np.array([-1, prod(examples.shape[1:])]))
    features = graph.cast(flat, np.float64)
    if examples.dtype == np.uint8:
        features = graph.op("Div", features, 255.0)
    matrix, shift = (trained.weights[part].astype(np.float64) for part in network.head)
    product = graph.op("MatMul", features, matrix.reshape(network.classes, -1).T)
    return graph.op("Add", product, shift)


def _compared(model: bytes, trained: Trained, examples: Array) -> Parity:
    """The largest differences of probabilities before calibration, on the examples and on extremes of their type."""
    session, given = session_of(model), np.asarray(examples)
    worst, records = [], 0
    for values in (given, _extremes(given)):
        logits, _ = session.run(None, {"inputs": values})
        gap = np.abs(softmax_of(logits) - softmax_of(np.asarray(trained.logits(values), dtype=np.float64)))
        worst.append(float(gap.max()))
        records += len(values)
    if not max(worst) <= _TOLERANCE:
        raise InputError(
            f"Expected the exported model to agree with the network within {_TOLERANCE:g}, found a difference of "
            f"{max(worst):.3g}; nothing was written. Report this with the network."
        )
    return Parity(records, *worst)


def _extremes(given: Array) -> Array:
    """Nothing, and for bytes and floats also the largest value everywhere."""
    nothing = np.zeros_like(given[:1])
    if given.dtype != np.uint8 and given.dtype.kind != "f":
        return nothing  # tokens: a larger one may not exist
    return np.concatenate([nothing, np.full_like(nothing, given.max())])
