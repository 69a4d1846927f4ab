"""The input of an exported model: probabilities, logits, or one score per record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.errors import InputError
from fedcalib.export.graph import Graph, Scores, both_classes, log_probs, softmax
from fedcalib.records import softmax as softmax_of
from fedcalib.types import Floats

_ROUNDING_ERROR = 1e-15  # a few units in the last place


@dataclass(frozen=True)
class Input(ABC):
    """The input that a model declares.

    What a kind does not state is as for probabilities of shape (n, classes).

    Parameters
    ----------
    single
        Whether input and output are declared in single precision; computations are in double precision anyway.

    Examples
    --------
    >>> from fedcalib.export import Logits, Probabilities, Score
    >>> [takes.name for takes in (Probabilities, Logits, Score)]
    ['probabilities', 'logits', 'score']
    """

    single: bool = False
    name: ClassVar[str]

    def shape(self, classes: int | None) -> list[int | str]:
        """The declared shape of input and output."""
        return ["records", "classes" if classes is None else classes]

    @abstractmethod
    def scores(self, graph: Graph, values: str) -> Scores:
        """Probabilities and logits of valid values."""

    def allowed(self, graph: Graph, values: str) -> str:
        """Whether each value is one that the Python artifact accepts: NaN is not, because it compares as false."""
        above, below = graph.op("GreaterOrEqual", values, 0.0), graph.op("LessOrEqual", values, 1.0)
        return graph.op("And", above, below)

    def expected(self, calibrator: Calibrator, values: Floats) -> Floats:
        """The answer of the Python artifact."""
        return calibrator(values)

    def rounded(self, calibrator: Calibrator, values: Floats) -> list[Floats]:
        """Answers of the Python artifact for inputs that differ by rounding only."""
        return [self.expected(calibrator, values)]

    def columns(self, graph: Graph, values: str) -> str:
        """The values as (n, columns)."""
        return values

    def answer(self, graph: Graph, probs: str) -> str:
        """Probabilities, (n, classes), in the shape of the input."""
        return probs

    @property
    def dtype(self) -> Any:
        """The declared type."""
        return np.float32 if self.single else np.float64


@final
@dataclass(frozen=True)
class Probabilities(Input):
    """The input is probabilities, shape (n, classes).

    Parameters
    ----------
    single
        Whether input and output are declared in single precision.

    Examples
    --------
    >>> from fedcalib.export import Probabilities
    >>> Probabilities().shape(3)
    ['records', 3]
    """

    name = "probabilities"

    def scores(self, graph: Graph, values: str) -> Scores:
        return Scores(values, log_probs(graph, values))


@final
@dataclass(frozen=True)
class Logits(Input):
    """The input is logits, shape (n, classes).

    Parameters
    ----------
    single
        Whether input and output are declared in single precision.

    Examples
    --------
    >>> from fedcalib.export import Logits
    >>> Logits().shape(None)
    ['records', 'classes']
    """

    name = "logits"

    def scores(self, graph: Graph, values: str) -> Scores:
        return Scores(softmax(graph, values), values)

    def allowed(self, graph: Graph, values: str) -> str:
        return graph.op("Equal", graph.op("Sub", values, values), 0.0)  # x - x is 0 for finite x only

    def expected(self, calibrator: Calibrator, values: Floats) -> Floats:
        return calibrator.from_logits(values)

    def rounded(self, calibrator: Calibrator, values: Floats) -> list[Floats]:
        """Answers for softmax values with rounding errors, the same for all classes or one per class."""
        rng = np.random.default_rng(0)
        moves = [-1.0, 1.0, *rng.choice([-1.0, 0.0, 1.0], size=(64, *values.shape))]
        probs = [np.clip(softmax_of(values) * (1 + _ROUNDING_ERROR * move), 0.0, 1.0) for move in moves]
        return [calibrator.calibrate(moved, values) for moved in probs]


@final
@dataclass(frozen=True)
class Score(Input):
    """The input is the probability of class 1 of a binary classifier, shape (n,).

    Parameters
    ----------
    single
        Whether input and output are declared in single precision.

    Examples
    --------
    >>> from fedcalib.export import Score
    >>> Score(single=True).shape(2)
    ['records']
    """

    name = "score"

    def shape(self, classes: int | None) -> list[int | str]:
        if classes not in (None, 2):
            raise InputError(f"Expected a binary calibrator for one score per record, found {classes} classes.")
        return ["records"]

    def scores(self, graph: Graph, values: str) -> Scores:
        pair = both_classes(graph, values)
        return Scores(pair, log_probs(graph, pair))

    def columns(self, graph: Graph, values: str) -> str:
        return graph.op("Unsqueeze", values, np.array([1]))

    def answer(self, graph: Graph, probs: str) -> str:
        return graph.op("Squeeze", graph.columns(probs, 1, 2), np.array([1]))
