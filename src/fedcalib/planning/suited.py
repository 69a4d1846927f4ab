"""Which tree of scores suits a privacy model."""

from __future__ import annotations

from typing import Final

from fedcalib.privacy.local import LocalDP
from fedcalib.privacy.model import Privacy
from fedcalib.queries.score_tree import TREE, ScoreTree

_LOCAL: Final = ScoreTree(arity=2, height=8)


def suited_tree(privacy: Privacy) -> ScoreTree:
    """Give the tree to ask for under a model.

    Local reports are dealt out to levels, and a report about few cells is nearly exact: two children a cell and about
    epsilon^(2/3) M^(1/3) leaves do best, which is 2^8 for a million records at epsilon 5. Otherwise four children a
    cell and 4^5 leaves.
    """
    return _LOCAL if isinstance(privacy, LocalDP) else TREE
