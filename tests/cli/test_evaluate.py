from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedcalib import metrics
from fedcalib.artifacts.scaling import Temperature
from tests.cli.conftest import Shell, counts, overconfident


def test_the_metrics_are_those_of_the_pooled_records(shell: Shell, scores: Path) -> None:
    said = shell("evaluate", scores, "--privacy", "secagg", "--format", "json")
    assert said.code == 0, said.err
    table = pd.read_csv(scores)
    probs = np.stack([1 - table.score, table.score], axis=1)
    found = said.json["metrics"]
    assert found["accuracy"]["value"] == pytest.approx(metrics.accuracy(probs, table.label))
    assert found["ece"]["value"] == pytest.approx(metrics.binary_ece(table.score, table.label), abs=1e-6)
    assert found["brier"]["value"] == pytest.approx(metrics.brier(probs, table.label) / 2, abs=1e-6)
    assert found["auc"]["value"] == pytest.approx(metrics.roc_auc(table.score, table.label), abs=2e-3)
    for measured in found.values():
        assert measured["low"] <= measured["value"] <= measured["high"]
    assert said.json["per_site"] is None
    assert any("Single sites are left out" in warning for warning in said.json["warnings"])


def test_a_calibrator_is_applied_first(shell: Shell, scores: Path) -> None:
    Temperature(2.5).save("calibrator.json")
    plain = shell("evaluate", scores, "--format", "json").json
    soft = shell("evaluate", scores, "--calibrator", "calibrator.json", "--format", "json").json
    assert soft["metrics"]["nll"]["value"] < plain["metrics"]["nll"]["value"]
    assert soft["metrics"]["accuracy"]["value"] == pytest.approx(plain["metrics"]["accuracy"]["value"])


def test_open_data_shows_sites_that_are_large_enough(shell: Shell, home: Path) -> None:
    table = overconfident(600, 3, 0)
    small = overconfident(10, 1, 1).assign(site="tiny")
    pd.concat([table, small]).to_csv(home / "all.csv", index=False)
    said = shell("evaluate", "all.csv", "--privacy", "open", "--format", "json")
    rows = {row["site"]: row for row in said.json["per_site"]}
    assert set(rows) == {"site-0", "site-1", "site-2", "tiny"}
    assert rows["tiny"] == {"site": "tiny", "records": None, "metrics": None}
    assert rows["site-1"]["records"] is None, "the next larger site is withheld: the rest would tell the small one"
    own = table[table.site == "site-2"]
    assert rows["site-2"]["records"] == len(own)
    assert rows["site-2"]["metrics"]["accuracy"]["value"] == pytest.approx(((own.score > 0.5) == own.label).mean())
    assert any("2 of 4 sites are not shown: fewer than 11 records" in warning for warning in said.json["warnings"])
    assert "site-2" in said.err
    assert "tiny" not in said.err


@pytest.mark.parametrize("model", ["laplace", "local"])
def test_sites_that_hide_themselves_are_shown_at_no_extra_cost(shell: Shell, home: Path, model: str) -> None:
    large = overconfident(60_000, 4, 0)
    pd.concat([large, overconfident(3, 1, 1).assign(site="tiny")]).to_parquet(home / "all.parquet")
    words = ("evaluate", "all.parquet", "--privacy", model, "--epsilon", "8", "--simulate-seed", 1, "--format", "json")
    document = shell(*words).json  # with a seed: three records pass for eleven once in a while, as they should
    assert document["privacy"]["epsilon"] == 8.0
    rows = {row["site"]: row for row in document["per_site"]}
    assert rows["tiny"]["metrics"] is None
    assert {row["records"] for row in rows.values()} == {None}
    for site in (f"site-{k}" for k in range(4)):
        own = large[large.site == site]
        truth = ((own.score > 0.5) == own.label).mean()
        assert abs(rows[site]["metrics"]["accuracy"]["value"] - truth) < 0.05
    truth = ((large.score > 0.5) == large.label).mean()
    assert abs(document["metrics"]["accuracy"]["value"] - truth) < 0.02
    again = shell(*words).json
    assert again["replayed"] is True
    assert again["per_site"] == document["per_site"]
    assert again["metrics"] == document["metrics"]


