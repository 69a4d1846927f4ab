"""Logits of an over-confident classifier, the same for every contender."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

import fedcalib as fc
from fedcalib.records import softmax
from fedcalib.types import Floats, Ints

RECORDS = 100_000


@dataclass(frozen=True, eq=False)
class Data:
    """Records to fit, and as many to measure on."""

    logits: Floats
    probs: Floats
    labels: Ints
    fresh: fc.Records

    @property
    def classes(self) -> int:
        return int(self.logits.shape[1])

    @cached_property
    def runtime(self) -> fc.InProcess:
        return fc.InProcess(fc.Federation.of([fc.Records.of_logits(self.logits, self.labels)]))

    @cached_property
    def runtime_of_probs(self) -> fc.InProcess:
        """The same as probabilities, which is what binning peers are given."""
        return fc.InProcess(fc.Federation.of([fc.Records.of_probs(self.probs, self.labels)]))


def make(classes: int, records: int = RECORDS) -> Data:
    """True logits with spread 2; what is given is 1.8 times that, with factors and shifts of each class's own."""
    rng = np.random.default_rng(0)
    factor, shift = 1.8 * rng.uniform(0.9, 1.1, classes), rng.normal(0, 0.2, classes)

    def draw() -> tuple[Floats, Ints]:
        true = 2 * rng.normal(size=(records, classes))
        gumbel = rng.gumbel(size=true.shape)
        return factor * true + shift, (true + gumbel).argmax(axis=1)

    logits, labels = draw()
    return Data(logits, softmax(logits), labels, fc.Records.of_logits(*draw()))
