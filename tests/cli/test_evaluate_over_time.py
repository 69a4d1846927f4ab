from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedcalib as fc
from fedcalib.accounting.ledger import Ledger
from tests.cli.conftest import Shell

SIX = ("--from", "100", "--until", "105")


@pytest.fixture
def days(home: Path) -> Path:
    """Six days from day 100 on, at four sites; the odds of a positive fall on the fifth."""
    rng = np.random.default_rng(1)
    n = 9_000
    day = 100 + rng.integers(6, size=n)
    odds = rng.normal(-0.5, 1.0, n)
    shift = np.where(day >= 104, -1.2, 0.0)
    label = (rng.random(n) < 1 / (1 + np.exp(-odds - shift))).astype(int)
    columns = {"site": rng.integers(4, size=n), "score": 1 / (1 + np.exp(-odds)), "label": label, "day": day}
    pd.DataFrame(columns).to_csv(home / "days.csv", index=False)
    return home / "days.csv"


def test_windows_of_time_give_a_drift_chart(shell: Shell, days: Path, home: Path) -> None:
    words = ("evaluate", days, "--by", "day", "--privacy", "distributed", "--epsilon", "2", "--simulate-seed", "1")
    said = shell(*words, *SIX, "--out", "out", "--format", "json")
    assert said.code == 0, said.err
    assert [window["window"] for window in said.json["windows"]] == [f"day {k}" for k in range(1, 7)]
    assert [window["first_day"] for window in said.json["windows"]] == list(range(100, 106))
    assert said.json["alarms"] == ["day 5"]
    table = pd.read_csv(days)
    for window in said.json["windows"]:
        own = table[table.day == window["first_day"]]
        auc = window["metrics"]["auc"]
        assert auc["low"] <= fc.metrics.roc_auc(own.score, own.label) <= auc["high"]
    assert {path.name for path in (home / "out").iterdir()} == {"result.json", "report.html", "drift.svg"}
    assert (home / "out" / "drift.svg").read_text().startswith("<svg")
    assert "ECE" in (home / "out" / "report.html").read_text()


def test_rounds_are_the_latest_windows(shell: Shell, days: Path) -> None:
    said = shell("evaluate", days, "--by", "day", "--rounds", "2", "--format", "json")
    assert said.code == 0, said.err
    assert [window["window"] for window in said.json["windows"]] == ["day 5", "day 6"]
    assert [window["first_day"] for window in said.json["windows"]] == [104, 105]
    text = shell("evaluate", days, "--by", "day", "--rounds", "2")
    assert "day 6" in text.out


def test_one_ledger_pays_for_all_windows_in_parallel(shell: Shell, days: Path) -> None:
    ledger = Ledger("ledger.db")
    ledger.limit("default", 3.0)
    words = ("evaluate", days, "--by", "day", "--privacy", "distributed", "--epsilon", "2", "--ledger", "ledger.db")
    words = (*words, *SIX)
    said = shell(*words, "--format", "json")
    assert said.code == 0, said.err
    assert said.json["privacy"]["epsilon"] == 2.0
    assert "6 windows hold different records" in said.json["privacy"]["statement"]
    assert float(ledger.account("default").epsilon) == 2.0
    again = shell(*words, "--rounds", "3", "--format", "json")
    assert again.code != 0
    assert float(ledger.account("default").epsilon) == 2.0


def test_windows_of_clients_share_the_budget(shell: Shell, days: Path) -> None:
    words = ("evaluate", days, "--by", "day", "--privacy", "user", "--epsilon", "6", "--delta", "1e-5", "--clip", "50")
    said = shell(*words, *SIX, "--dry-run", "--format", "json")
    assert said.code == 0, said.err
    assert said.json["privacy"]["unit"] == "client"
    assert said.json["privacy"]["epsilon"] == pytest.approx(6.0, rel=1e-3)
    assert "Over 6 windows with the same clients" in said.json["privacy"]["statement"]


def test_windows_are_measured_after_a_calibrator(shell: Shell, days: Path, home: Path) -> None:
    from fedcalib.artifacts.scaling import Platt

    Platt(1.0, -1.2).save(home / "calibrator.json")
    plain = shell("evaluate", days, "--by", "day", "--format", "json").json["windows"]
    mapped = shell("evaluate", days, "--by", "day", "--calibrator", "calibrator.json", "--format", "json")
    assert mapped.code == 0, mapped.err
    after = mapped.json["windows"]
    assert after[-1]["metrics"]["ece"]["value"] < 0.5 * plain[-1]["metrics"]["ece"]["value"]
    assert after[0]["metrics"]["ece"]["value"] > plain[0]["metrics"]["ece"]["value"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--rounds", "2"), "--by"),
        (("--by", "day", "--rounds", "0"), "at least one round"),
        (("--by", "day", "--participation", "0.5"), "everyone"),
        (("--by", "day", "--time", "nothing"), "nothing"),
    ],
)
def test_what_makes_no_sense_is_refused(shell: Shell, days: Path, words: tuple[str, ...], text: str) -> None:
    said = shell("evaluate", days, *words)
    assert said.code == 2
    assert text in said.err
