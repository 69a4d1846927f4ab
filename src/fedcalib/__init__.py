"""Calibrated, trustworthy probabilities from data that cannot be pooled.

Names come when they are first used, so that importing the package costs little more than importing numpy.
"""

from fedcalib.registry import exports

__version__ = "0.1.0"

__getattr__, __all__, __dir__ = exports(__name__)
