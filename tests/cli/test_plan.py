from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Shell


def test_solves_for_records_and_draws_the_curve(shell: Shell, home: Path) -> None:
    said = shell(
        "plan",
        "--metric",
        "auc",
        "--target-error",
        0.02,
        "--epsilon",
        1,
        "--plot",
        home / "plan.svg",
        "--format",
        "json",
    )
    assert said.code == 0
    assert said.json["enough"] is True
    assert 100 < said.json["records"] < 10_000
    assert said.json["error"] < 0.025
    assert said.json["buckets"] == said.json["arity"] ** said.json["height"]
    assert (home / "plan.svg").read_text().startswith("<svg")


def test_solves_for_epsilon(shell: Shell) -> None:
    said = shell(
        "plan",
        "--metric",
        "accuracy",
        "--target-error",
        0.02,
        "--records",
        20_000,
        "--privacy",
        "local",
        "--format",
        "json",
    )
    assert said.code == 0
    assert 0.01 < said.json["epsilon"] < 50


def test_says_when_there_is_not_enough_data(shell: Shell) -> None:
    said = shell("plan", "--metric", "auc", "--records", 100, "--epsilon", 0.1, "--privacy", "local")
    assert said.code == 0
    assert "Not enough data" in said.out


def test_asks_for_what_it_needs(shell: Shell) -> None:
    assert shell("plan", "--metric", "auc").code == 2
    assert "target-error" in shell("plan", "--metric", "auc").err
    assert shell("plan", "--metric", "cwece", "--target-error", 0.01).code == 2
    assert shell("plan", "--metric", "auc", "--target-error", -1, "--epsilon", 1).code == 2
