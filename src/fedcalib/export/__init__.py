"""Export: calibrators and trained networks as ONNX graphs that a serving system runs without Python."""

from __future__ import annotations

from fedcalib.export.inputs import Input, Logits, Probabilities, Score
from fedcalib.export.model import Exported, to_onnx
from fedcalib.export.networks import network_to_onnx

__all__ = ["Exported", "Input", "Logits", "Probabilities", "Score", "network_to_onnx", "to_onnx"]
