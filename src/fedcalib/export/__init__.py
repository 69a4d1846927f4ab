"""Export: calibrators and trained networks as ONNX graphs that run without Python, or as MLflow models."""

from __future__ import annotations

from fedcalib.export.inputs import Input, Logits, Probabilities, Score
from fedcalib.export.model import Exported, to_onnx
from fedcalib.export.networks import network_to_onnx
from fedcalib.export.served import ServedCalibrator, to_mlflow

__all__ = ["Exported", "Input", "Logits", "Probabilities", "Score", "ServedCalibrator", "network_to_onnx"]
__all__ += ["to_mlflow", "to_onnx"]
