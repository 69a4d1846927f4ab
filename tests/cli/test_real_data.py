"""From the shell on real data: four hospitals, and one and a half million flights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedcalib import metrics
from tests.cli.conftest import Shell


@pytest.fixture
def hearts(shared: Path, home: Path) -> Path:
    """Score three hospitals' patients with a model of the fourth: Cleveland's, by logistic regression."""
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    table = pd.read_csv(shared / "heart_disease_4sites" / "heart_disease.csv")
    features = table.drop(columns=["site", "num", "label"])
    cleveland = table.site == "cleveland"
    model = make_pipeline(SimpleImputer(strategy="median"), StandardScaler(), LogisticRegression(C=1.0))
    model.fit(features[cleveland], table.label[cleveland])
    scored = table[["site", "label"]].assign(score=model.predict_proba(features)[:, 1])
    scored[~cleveland].to_csv(home / "hearts.csv", index=False)
    return home / "hearts.csv"


@pytest.mark.shared
def test_three_hospitals_are_calibrated_and_measured(shell: Shell, hearts: Path) -> None:
    words = (
        "calibrate",
        hearts,
        "--method",
        "platt-scaling",
        "--privacy",
        "secagg",
        "--out",
        "out",
        "--simulate-seed",
        "1",
    )
    said = shell(*words, "--format", "json")
    assert said.code == 0, said.err
    assert (said.json["sites"], said.json["records"]) == (3, 617)
    assert said.json["after"]["nll"]["value"] < said.json["before"]["nll"]["value"]
    assert said.json["after"]["ece"]["value"] < said.json["before"]["ece"]["value"]
    evaluated = shell("evaluate", hearts, "--privacy", "open", "--format", "json").json
    assert [row["site"] for row in evaluated["per_site"]] == ["hungarian", "switzerland", "va"]
    table = pd.read_csv(hearts)
    assert evaluated["metrics"]["ece"]["value"] == pytest.approx(metrics.binary_ece(table.score, table.label), abs=1e-6)


@pytest.mark.shared
@pytest.mark.slow
def test_flights_are_calibrated_under_privacy_in_seconds(shell: Shell, shared: Path) -> None:
    flights = shared / "flights_scored" / "flights_scored.parquet"
    words = ("--site", "origin", "--privacy", "distributed", "--epsilon", "1", "--simulate-seed", 1, "--format", "json")
    said = shell("calibrate", flights, "--method", "fed-bin", "--out", "out", *words)
    assert said.code == 0, said.err
    assert said.json["records"] is None
    before, after = (said.json[when]["ece"]["value"] for when in ("before", "after"))
    assert 0.03 < before < 0.04
    assert after < 0.01
    table = pd.read_parquet(flights)
    truth = metrics.binary_ece(table.score.to_numpy().astype(np.float64), table.label)
    measured = shell("evaluate", flights, *words).json["metrics"]["ece"]
    assert measured["low"] <= truth <= measured["high"]
    assert measured["value"] == pytest.approx(truth, abs=0.002)


@pytest.mark.slow
def test_the_demo_speaks_json_too(shell: Shell) -> None:
    said = shell("demo", "flights", "--format", "json", "--simulate-seed", "1", "--out", "demo")
    assert said.code == 0, said.err
    assert said.json["schema_version"] == 1
    assert Path("demo/report.html").is_file()
