"""Real data sets, read from a directory that you give; nothing is downloaded behind your back.

Each loader says how to get its files when it does not find them.
"""

from __future__ import annotations

from fedcalib.datasets.cifar10 import cifar10
from fedcalib.datasets.dataset import Dataset
from fedcalib.datasets.fashion_mnist import fashion_mnist
from fedcalib.datasets.hugging_face import HUB, hugging_face
from fedcalib.datasets.mnist import mnist
from fedcalib.datasets.shakespeare import CHARACTERS, shakespeare

__all__ = ["CHARACTERS", "HUB", "Dataset", "cifar10", "fashion_mnist", "hugging_face", "mnist", "shakespeare"]
