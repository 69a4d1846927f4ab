"""Figures under noise lie where such figures can lie, and a report states when, of what and how certainly."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedcalib as fc
from fedcalib.metrics.table import METRICS
from tests.cli.conftest import Shell, home, overconfident, shell  # noqa: F401 - fixtures
from tests.report.html import Read

RATES = {"accuracy", "auc", "ece", "brier", "sensitivity", "specificity", "ppv", "npv", "f1", "prevalence"}


def scored(records: int, seed: int) -> pd.DataFrame:
    table = overconfident(records, 4, seed)
    return table.assign(day=pd.date_range("2024-01-01", periods=records, freq="2h").date)


@pytest.mark.parametrize("seed", range(3))
def test_noise_moves_no_figure_out_of_its_range(seed: int) -> None:
    found = fc.evaluate(scored(600, seed), fc.DistributedDP(epsilon=0.3), simulate=seed).metrics
    bins = found.reliability()
    inside = (bins.score >= bins.edges[:-1]) & (bins.score <= bins.edges[1:])
    assert inside.all(), "a mean prediction lies inside its bin, so the line never turns back"
    stated = ~np.isnan(bins.rate.value)
    assert ((bins.rate.value[stated] >= 0) & (bins.rate.value[stated] <= 1)).all()
    for name, measured in found.measures().items():
        assert measured.low <= measured.value <= measured.high
        assert name not in RATES or (measured.low >= 0 and measured.high <= 1)
    assert {metric.name for metric in METRICS} >= RATES


def test_a_mean_prediction_over_time_is_a_probability_and_windows_are_dates() -> None:
    frame = scored(2100, 0)
    days = {"start": "2024-01-01", "until": "2024-06-30"}
    done = fc.monitor(frame, fc.DistributedDP(epsilon=1.0), by="month", simulate=0, **days)
    assert [window.label for window in done.windows] == [f"2024-0{month}" for month in range(1, 7)]
    means = [window.signals["confidence"].value for window in done.windows if window.signals]
    assert means and all(0 <= mean <= 1 for mean in means)
    table = done.tables()[0]
    detected = [row[table.columns.index("detectable change")] for row in table.rows]
    assert any("mean prediction" in words for words in detected)
    assert not any("confidence" in words for words in detected)


def test_a_report_states_its_date_classifier_period_level_and_held_out_records(
    shell: Shell,  # noqa: F811
    home: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    overconfident(900, 4, 0).to_csv(home / "scores.csv", index=False)
    facts = ("--classifier", "Heart risk 2.1", "--period", "January to June 2024", "--split-seed", 1)
    command = ("calibrate", "scores.csv", "--method", "platt-scaling", *facts, "--out", "out")
    assert shell(*command).code == 0
    text = " ".join(Read((home / "out" / "report.html").read_text()).text.split())
    held = int(re.search(r"Measured on (\d+) records that were held out", text)[1])  # type: ignore[index]
    assert 200 < held < 340
    for fact in ("Heart risk 2.1", "January to June 2024", "Date of this report 2023-11-14", "Intervals 95%"):
        assert fact in text
    assert "fedcalib calibrate scores.csv --method platt-scaling" in text
