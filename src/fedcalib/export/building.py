"""How a calibrator becomes a graph: one function a kind of calibrator, found by its type."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import final

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.export.graph import Graph


@final
@dataclass(frozen=True)
class Scores:
    """The names of a graph's probabilities and logits, (n, classes) each."""

    probs: str
    logits: str


@singledispatch
def calibrated(calibrator: Calibrator, graph: Graph, scores: Scores) -> str:
    """Add a calibrator to a graph and name its probabilities; kinds of your own are added with `register`."""
    raise InputError(
        f"Expected a calibrator that can be exported, found {type(calibrator).__name__}; "
        "register a function for it with fedcalib.export.building.calibrated.register."
    )


@singledispatch
def classes_of(calibrator: Calibrator) -> int | None:
    """Say for how many classes a calibrator was made; None if it takes any number."""
    return None


@singledispatch
def breaks(calibrator: Calibrator) -> tuple[float, ...]:
    """List probabilities at which a calibrator jumps, so that its export is tried exactly there."""
    return ()
