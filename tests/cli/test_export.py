from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.scaling import OrderPreservingVector, Temperature
from fedcalib.artifacts.steps import EdgeSteps, Steps
from tests.cli.conftest import Shell


def test_a_calibrator_becomes_a_model(shell: Shell, home: Path) -> None:
    saved = EdgeSteps((0.2, 0.6), (0.1, 0.3, 0.9)).save(home / "calibrator.json")
    said = shell("export", saved, "--to", "onnx", "--takes", "score", "-o", "served/model.onnx", "--format", "json")
    assert said.code == 0, said.err
    assert said.json["input"] == "score"
    assert said.json["opset"] == 18
    assert said.json["largest_difference"] < 1e-10
    session = onnxruntime.InferenceSession("served/model.onnx")
    (found,) = session.run(None, {"score": np.array([0.0, 0.2, 0.7])})
    np.testing.assert_allclose(found, [0.1, 0.3, 0.9])


def test_single_precision_is_declared(shell: Shell, home: Path) -> None:
    saved = Temperature(2.0).save(home / "calibrator.json")
    assert shell("export", saved, "--to", "onnx", "--takes", "logits", "--single", "-o", "model.onnx").code == 0
    (found,) = onnxruntime.InferenceSession("model.onnx").run(None, {"logits": np.eye(3, dtype=np.float32)})
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    "calibrator",
    [Temperature(2.0), OrderPreservingVector((0.1, 0.0, -0.1), (0.5, 0.6, 0.4)), Steps.of_table(3, np.eye(3))],
    ids=lambda calibrator: type(calibrator).__name__,
)
def test_unless_told_otherwise_a_model_takes_probabilities_and_nothing_else(
    shell: Shell, home: Path, calibrator: Calibrator
) -> None:
    said = shell("export", calibrator.save(home / "calibrator.json"), "--to", "onnx")
    assert said.code == 0, said.err
    session = onnxruntime.InferenceSession(home / "calibrator.onnx")
    probs, logits = np.array([[0.7, 0.2, 0.1]]), np.array([[4.0, 1.0, 0.0]])
    np.testing.assert_allclose(session.run(None, {"probabilities": probs})[0], calibrator(probs), atol=1e-12)
    assert np.isnan(session.run(None, {"probabilities": logits})[0]).all(), "a mix-up must not look like an answer"


@pytest.mark.parametrize(("takes", "told"), [("score", "3 classes"), ("words", "words")])
def test_what_is_fed_has_to_fit(shell: Shell, home: Path, takes: str, told: str) -> None:
    saved = Steps.of_table(3, np.full((3, 4), 0.5)).save(home / "calibrator.json")
    said = shell("export", saved, "--to", "onnx", "-o", "model.onnx", "--takes", takes)
    assert said.code == 2
    assert told in said.err
    assert not Path("model.onnx").exists()


def test_only_calibrators_are_exported(shell: Shell, home: Path) -> None:
    (home / "other.json").write_text("{}")
    assert shell("export", "other.json", "--to", "onnx", "--takes", "probs", "-o", "model.onnx").code == 2
    assert not Path("model.onnx").exists()
