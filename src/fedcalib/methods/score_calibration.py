"""Calibrators of binary classifiers that are fitted to one private table of scores."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.flows.score_table import score_table, two_classes
from fedcalib.method import Flow, Method
from fedcalib.metrics.score_buckets import default_buckets
from fedcalib.metrics.score_table import ScoreTable
from fedcalib.queries.score_tree import ScoreTree
from fedcalib.records import Schema


@dataclass(frozen=True)
class ScoreCalibration(Method[Calibrator]):
    """A calibrator read off a table of scores.

    Run as a method it asks for a tree of its own; `fit` reads it off the table of an evaluation that was made
    already, which costs no further privacy.
    """

    @property
    @abstractmethod
    def asked(self) -> ScoreTree:
        """Say which tree to ask for."""

    @abstractmethod
    def fit(self, table: ScoreTable) -> Calibrator:
        """Read the calibrator off a table."""

    def protocol(self, schema: Schema) -> Flow[Calibrator]:
        """Ask for the tree, then fit."""
        two_classes(schema)
        return self.fit((yield from score_table(self.asked)))


def steadied(table: ScoreTable) -> ScoreTable:
    """Let the likely counts stand for the noisy ones where noise is large; what is known of the noise stays."""
    return replace(table, counts=table.likely) if table.shaken else table


def chosen_buckets(buckets: int | None, table: ScoreTable) -> int:
    """Take the wanted number of buckets, or what records and noise suggest."""
    return default_buckets(table) if buckets is None else buckets


def check_buckets(buckets: int | None) -> None:
    """Refuse absurd numbers of buckets."""
    if buckets is not None and not 1 <= buckets <= 1 << 12:
        raise InputError(
            f"Expected 1 to 4096 buckets, or None for as many as records and noise allow, found {buckets}."
        )
