from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedcalib as fc
from fedcalib import metrics
from tests.cli.conftest import Shell


@pytest.mark.parametrize("model", [("secagg",), ("distributed", "--epsilon", 4), ("local", "--epsilon", 40), ("open",)])
def test_a_binary_classifier_gets_its_curves(shell: Shell, scores: Path, home: Path, model: tuple[object, ...]) -> None:
    said = shell(
        "evaluate", scores, "--privacy", *model, "--out", home / "report", "--simulate-seed", 3, "--format", "json"
    )
    assert said.code == 0, said.err
    names = ["report.html", "roc.svg", "pr.svg", "decision.svg", "reliability.svg", "performance.json", "result.json"]
    assert sorted(path.name for path in (home / "report").iterdir()) == sorted(names)
    assert set(said.json["files"]) == {"report", "result", "roc", "pr", "decision", "reliability", "performance"}
    kept = fc.load(home / "report" / "performance.json")
    table = pd.read_csv(scores)
    found = said.json["metrics"]["auc"]
    assert kept.min_count == (11 if model[0] in ("secagg", "open") else 0), "exact tables are written with merged cells"
    if found is not None:
        assert found == pytest.approx(kept.auc.to_json())
        assert found["low"] <= metrics.roc_auc(table.score, table.label) <= found["high"]
    page = (home / "report" / "report.html").read_text()
    assert "Precision and recall" in page
    assert "Decision curve" in page


@pytest.mark.parametrize("model", [("secagg",), ("distributed", "--epsilon", 1)])
def test_writing_a_report_changes_nothing_that_is_asked(
    shell: Shell, scores: Path, home: Path, model: tuple[object, ...]
) -> None:
    words = ("evaluate", scores, "--privacy", *model, "--simulate-seed", 3, "--format", "json")
    plain = shell(*words).json
    written = shell(*words, "--out", home / "report").json
    assert written.pop("files")
    assert written.pop("replayed"), "it is the same command"
    assert not plain.pop("replayed")
    assert written == plain


def test_decisions_are_measured_at_the_chosen_threshold(shell: Shell, scores: Path) -> None:
    table = pd.read_csv(scores)
    said = shell("evaluate", scores, "--privacy", "secagg", "--threshold", 0.2, "--format", "json").json
    truth = metrics.confusion(table.score, table.label, 0.2)
    assert said["threshold"] == 0.2
    assert said["metrics"]["sensitivity"]["value"] == pytest.approx(float(truth.recall))
    assert said["metrics"]["ppv"]["value"] == pytest.approx(float(truth.precision))
    target = shell("evaluate", scores, "--privacy", "secagg", "--threshold-for", "sensitivity=0.9", "--format", "json")
    chosen = target.json["threshold"]
    assert 0.9 <= (table.score[table.label == 1] >= chosen).mean() < 0.91
    assert target.json["metrics"]["sensitivity"]["value"] == pytest.approx(
        float(metrics.confusion(table.score, table.label, chosen).recall), abs=1e-6
    )
    assert any("chosen from the released table" in text for text in target.json["warnings"])
    benefit = shell("evaluate", scores, "--threshold-for", "net-benefit", "--format", "json").json
    assert benefit["metrics"]["net_benefit"]["value"] > 0
    for words in (("--threshold", 1.5), ("--threshold-for", "recall"), ("--scores-are", "0.1,x")):
        refused = shell("evaluate", scores, *words)
        assert refused.code == 2
        assert "Expected" in refused.err


def test_declared_scores_are_known_as_ties(shell: Shell, home: Path) -> None:
    rng = np.random.default_rng(0)
    score = rng.integers(1, 10, 4000) / 10
    pd.DataFrame({"site": np.arange(4000) % 5, "score": score, "label": (rng.random(4000) < score).astype(int)}).to_csv(
        home / "tied.csv", index=False
    )
    words = (
        "evaluate",
        "tied.csv",
        "--privacy",
        "distributed",
        "--epsilon",
        1,
        "--simulate-seed",
        1,
        "--format",
        "json",
    )
    listed = shell(*words, "--scores-are", ",".join(f"{k / 10}" for k in range(1, 10))).json["metrics"]["auc"]
    plain = shell(*words, "--records-about", 100_000).json["metrics"]["auc"]
    assert listed["high"] - listed["low"] < plain["high"] - plain["low"]


def test_more_than_two_classes_get_a_report(shell: Shell, home: Path) -> None:
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), 900)
    label = (rng.random((900, 1)) > probs.cumsum(axis=1)).sum(axis=1)
    frame = pd.DataFrame(probs, columns=["p_0", "p_1", "p_2"]).assign(site=np.arange(900) % 4, label=label)
    frame.to_csv(home / "classes.csv", index=False)
    said = shell("evaluate", "classes.csv", "--privacy", "secagg", "--out", "report", "--format", "json")
    assert said.code == 0, said.err
    assert set(said.json["files"]) == {"report", "reliability", "performance", "result"}
    assert said.json["threshold"] is None


def test_the_budget_covers_metrics_and_curves(shell: Shell, scores: Path, home: Path) -> None:
    said = shell(
        "evaluate",
        scores,
        "--privacy",
        "distributed",
        "--epsilon",
        2,
        "--out",
        home / "r",
        "--dry-run",
        "--format",
        "json",
    )
    assert said.code == 0, said.err
    assert said.json["privacy"]["epsilon"] == 2.0
    assert not (home / "r").exists()
