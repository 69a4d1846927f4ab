"""What an exported model is fed: probabilities, logits or one score a record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.export.graph import Graph, Scores, log_probs, softmax
from fedcalib.records import softmax as softmax_of
from fedcalib.types import Floats

_ROUNDING = 1e-15  # a few units in the last place


@dataclass(frozen=True)
class Input(ABC):
    """A declared input; `single` declares it, and the output, in single precision, with doubles in between."""

    single: bool = False
    name: ClassVar[str]

    @abstractmethod
    def shape(self, classes: int | None) -> list[int | str]:
        """Say the shape that is declared, for input and output alike."""

    @abstractmethod
    def scores(self, graph: Graph, values: str) -> Scores:
        """Work out probabilities and logits of clean values."""

    @abstractmethod
    def allowed(self, graph: Graph, values: str) -> str:
        """Mark what Python would accept."""

    @abstractmethod
    def expected(self, calibrator: Calibrator, values: Floats) -> Floats:
        """Ask the Python artifact."""

    def rounded(self, calibrator: Calibrator, values: Floats) -> list[Floats]:
        """Ask the Python artifact about records that differ by rounding only; where nothing is computed, nothing is."""
        return [self.expected(calibrator, values)]

    def columns(self, graph: Graph, values: str) -> str:
        """Give the values as (n, columns)."""
        return values

    def answer(self, graph: Graph, probs: str) -> str:
        """Bring probabilities, (n, classes), into the shape of the input."""
        return probs

    @property
    def dtype(self) -> Any:
        """Give the type that is declared."""
        return np.float32 if self.single else np.float64


@final
@dataclass(frozen=True)
class Probabilities(Input):
    """Probabilities, (n, classes)."""

    name = "probabilities"

    def shape(self, classes: int | None) -> list[int | str]:
        """One column a class."""
        return ["records", "classes" if classes is None else classes]

    def scores(self, graph: Graph, values: str) -> Scores:
        """Take logarithms."""
        return Scores(values, log_probs(graph, values))

    def allowed(self, graph: Graph, values: str) -> str:
        """Allow 0 to 1."""
        return _between(graph, values)

    def expected(self, calibrator: Calibrator, values: Floats) -> Floats:
        """Call it."""
        return calibrator(values)


@final
@dataclass(frozen=True)
class Logits(Input):
    """Logits, (n, classes)."""

    name = "logits"

    def shape(self, classes: int | None) -> list[int | str]:
        """One column a class."""
        return ["records", "classes" if classes is None else classes]

    def scores(self, graph: Graph, values: str) -> Scores:
        """Take the softmax."""
        return Scores(softmax(graph, values), values)

    def allowed(self, graph: Graph, values: str) -> str:
        """Allow what is finite: only then a number minus itself is 0."""
        return graph.op("Equal", graph.op("Sub", values, values), 0.0)

    def expected(self, calibrator: Calibrator, values: Floats) -> Floats:
        """Call it with logits."""
        return calibrator.from_logits(values)

    def rounded(self, calibrator: Calibrator, values: Floats) -> list[Floats]:
        """Move the softmax by rounding errors: all classes alike, or each by its own."""
        rng = np.random.default_rng(0)
        moves = [-1.0, 1.0, *rng.choice([-1.0, 0.0, 1.0], size=(64, *values.shape))]
        probs = [np.clip(softmax_of(values) * (1 + _ROUNDING * move), 0.0, 1.0) for move in moves]
        return [calibrator.calibrate(moved, values) for moved in probs]


@final
@dataclass(frozen=True)
class Score(Input):
    """The probability of class 1 of a binary classifier, (n,)."""

    name = "score"

    def shape(self, classes: int | None) -> list[int | str]:
        """One number a record."""
        if classes not in (None, 2):
            raise InputError(f"Expected a binary calibrator for one score a record, found {classes} classes.")
        return ["records"]

    def scores(self, graph: Graph, values: str) -> Scores:
        """Put the complement beside it, then take logarithms."""
        pair = graph.op("Concat", graph.op("Sub", 1.0, values), values, axis=1)
        return Scores(pair, log_probs(graph, pair))

    def allowed(self, graph: Graph, values: str) -> str:
        """Allow 0 to 1."""
        return _between(graph, values)

    def expected(self, calibrator: Calibrator, values: Floats) -> Floats:
        """Call it with one score a record."""
        return calibrator(values)

    def columns(self, graph: Graph, values: str) -> str:
        """Make it a column."""
        return graph.op("Unsqueeze", values, np.array([1]))

    def answer(self, graph: Graph, probs: str) -> str:
        """Give class 1's column."""
        return graph.op("Squeeze", graph.columns(probs, 1, 2), np.array([1]))


def _between(graph: Graph, values: str) -> str:
    """Mark values from 0 to 1; NaN compares with nothing, so it is not among them."""
    above, below = graph.op("GreaterOrEqual", values, 0.0), graph.op("LessOrEqual", values, 1.0)
    return graph.op("And", above, below)
