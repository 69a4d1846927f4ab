"""Plan a study before anybody is asked: how many records, which epsilon, or which error."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, final

from fedcalib.errors import InputError
from fedcalib.planning import Forecast, Study
from fedcalib.planning.simulation import ScoreModel
from fedcalib.report.canvas import Picture
from fedcalib.report.curve_plots import trade_off
from fedcalib.report.page import Page, Section, render
from fedcalib.report.values import PageTable, PlotLine, Said
from fedcalib.workflows import documents
from fedcalib.workflows.facts import UNKNOWN, About, Trail, call, stated, versions
from fedcalib.workflows.result import WorkflowResult

NAMES: Final = ("result.json", "report.html", "plan.svg")
_SIZES: Final = (0.1, 0.3, 1.0, 3.0, 10.0)  # the table and the curve show studies of these sizes around the answer
_EPSILONS: Final = (0.3, 1.0, 3.0)
_FEWEST: Final = 20  # records
_STATEMENT: Final = "Simulation: nobody was asked, and nothing was spent."
_TOLERANCE: Final = 1.1  # a search stops at errors that are this close to the target


def plan(
    metric: str,
    *,
    target_error: float | None = None,
    records: int | None = None,
    epsilon: float | None = None,
    privacy: str = "distributed",
    scores: ScoreModel | None = None,
) -> StudyPlan:
    """Solve for whichever of records, epsilon and error is left out, by simulating the study.

    Parameters
    ----------
    metric
        The name of a metric, such as "auc".
    target_error
        Root mean square error to reach; left out where records and epsilon are given.
    records
        How many records the sites have together.
    epsilon
        The whole budget; "secagg" has none.
    privacy
        "secagg", "distributed" or "local".
    scores
        What you expect of the scores: share of positives, AUC and over-confidence.

    Returns
    -------
    StudyPlan
        The study that answers the question, with others around it.

    Raises
    ------
    InputError
        If more than one of the three is left out.

    Examples
    --------
    >>> from fedcalib.workflows import plan
    >>> found = plan("accuracy", records=1000, epsilon=1.0)
    >>> found.enough, 0.01 < found.forecast.error < 0.1
    (True, True)
    """
    study = Study(metric, privacy, scores or ScoreModel())
    return StudyPlan(study, _solved(study, target_error, records, epsilon), target_error)


def _solved(study: Study, target: float | None, records: int | None, epsilon: float | None) -> Forecast:
    if records is not None and (epsilon is not None or study.privacy == "secagg"):
        return study.forecast(records, epsilon)
    if target is None:
        raise InputError("Expected a target error (--target-error), or both --records and --epsilon, found neither.")
    if records is not None:
        return study.epsilon_for(target, records)
    return study.records_for(target, epsilon)


@final
@dataclass(frozen=True, repr=False)
class StudyPlan(WorkflowResult):
    """A study that was planned: what it would be off by, and whether that is enough."""

    command: ClassVar[str] = "plan"
    study: Study
    forecast: Forecast
    target_error: float | None = None
    evidence: Trail = field(default_factory=Trail)  # empty: a plan reads no records
    call: str = field(default_factory=lambda: call("plan(...) in Python"))  # the command or call that made it

    @property
    def enough(self) -> bool:
        """Whether the figure would nearly always be given, and the target error reached."""
        found = self.forecast
        return found.enough and (self.target_error is None or found.error <= _TOLERANCE * self.target_error)

    @property
    def verdict(self) -> str:
        """The answer in a sentence."""
        found, metric = self.forecast, self.study.metric
        budget = "" if found.epsilon is None else f" at epsilon = {found.epsilon:.3g}"
        size = f"{found.records:,} records{budget} under '{self.study.privacy}'"
        if not found.enough:
            return f"Not enough data: with {size}, {metric} drowns in noise in {found.refused:.0%} of runs."
        if not self.enough:
            return f"Not enough data: even {size} leave {metric} off by {found.error:.2g}, not {self.target_error:g}."
        told = "" if found.epsilon is None else ", which an evaluation counts if it is told the number of records"
        table = f"{found.resolution.cells:,} cells{told}"
        return f"{size} leave {metric} off by {found.error:.2g} (root mean square), with a table of {table}."

    @cached_property
    def around(self) -> tuple[Forecast, ...]:
        """Smaller and larger studies, more roughly."""
        found = self.forecast
        sizes = sorted({max(round(found.records * factor), _FEWEST) for factor in _SIZES})
        budgets = [None] if found.epsilon is None else [found.epsilon * factor for factor in _EPSILONS]
        return tuple(self._near(size, budget) for budget in budgets for size in sizes)

    def _near(self, records: int, epsilon: float | None) -> Forecast:
        """The answer itself, or a rougher forecast of another study."""
        if (records, epsilon) == (self.forecast.records, self.forecast.epsilon):
            return self.forecast
        return self.study.forecast(records, epsilon, rough=True)

    def to_json(self) -> dict[str, Any]:
        """The plan as plain data, as `fedcalib plan --format json` prints it."""
        privacy = {"model": self.study.privacy, "epsilon": self.forecast.epsilon}
        return {
            "command": self.command,
            "metric": self.study.metric,
            "privacy": {**privacy, "simulation": True, "statement": _STATEMENT},
            "warnings": [] if self.enough else [self.verdict],
            "target_error": self.target_error,
            **_row(self.forecast),
            "enough": self.enough,
            "verdict": self.verdict,
            "around": [_row(forecast) for forecast in self.around],
        }

    def to_frame(self) -> Any:
        """A pandas frame with one row per study around the answer."""
        return documents.frame([_row(forecast) for forecast in self.around])

    @property
    def headline(self) -> str:
        """The answer in a sentence."""
        return self.verdict

    @property
    def sentences(self) -> tuple[str, ...]:
        """That nobody was asked."""
        return (_STATEMENT,)

    def tables(self) -> list[documents.TextTable]:
        """The plan for people."""
        rows = tuple(_cells(forecast) for forecast in self.around)
        title = f"Error of {self.study.metric} around that"
        around = documents.TextTable(title, ("records", "epsilon", "error"), rows)
        return [around, documents.TextTable("", ("", ""), (("verdict", self.verdict),))]

    def picture(self) -> Picture:
        """The error against the number of records, one line per epsilon."""
        shown = [one for one in self.around if one.enough]
        lines = []
        for epsilon in dict.fromkeys(one.epsilon for one in self.around):
            own = [one for one in shown if one.epsilon == epsilon]
            label = "exact" if epsilon is None else f"epsilon = {epsilon:.3g}"
            lines.append(PlotLine(label, [one.records for one in own], [one.error for one in own]))
        metric = self.study.metric
        return trade_off(lines, "records", f"error of {metric}", f"Error of {metric}, {self.study.privacy}")

    def plot(self, path: Path | str | None = None) -> Any:
        """The picture, which shows itself in a notebook; with a path, it is written there as SVG or as an HTML page."""
        if path is None:
            return self.picture()
        return self.report(path) if Path(path).suffix.lower() in (".html", ".htm") else self.picture().save(path)

    def contents(self, about: About = UNKNOWN) -> Page:
        """The contents of the report."""
        study = self.study.scores
        rows = tuple((cells[0], tuple(map(Said, cells[1:]))) for cells in map(_cells, self.around))
        table = PageTable("Smaller and larger studies", ("records", "epsilon", "error"), rows)
        step = (
            "Agree on this size and epsilon with the sites."
            if self.enough
            else "Plan more records or a larger epsilon."
        )
        return Page(
            title=f"A study of {self.study.metric}, planned",
            asked=f"How precisely can {self.study.metric} be measured under '{self.study.privacy}'?",
            summary=(self.verdict,),
            next_steps=(step,),
            facts=_stated(about, self.call),
            privacy=(_STATEMENT,),
            sections=(Section("Error by number of records", (self.picture(),), (table,)),),
            warnings=("The study was simulated with scores of the stated shape; real scores may differ.",),
            provenance={**versions(), "scores": repr(study), "target error": self.target_error},
            data=documents.text(self.to_json()),
        )

    def files(self, about: About = UNKNOWN) -> dict[str, bytes]:
        """The plan, its page and its picture."""
        page = self.contents(about)
        contents = (page.data, render(page), self.picture().standalone())
        return {name: one.encode() for name, one in zip(NAMES, contents, strict=True)}


def _stated(about: About, run: str) -> dict[str, str]:
    """The facts of the page; a plan has no data and no intervals, and names a classifier only if there is one."""
    left_out = {"Data period", "Intervals"} | (set() if about.classifier else {"Classifier"})
    return {name: text for name, text in stated(about, run).items() if name not in left_out}


def _cells(found: Forecast) -> tuple[str, ...]:
    epsilon = "-" if found.epsilon is None else f"{found.epsilon:.3g}"
    return f"{found.records:,}", epsilon, f"{found.error:.2g}" if found.enough else "drowned"


def _row(found: Forecast) -> dict[str, Any]:
    return {
        "records": found.records,
        "epsilon": found.epsilon,
        "error": found.error if found.error == found.error else None,
        "refused": found.refused,
        "arity": 2 if found.resolution.tree else found.resolution.cells,
        "height": found.resolution.cells.bit_length() - 1 if found.resolution.tree else 1,
        "buckets": found.resolution.cells,
    }
