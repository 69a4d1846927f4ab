"""The demo tells the truth about a real drift, and leaves a report behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import flights
from fedcalib.cli.app import run
from fedcalib.randomness import Simulated
from story import tell


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


def test_the_command_writes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "flights", "--out", str(tmp_path), "--simulate-seed", "0"]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "Sixteen airlines, one calibrator, nothing pooled" in page and "simulation" in page.lower()
    assert json.loads((tmp_path / "result.json").read_text())["airlines"][-1] == {"carrier": "OO", "gap": None}
    assert (tmp_path / "reliability.svg").read_text().startswith("<svg")
    assert "Privacy: Simulation" in capsys.readouterr().out
