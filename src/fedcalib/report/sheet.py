"""A TRIPOD+AI sheet and a model card: the items that a run can fill in are filled in, the others are marked as blank.

Items follow Collins et al., "TRIPOD+AI statement", BMJ 2024;385:e078378, in short words of our own, and Mitchell et
al., "Model cards for model reporting", 2019.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from fedcalib.report.canvas import clean
from fedcalib.report.page import Page, document_html
from fedcalib.report.tables import count, metric_rows

BLANK: Final = "[to be filled in by the authors]"
# fmt: off
_TRIPOD: Final = (
    ("1", "Title: development or evaluation, target population and outcome", "title"),
    ("2", "Abstract", ""),
    ("3a", "Healthcare context and the reason for the model", ""),
    ("3b", "Target population, intended purpose and users", "intended_use"),
    ("3c", "Known health inequalities between groups", ""),
    ("4", "Objectives: development or evaluation", "asked"),
    ("5a", "Sources of data", "sources"),
    ("5b", "Dates of the data", "period"),
    ("6a", "Setting: number and location of centres", "sites"),
    ("6b", "Eligibility of participants", ""),
    ("6c", "Treatments received", ""),
    ("7", "Data preparation and checks", "preparation"),
    ("8a", "Outcome: definition and time", ""),
    ("8b", "Outcome: who assessed it", ""),
    ("8c", "Outcome: blinding of the assessment", ""),
    ("9a", "Predictors: choice", ""),
    ("9b", "Predictors: definition and measurement", ""),
    ("9c", "Predictors: who assessed them", ""),
    ("10", "Sample size", "records"),
    ("11", "Missing data", "missing"),
    ("12a", "Analysis: use and partition of the data", "partition"),
    ("12b", "Analysis: handling of predictors", ""),
    ("12c", "Analysis: type of model and how it was built", "method"),
    ("12d", "Analysis: differences between centres", "between"),
    ("12e", "Analysis: measures of performance", "measures"),
    ("12f", "Analysis: updating of the model", "updating"),
    ("12g", "Analysis: how predictions are computed", ""),
    ("13", "Class imbalance", "imbalance"),
    ("14", "Fairness: approaches and reasons", "fairness"),
    ("15", "Output of the model and thresholds", "output"),
    ("16", "Differences between development and evaluation data", ""),
    ("17", "Ethical approval and consent", ""),
    ("18a", "Funding", ""),
    ("18b", "Conflicts of interest", ""),
    ("18c", "Protocol", ""),
    ("18d", "Registration", ""),
    ("18e", "Sharing of data", "privacy"),
    ("18f", "Sharing of code", "code"),
    ("19", "Involvement of patients and the public", ""),
    ("20a", "Flow of participants", "records"),
    ("20b", "Characteristics of participants", ""),
    ("20c", "Comparison with the development data", ""),
    ("21", "Participants and events in each analysis", "events"),
    ("22", "Full model, so that it can be used", "method"),
    ("23a", "Performance with intervals, also for groups", "performance"),
    ("23b", "Differences of performance between centres", "between"),
    ("24", "Results of updating the model", "updating"),
    ("25", "Interpretation, including fairness", "found"),
    ("26", "Limitations", "limitations"),
    ("27a", "Handling of poor or missing input when used", ""),
    ("27b", "Expertise that users need", ""),
    ("27c", "Next steps for research", "next"),
)
_CARD: Final = (
    ("Classifier", "Name and version", "classifier"),
    ("Classifier", "Contact", "contact"),
    ("Intended use", "Purpose and users", "intended_use"),
    ("Intended use", "Uses that are out of scope", ""),
    ("Factors", "Groups and sites that were looked at", "fairness"),
    ("Metrics", "What was measured", "measures"),
    ("Evaluation data", "Sources", "sources"),
    ("Evaluation data", "Period", "period"),
    ("Evaluation data", "Records and sites", "records"),
    ("Training data", "Sources and period", ""),
    ("Results", "Performance", "performance"),
    ("Results", "Findings", "found"),
    ("Ethics", "Privacy of the people in the data", "privacy"),
    ("Ethics", "Other risks and harms", ""),
    ("Caveats", "Limitations", "limitations"),
    ("Caveats", "What to do next", "next"),
)
# fmt: on


@final
@dataclass(frozen=True)
class SheetItem:
    """One item of a sheet: its number or heading, the question, and the answer; empty where the authors have to."""

    key: str
    question: str
    answer: str

    @property
    def blank(self) -> bool:
        """Whether the authors have to fill it in."""
        return not self.answer


@final
@dataclass(frozen=True)
class Sheet:
    """A model card and the TRIPOD+AI items of one report.

    Parameters
    ----------
    title
        Title of the report.
    date
        Its date.
    card, tripod
        The items.
    """

    title: str
    date: str
    card: tuple[SheetItem, ...]
    tripod: tuple[SheetItem, ...]

    @property
    def filled(self) -> int:
        """Number of TRIPOD+AI items that are filled in."""
        return sum(not item.blank for item in self.tripod)

    def to_markdown(self) -> str:
        """The sheet as Markdown."""
        parts = [f"# {_line(self.title)}: model card and TRIPOD+AI sheet", f"Date: {self.date}. {self._note}"]
        for title, heads, items in self._tables:
            rows = [f"| {_line(one.key)} | {_line(one.question)} | {_line(one.answer or BLANK)} |" for one in items]
            parts.append("\n".join([f"## {title}", "", f"| {' | '.join(heads)} |", "|---|---|---|", *rows]))
        return clean("\n\n".join(parts)) + "\n"

    def to_html(self) -> str:
        """The sheet as one self-contained HTML page."""
        return document_html(f"{self.title}: model card and TRIPOD+AI sheet", f"Date: {self.date}. {self._note}", [
            {"title": title, "heads": heads, "rows": [(one.key, one.question, one.answer, BLANK) for one in items]}
            for title, heads, items in self._tables
        ])  # fmt: skip

    @property
    def _note(self) -> str:
        return (
            f"{self.filled} of {len(self.tripod)} TRIPOD+AI items were filled in from the run; check them. The others "
            "are blank. Items are in short words: read them beside the checklist of the TRIPOD+AI statement."
        )

    @property
    def _tables(self) -> tuple[tuple[str, tuple[str, ...], tuple[SheetItem, ...]], ...]:
        return (
            ("Model card", ("part", "question", "answer"), self.card),
            ("TRIPOD+AI", ("item", "what to report", "answer"), self.tripod),
        )


def _line(text: str) -> str:
    """A text for a cell of a Markdown table: one line, in which nothing is markup."""
    if text == BLANK:
        return text
    escaped = "".join(f"\\{letter}" if letter in "\\|`*_[]" else letter for letter in " ".join(text.split()))
    return escaped.replace("<", "&lt;").replace(">", "&gt;")


def sheet(page: Page, given: Mapping[str, str], date: str) -> Sheet:
    """The sheet of a report; `given` holds what the people behind the classifier state, by name."""
    known = {**_answers(page), **{name: text for name, text in given.items() if text}}
    card, tripod = (
        tuple(SheetItem(key, question, known.get(name, "")) for key, question, name in items)
        for items in (_CARD, _TRIPOD)
    )
    return Sheet(page.title, date, card, tripod)


def _answers(page: Page) -> dict[str, str]:
    """What a report answers, by name."""
    rows = metric_rows(page.metrics)
    parts = [section.title for section in page.sections]
    values = [f"{row.name} {row.only.value} ({row.only.interval})" for row in rows[:8] if row.only.interval]
    changed = [f"{row.name}: {row.verdict}" for row in rows if row.verdict][:8]
    found = {
        "title": page.title,
        "asked": page.asked,
        "sources": str(page.provenance.get("files", "")),
        "sites": "" if page.clients is None else f"Sites: {count(page.clients)}",
        "records": "" if page.records is None else f"Records: {count(page.records)}",
        "missing": " ".join(text for text in page.warnings if "left out" in text),
        "partition": str(page.facts.get("Measured on", "")),
        "method": str(page.provenance.get("method", "")),
        "between": "See the section by site of the report." if "By site" in parts or page.sites else "",
        "measures": f"{', '.join(row.name for row in rows)}; with 95% intervals" if rows else "",
        "updating": "; ".join(changed),
        "fairness": f"Measured {', '.join(part[:1].lower() + part[1:] for part in parts)}." if parts else "",
        "output": _output(page),
        "privacy": " ".join((*page.privacy, *page.meaning)),
        "code": f"fedcalib {page.facts['fedcalib']}" if "fedcalib" in page.facts else "",
        "performance": "; ".join(values),
        "found": " ".join((*page.summary, *page.gains)),
        "limitations": " ".join(page.warnings),
        "next": " ".join(page.next_steps),
    }
    return {name: text for name, text in found.items() if text}


def _output(page: Page) -> str:
    at = page.facts.get("Threshold of decisions", "")
    return f"A probability. Decisions were measured at a threshold of {at}." if at else ""
