"""Training: networks as weight vectors, local optimisation, and what is built on both.

Importing this package needs numpy only; torch comes when a network of the `torch` extra is first built.
"""

from __future__ import annotations

from fedcalib.training.network import SGD, Adam, LocalTraining, Network, Optimiser, Session, SoftmaxRegression
from fedcalib.training.torch_networks import CharLSTM, ConvNet, LeNet5, OwnNetwork, ResNet18, UnitHead

__all__ = [
    "SGD", "Adam", "CharLSTM", "ConvNet", "LeNet5", "LocalTraining", "Network", "Optimiser", "OwnNetwork",
    "ResNet18", "Session", "SoftmaxRegression", "UnitHead",
]  # fmt: skip
