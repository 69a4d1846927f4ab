"""What the results of all workflows have in common: a line, a summary, plain data and a frame."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from fedcalib.workflows.documents import TextTable


class WorkflowResult(ABC):
    """The result of a workflow, which shows itself without showing a record.

    `repr` is one line, `summary` a screen, `to_dict` the document that `--format json` prints and `result.json` holds,
    and `to_frame` a pandas frame of the figures.

    Examples
    --------
    >>> import fedcalib as fc
    >>> done = fc.evaluate(fc.Federation.simulated(classes=2, records=20_000))
    >>> done
    <EvaluationResult: AUC 0.9... (...); ...>
    >>> print(done.summary().splitlines()[0])
    AUC 0.9... (...); ...
    """

    command: ClassVar[str]  # what does the same from the shell

    @property
    @abstractmethod
    def headline(self) -> str:
        """The main finding in a line."""

    @property
    @abstractmethod
    def sentences(self) -> tuple[str, ...]:
        """What a reader should know besides the figures: how it was measured, privacy and warnings."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""

    @abstractmethod
    def to_frame(self) -> Any:
        """The figures as a pandas frame."""

    @abstractmethod
    def tables(self) -> list[TextTable]:
        """The result for people; the first table has the main figures."""

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data, as the command prints it with `--format json`."""
        return self.to_json()

    def summary(self) -> str:
        """The main finding, the main figures, and what a reader should know, as text."""
        return "\n".join([self.headline, "", *as_text(self.tables()[0]), "", *self.sentences])

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.headline}>"


def as_text(table: TextTable) -> list[str]:
    """A table in lines of text, its columns aligned."""
    rows = [row for row in (table.columns, *table.rows) if any(row)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [table.title, *lines] if table.title else lines
