"""The demo tells the truth about a real drift, and leaves a report behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedcalib.demo import flights
from fedcalib.demo.run import main
from fedcalib.demo.story import tell
from fedcalib.randomness import Simulated


@pytest.fixture(scope="module")
def scores() -> flights.Scored:
    table = flights.load()
    return flights.scored(flights.train(table), table)


def test_recalibration_repairs_the_drift(scores: flights.Scored) -> None:
    story = tell(scores, randomness=Simulated(0))
    assert story.secagg.before.ece.value == pytest.approx(0.076, abs=0.004)
    assert story.secagg.after.ece.value < 0.03
    assert story.private.after.ece.value < 0.045
    assert story.secagg.after.auc.value == pytest.approx(story.secagg.before.auc.value, abs=1e-3)
    assert story.shifted.ece.value < story.secagg.after.ece.value
    assert story.private.privacy.epsilon == 1.0
    assert [row.carrier for row in story.airlines if not row.shown] == ["OO"]  # five flights: guarded


def test_the_report_is_written(tmp_path: Path) -> None:
    said: list[str] = []
    document = main(tmp_path, seed=0, say=said.append)
    assert json.loads((tmp_path / "result.json").read_text()) == document
    assert (
        "late flights" in (tmp_path / "report.html").read_text() or (tmp_path / "report.html").stat().st_size > 50_000
    )
    assert (tmp_path / "reliability.png").read_bytes().startswith(b"\x89PNG")
    assert "simulation" in (tmp_path / "report.html").read_text().lower()
    assert "Privacy:" in said[-1]
