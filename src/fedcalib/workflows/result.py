"""What the results of all workflows have in common: a line, a summary, plain data, a frame, a report and a bundle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from fedcalib.errors import InputError
from fedcalib.report.notebook import in_notebook
from fedcalib.report.page import Page, render
from fedcalib.report.sheet import Sheet
from fedcalib.workflows import documents
from fedcalib.workflows.documents import TextTable
from fedcalib.workflows.evidence import sheet_of, write_bundle
from fedcalib.workflows.facts import UNKNOWN, About, Trail


class WorkflowResult(ABC):
    """The result of a workflow, which shows itself without showing a record.

    `repr` is one line, `summary` a screen, `to_dict` the document that `--format json` prints and `result.json` holds,
    and `to_frame` a pandas frame of the figures. `report` writes a page, `save` a folder, `bundle` a zip file with
    everything that belongs to the evidence.

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
    evidence: Trail

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

    @abstractmethod
    def contents(self, about: About = UNKNOWN) -> Page:
        """The contents of the report."""

    @abstractmethod
    def files(self, about: About = UNKNOWN) -> dict[str, bytes]:
        """Everything that `save` writes, by file name."""

    def report(self, path: documents.Folder, about: About = UNKNOWN) -> Path:
        """Write the report, one self-contained HTML page.

        Parameters
        ----------
        path
            The file.
        about
            The classifier's name, the period of the data and others, for the facts of the page.

        Returns
        -------
        Path
            The file.
        """
        if not isinstance(path, str | Path) or Path(path).suffix.lower() not in (".html", ".htm"):
            raise InputError(f"Expected a file that ends in .html for the report, found {path}; it is a web page.")
        return documents.write_file(path, render(self.contents(about)).encode())

    def save(self, folder: documents.Folder, about: About = UNKNOWN) -> dict[str, str]:
        """Write the result, the report and what belongs to them into a folder; return where each file is."""
        return documents.write_all(folder, self.files(about))

    def sheet(self, about: About = UNKNOWN) -> Sheet:
        """The TRIPOD+AI items and the model card, filled in as far as the run can."""
        return sheet_of(self.contents(about), about)

    def bundle(self, path: documents.Folder, about: About = UNKNOWN) -> Path:
        """Write everything that belongs to the evidence into one zip file: see `fedcalib.workflows.evidence`."""
        page = self.contents(about)
        return write_bundle(path, self.files(about), sheet_of(page, about), page.privacy, self.evidence)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data, as the command prints it with `--format json`."""
        return self.to_json()

    def summary(self) -> str:
        """The main finding, the main figures, and what a reader should know, as text."""
        return "\n".join([self.headline, "", *as_text(self.tables()[0]), "", *self.sentences])

    def _repr_html_(self) -> str:
        return in_notebook(self.contents())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.headline}>"


def as_text(table: TextTable) -> list[str]:
    """A table in lines of text, its columns aligned."""
    rows = [row for row in (table.columns, *table.rows) if any(row)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [table.title, *lines] if table.title else lines
