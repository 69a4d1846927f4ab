"""A labelled data set before any classifier has scored it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.records import Records
from fedcalib.types import Array, Bools, Ints


@final
@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and labels, which of them are the published test set, and who they come from."""

    name: str
    inputs: Array  # (n, ...)
    labels: Ints  # (n,)
    classes: int
    test: Bools  # (n,)
    group: Array | None = None  # (n,): a writer, a role, a site

    def __len__(self) -> int:
        return len(self.labels)

    def records(self, rows: Any = slice(None)) -> Records:
        """Give records that nothing has scored yet: every logit is zero, inputs lie beside."""
        labels = self.labels[rows]
        extra = {} if self.group is None else {"group": self.group[rows]}
        return Records.of_logits(
            np.zeros((len(labels), self.classes), np.float32), labels, inputs=self.inputs[rows], **extra
        )

    @property
    def train_records(self) -> Records:
        """Give the published training set."""
        return self.records(~self.test)

    @property
    def test_records(self) -> Records:
        """Give the published test set."""
        return self.records(self.test)

    def natural(self, fewest: int = 100) -> Federation:
        """Make a client of everybody with at least so many records."""
        from fedcalib.partition import natural

        if self.group is None:
            raise InputError(f"Expected to know who each record of {self.name} comes from, found no such column.")
        return natural(self.records(), self.group, fewest)


def found(directory: Path | str, name: str, how: str) -> Path:
    """Give the path of a file, or say how to get it."""
    for place in (Path(directory) / name, *sorted(Path(directory).rglob(name))):
        if place.is_file():
            return place
    raise InputError(f"Expected {name} in {directory}, found none. {how}")