def test_counts_are_found_where_they_are_told() -> None:
    assert counts('{"records": 3847,\n "sites": 5}') == {3847, 5}
    assert counts("3,847 records at 5 sites. In all 3844.") == {3847, 5, 3844}
    assert counts("0.6384479 1.5e-3844 p3844") == set()


def test_a_private_evaluation_tells_no_counts(shell: Shell, scores: Path) -> None:
    said = shell("evaluate", scores, "--privacy", "distributed", "--epsilon", "4", "--format", "json")
    document = said.json
    assert (document["sites"], document["records"], document["per_site"]) == (None, None, None)
    assert document["privacy"]["epsilon"] == 4.0
    assert 3847 not in counts(said.out + said.err)
    table = pd.read_csv(scores)
    truth = ((table.score > 0.5) == table.label).mean()
    assert abs(document["metrics"]["accuracy"]["value"] - truth) < 0.1


def test_the_usual_clients_own_error_is_measured_with_the_rest(shell: Shell, scores: Path, home: Path) -> None:
    table = pd.read_csv(scores)
    by_hand = [
        metrics.ece(np.stack([1 - own.score, own.score], axis=1), own.label.to_numpy())
        for _, own in table.groupby("site")
        if len(own) >= 10
    ]
    said = shell("evaluate", scores, "--privacy", "secagg", "--per-client", "--format", "json")
    assert said.json["per_client"]["mean"]["value"] == pytest.approx(np.mean(by_hand), abs=1e-6)
    assert said.json["per_client"]["spread"] == pytest.approx(np.std(by_hand), abs=1e-6)
    assert "own ece (top label)" in shell("evaluate", scores, "--privacy", "secagg", "--per-client").out
    both = shell("evaluate", scores, "--privacy", "secagg", "--per-client", "--out", "curves", "--format", "json").json
    assert both["per_client"] == said.json["per_client"]
    assert (home / "curves" / "report.html").exists()
    assert shell("evaluate", scores, "--privacy", "secagg", "--format", "json").json["per_client"] is None


def test_clients_own_errors_are_bounded_for_clients_or_refused(shell: Shell, scores: Path) -> None:
    whole = ("--privacy", "user", "--delta", "1e-6", "--clip", "200", "--epsilon", "4", "--per-client")
    said = shell("evaluate", scores, *whole, "--simulate-seed", 1, "--format", "json")
    assert said.code == 0, said.err
    assert said.json["privacy"]["unit"] == "client"
    assert said.json["privacy"]["epsilon"] == 4.0
    assert said.json["per_client"]["mean"] is None  # of a handful of clients noise leaves nothing, and that is said
    assert any("number is within its noise" in warning for warning in said.json["warnings"])
    for model in ("distributed", "laplace", "local"):
        refused = shell("evaluate", scores, "--privacy", model, "--epsilon", "4", "--per-client")
        assert refused.code == 2
        assert "which protects records" in refused.err
    assert "without --by" in shell("evaluate", scores, "--per-client", "--by", "day").err


def test_dry_run_asks_nothing(shell: Shell, scores: Path, home: Path) -> None:
    said = shell(
        "evaluate",
        scores,
        "--privacy",
        "laplace",
        "--epsilon",
        "4",
        "--dry-run",
        "--format",
        "json",
        "--simulate-seed",
        1,
    )
    assert said.code == 0, said.err
    assert said.json["dry_run"] is True
    assert said.json["privacy"]["simulation"] is True
    assert [len(query["blocks"]) for query in said.json["phases"][0]["queries"]] == [1]
    assert not (home / "state").exists()


def test_methods_lists_what_there_is(shell: Shell, home: Path) -> None:
    said = shell("methods", "--format", "json")
    assert said.code == 0
    names = [entry["name"] for entry in said.json["methods"]]
    assert {"fed-bin", "one-shot-temperature"} <= set(names)
    assert [entry["name"] for entry in said.json["privacy"]][:3] == ["open", "secagg", "distributed"]
    assert all(entry["summary"].endswith(".") for entry in said.json["methods"])
    assert "fed-bin" in shell("methods").out
    assert json.dumps(said.json)


def test_the_version_is_told(shell: Shell, home: Path) -> None:
    from fedcalib import __version__

    assert shell("--version").out.strip() == __version__
