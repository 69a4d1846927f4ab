"""Figures of a binary score equal those of rms::val.prob in R, stored with their script in tests/reference."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import fedcalib as fc

FOLDER = Path(__file__).resolve().parents[1] / "reference"
TABLE = np.loadtxt(FOLDER / "scores.csv", delimiter=",", skiprows=1)
SCORES, LABELS = TABLE[:, 0], TABLE[:, 1].astype(np.int64)
with (FOLDER / "val_prob.csv").open(newline="") as stored:
    EXPECTED = {row["name"]: float(row["value"].replace("NA", "nan")) for row in csv.DictReader(stored)}

LINE = fc.metrics.calibration_line(SCORES, LABELS)
SAME = {  # one definition in both
    "C (ROC)": fc.metrics.roc_auc(SCORES, LABELS),
    "Dxy": 2 * fc.metrics.roc_auc(SCORES, LABELS) - 1,
    "Brier": fc.metrics.binary_brier(SCORES, LABELS),
    "Slope": LINE.slope,
    "Intercept": LINE.intercept,
    "InTheLarge": LINE.in_the_large,
}
DISTANCES = fc.metrics.smooth_distances(SCORES, LABELS)
SMOOTH = {"ICI": DISTANCES.mean(), "E50": np.median(DISTANCES), "E90": np.quantile(DISTANCES, 0.9)}
# the figures that an evaluation states, by the names of the metrics; all but Brier are read from cells of log-odds
STATED = {
    "brier": ("Brier", 1e-9),
    "auc": ("C (ROC)", 5e-4),
    "slope": ("Slope", 5e-4),
    "intercept": ("Intercept", 5e-4),
    "calibration_in_the_large": ("InTheLarge", 5e-4),
}


@pytest.mark.parametrize("name", SAME)
def test_the_definitions_agree(name: str) -> None:
    assert SAME[name] == pytest.approx(EXPECTED[name], abs=1e-8)


@pytest.mark.parametrize("name", SMOOTH)
def test_distances_from_the_same_spline_differ_by_the_quantiles_at_its_knots_alone(name: str) -> None:
    assert SMOOTH[name] == pytest.approx(EXPECTED[f"Spline{name}"], abs=3e-4)


def test_val_prob_smooths_by_lowess_and_we_by_a_spline() -> None:
    assert SMOOTH["ICI"] == pytest.approx(EXPECTED["Eavg"], abs=0.01)
    assert SMOOTH["E90"] == pytest.approx(EXPECTED["E90"], abs=0.01)


@pytest.mark.parametrize("name", STATED)
def test_an_exact_evaluation_states_them(name: str) -> None:
    federation = fc.Federation.of([fc.Records.of_scores(SCORES[k::4], LABELS[k::4]) for k in range(4)])
    found = fc.run(fc.FederatedMetrics(), fc.InProcess(federation), fc.Open()).artifact
    expected, tolerance = STATED[name]
    assert found.measure(name).value == pytest.approx(EXPECTED[expected], abs=tolerance)
