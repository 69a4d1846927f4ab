"""Export: calibrators as ONNX graphs that a serving system runs without Python."""

from __future__ import annotations

from fedcalib.export.inputs import Input, Logits, Probabilities, Score
from fedcalib.export.model import Exported, to_onnx

__all__ = ["Exported", "Input", "Logits", "Probabilities", "Score", "to_onnx"]
