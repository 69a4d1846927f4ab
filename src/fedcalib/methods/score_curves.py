"""ScoreCurves: evaluate a binary classifier from one private count of its scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from fedcalib.artifacts.score_curves import Curves
from fedcalib.errors import InputError
from fedcalib.flows.recounted import recounted
from fedcalib.flows.score_table import score_table, two_classes
from fedcalib.method import Flow, Method
from fedcalib.queries.score_tree import TREE, ScoreTree
from fedcalib.records import Schema


@final
@dataclass(frozen=True)
class ScoreCurves(Method[Curves]):
    """Count labels by score in a tree, once, and answer every metric at every threshold from that.

    With `recount` above 0, the tree only finds `buckets` equi-depth buckets, and a second query counts those with
    that share of the budget.
    """

    tree: ScoreTree = TREE
    buckets: int = 100
    recount: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.recount < 1:
            raise InputError(f"Expected a share of the budget from 0 to below 1 for recounting, found {self.recount}.")
        if not 2 <= self.buckets <= 1 << 16:
            raise InputError(f"Expected 2 to 2^16 buckets, found {self.buckets}.")

    def protocol(self, schema: Schema) -> Flow[Curves]:
        """Ask once, or once for edges and once for counts."""
        two_classes(schema)
        if self.recount == 0:
            return Curves((yield from score_table(self.tree)))
        return Curves((yield from recounted(self.tree, self.buckets, self.recount)))
