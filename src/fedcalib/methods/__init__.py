"""Methods, one file each, named as in the literature, and their options."""

from fedcalib.registry import exports

__getattr__, __all__, __dir__ = exports(__name__)
