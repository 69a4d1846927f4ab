from __future__ import annotations

from pathlib import Path

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
    assert sorted(path.name for path in (home / "report").iterdir()) == sorted(
        ["report.html", "roc.png", "pr.png", "reliability.png", "curves.json"]
    )
    assert set(said.json["files"]) == {"report", "roc", "pr", "reliability", "curves"}
    kept = fc.load(home / "report" / "curves.json")
    table = pd.read_csv(scores)
    found = said.json["curves"]["figures"]["auc"]
    if found is not None:
        merged = model[0] in ("secagg", "open")  # exact curves are written with merged cells, after the figures
        assert found["value"] == pytest.approx(kept.auc.value, abs=1e-3 if merged else 1e-9)
        assert kept.min_count == (11 if merged else 0)
        assert found["low"] <= metrics.roc_auc(table.score, table.label) <= found["high"]
    page = (home / "report" / "report.html").read_text()
    assert "Precision and recall" in page


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
