"""Trained networks as ONNX models: the same probabilities as in Python, a calibrator after them, clear refusals."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import fedcalib as fc
from fedcalib.artifacts.networks import Trained
from fedcalib.artifacts.scaling import Temperature
from fedcalib.errors import InputError
from fedcalib.export import network_to_onnx
from fedcalib.records import softmax
from fedcalib.training import CharLSTM, ConvNet, LeNet5, ResNet18, SoftmaxRegression, UnitHead

RNG = np.random.default_rng(5)
DIGITS = RNG.integers(0, 256, (6, 28, 28), dtype=np.uint8)
PICTURES = RNG.integers(0, 256, (4, 16, 16, 3), dtype=np.uint8)
NUMBERS = RNG.normal(size=(7, 5))


def trained(network: fc.training.Network, seed: int = 1) -> Trained:
    weights = network.start(seed)
    noise = np.random.default_rng(seed).normal(0, 0.1, len(weights))
    return Trained(network, (weights + noise).astype(weights.dtype))


def run(model: bytes, inputs: np.ndarray) -> list[np.ndarray]:
    return list(onnxruntime.InferenceSession(model).run(None, {"inputs": inputs}))


def test_softmax_regression_is_exact() -> None:
    model = trained(SoftmaxRegression(5, 3))
    exported = network_to_onnx(model, NUMBERS)
    logits, probs = run(exported.model, NUMBERS)
    np.testing.assert_allclose(logits, model.logits(NUMBERS), atol=1e-12)
    np.testing.assert_allclose(probs, softmax(model.logits(NUMBERS)), atol=1e-12)
    assert exported.parity.ordinary < 1e-12
    bytes_model = trained(SoftmaxRegression(784, 10))
    logits, _ = run(network_to_onnx(bytes_model, DIGITS).model, DIGITS)
    np.testing.assert_allclose(logits, bytes_model.logits(DIGITS), atol=1e-10)


NETWORKS = {
    "ConvNet": (ConvNet(), DIGITS),
    "LeNet5": (LeNet5(), DIGITS),
    "colours": (LeNet5(16, 3, 4), PICTURES),
    "ResNet18": (ResNet18(3, 10, 8), PICTURES),
    "UnitHead": (UnitHead(LeNet5()), DIGITS),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_torch_network_gives_the_same_logits(name: str) -> None:
    pytest.importorskip("torch")
    network, inputs = NETWORKS[name]
    model = trained(network)
    logits, probs = run(network_to_onnx(model, inputs[:2]).model, inputs)  # any number of records
    expected = model.logits(inputs)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    np.testing.assert_allclose(probs.sum(axis=1), 1.0)


def test_a_calibrator_comes_after_the_network() -> None:
    model = trained(SoftmaxRegression(5, 3))
    _, probs = run(network_to_onnx(model, NUMBERS, Temperature(2.0)).model, NUMBERS)
    np.testing.assert_allclose(probs, Temperature(2.0).from_logits(model.logits(NUMBERS)), atol=1e-12)


def test_layers_that_cannot_be_exported_are_named() -> None:
    pytest.importorskip("torch")
    with pytest.raises(InputError, match="found Embedding"):
        network_to_onnx(trained(CharLSTM(20, 4, 8, 1)), np.zeros((2, 6), dtype=np.int64))
    with pytest.raises(InputError, match="at least one example"):
        network_to_onnx(trained(SoftmaxRegression(5, 3)), NUMBERS[:0])
