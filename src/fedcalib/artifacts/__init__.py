"""Artifacts: the results of methods, such as calibrators and metrics.

An artifact is a small frozen dataclass that needs numpy only, and can be saved as a JSON file.
"""

from fedcalib.registry import exports

__getattr__, __all__, __dir__ = exports(__name__)
