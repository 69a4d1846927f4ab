from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedcalib as fc
from fedcalib.accounting.ledger import Ledger
from fedcalib.cohort import MIN_RECORDS
from fedcalib.data import Columns
from fedcalib.data.reading import read_checked
from tests.cli.conftest import Shell

FIVE = ("--from", "30", "--until", "64")  # five weeks of numbered days


@pytest.fixture
def weeks(home: Path) -> Path:
    """Five weeks from day 30 on, at four sites; the odds of a positive fall in the fourth."""
    rng = np.random.default_rng(0)
    n = 10_000
    day = 30 + rng.integers(35, size=n)
    odds = rng.normal(-0.5, 1.0, n)
    shift = np.where(day >= 51, -1.2, 0.0)
    label = (rng.random(n) < 1 / (1 + np.exp(-odds - shift))).astype(int)
    table = pd.DataFrame(
        {"site": rng.integers(4, size=n), "score": 1 / (1 + np.exp(-odds)), "label": label, "day": day}
    )
    table.to_csv(home / "weeks.csv", index=False)
    return home / "weeks.csv"


def test_a_shift_is_found_and_acted_on(shell: Shell, weeks: Path, home: Path) -> None:
    words = ("monitor", weeks, "--by", "week", "--privacy", "distributed", "--epsilon", "1", "--recalibrate", *FIVE)
    said = shell(*words, "--false-alarms", "0.001", "--out", "out", "--simulate-seed", "1", "--format", "json")
    assert said.code == 0, said.err
    document = said.json
    assert [window["window"] for window in document["windows"]] == [f"week {k}" for k in range(1, 6)]
    assert [window["first_day"] for window in document["windows"]] == [30, 37, 44, 51, 58]
    assert document["alarms"] == ["week 4"]
    assert document["privacy"]["epsilon"] == 1.0
    assert document["recalibration"]["windows"] == 4
    assert set(document["recalibration"]["hurt"]) <= {"week 2", "week 3", "week 4"}
    assert {path.name for path in (home / "out").iterdir()} == {
        "calibrator.json",
        "result.json",
        "report.html",
        "timeline.svg",
    }
    assert json.loads((home / "out" / "result.json").read_text())["alarms"] == ["week 4"]
    assert "week 4" in (home / "out" / "report.html").read_text()
    assert isinstance(fc.load(home / "out" / "calibrator.json"), fc.Calibrator)
    assert "raised an alarm" in said.err


def test_figures_over_windows_are_weighted_by_records_and_windows_say_what_they_detect(
    shell: Shell, weeks: Path, home: Path
) -> None:
    said = shell("monitor", weeks, "--by", "week", "--min-effect", "0.02", "--out", "out", "--format", "json")
    assert said.code == 0, said.err
    table = pd.read_csv(weeks)
    sizes = table.groupby((table["day"] - 30) // 7).size().to_numpy()
    for name, found in said.json["overall"].items():
        values = [window["metrics"][name]["value"] for window in said.json["windows"]]
        assert found["value"] == pytest.approx(np.average(values, weights=sizes), abs=1e-9)
        assert found["low"] < found["value"] < found["high"]
    assert said.json["min_effect"] == 0.02
    for window in said.json["windows"]:
        assert set(window["detectable"]) == set(window["signals"])
        assert min(window["detectable"].values()) > 0.01
    text = shell("monitor", weeks, "--by", "week", "--min-effect", "0.02")
    assert "detectable change" in text.out
    assert "weighted by records" in text.out
    assert "finds these changes with a probability of 80%" in text.err
    page = (home / "out" / "report.html").read_text()
    assert "Detectable change of the mean gap of prediction and outcome" in page
    assert "ECE, all windows" in page


def test_a_shift_that_was_learned_from_hurts_less(shell: Shell, weeks: Path) -> None:
    """On the mean over seeds: one run's figures carry noise of their own."""
    words = ("monitor", weeks, "--by", "week", "--privacy", "distributed", "--epsilon", "1", "--recalibrate", *FIVE)
    last = [shell(*words, "--simulate-seed", seed, "--format", "json").json["windows"][-1] for seed in range(1, 6)]
    served, unserved = ([window[key]["ece"]["value"] for window in last] for key in ("served", "metrics"))
    assert np.mean(served) < 0.8 * np.mean(unserved)


def test_windows_of_clients_add_up(shell: Shell, weeks: Path) -> None:
    words = ("monitor", weeks, "--privacy", "user", "--epsilon", "5", "--delta", "1e-5", "--clip", "50")
    said = shell(*words, *FIVE, "--dry-run", "--format", "json")
    assert said.code == 0, said.err
    assert said.json["privacy"]["unit"] == "client"
    assert said.json["privacy"]["epsilon"] == pytest.approx(5.0, rel=1e-3)
    assert "5 windows" in said.json["privacy"]["statement"]


def test_the_ledger_is_debited_once_for_all_windows(shell: Shell, weeks: Path) -> None:
    ledger = Ledger("ledger.db")
    words = (
        "monitor",
        weeks,
        "--privacy",
        "distributed",
        "--epsilon",
        "1",
        "--ledger",
        "ledger.db",
        "--format",
        "json",
        *FIVE,
    )
    first = shell(*words)
    assert first.code == 0, first.err
    again = shell(*words)
    assert again.json["replayed"]
    assert float(ledger.account("default").epsilon) == 1.0
    assert again.json["windows"] == first.json["windows"]


def test_dates_make_windows_too(shell: Shell, home: Path) -> None:
    rng = np.random.default_rng(0)
    stamps = pd.Timestamp("2024-02-27") + pd.to_timedelta(rng.integers(14, size=600), unit="D")
    table = pd.DataFrame(
        {"site": rng.integers(3, size=600), "score": rng.random(600), "label": rng.integers(2, size=600)}
    )
    table["when"] = stamps.strftime("%Y-%m-%d")
    table.to_csv("text.csv", index=False)
    table.assign(when=stamps).to_parquet("stamps.parquet")
    found = [
        shell("monitor", name, "--time", "when", "--format", "json").json for name in ("text.csv", "stamps.parquet")
    ]
    days = [[window["first_day"] for window in one["windows"]] for one in found]
    assert days[0] == days[1] == ["2024-02-27", "2024-03-04", "2024-03-11"]
    assert [window["window"] for window in found[0]["windows"]] == ["2024-W09", "2024-W10", "2024-W11"]


@pytest.mark.parametrize("by", ["day", "week", "month"])
def test_windows_are_those_of_the_calendar(shell: Shell, home: Path, by: str) -> None:
    """Against pandas, over leap days and the ends of years, with windows that hold no record."""
    rng = np.random.default_rng(1)
    dates = pd.Timestamp("2023-12-20") + pd.to_timedelta(rng.integers(80, size=300), unit="D")
    dates = dates[dates != pd.Timestamp("2024-01-05")]
    table = pd.DataFrame({"score": rng.random(len(dates)), "label": rng.integers(2, size=len(dates)), "day": dates})
    table.to_parquet("dates.parquet")
    words = (
        "monitor",
        "dates.parquet",
        "--one-site",
        "--privacy",
        "open",
        "--by",
        by,
        "--from",
        "2023-12-28",
        "--until",
        "2024-03-03",
        "--format",
        "json",
    )
    said = shell(*words)
    assert said.code == 0, said.err
    counted = {day: dates[dates == day].size for day in pd.date_range("2023-12-28", "2024-03-03")}
    names = {"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m"}
    expected: dict[str, int] = {}
    for day, count in counted.items():
        expected[day.strftime(names[by])] = expected.get(day.strftime(names[by]), 0) + count
    found = {window["window"]: window["metrics"] for window in said.json["windows"]}
    assert list(found) == list(expected)
    few = [name for name, count in expected.items() if count < MIN_RECORDS]  # not shown under an exact model
    assert [name for name, metrics in found.items() if metrics["accuracy"] is None] == few
    outside = len(dates) - sum(expected.values())
    assert f"{outside} of {len(dates)} records are of days before --from or after --until" in said.json["warnings"][0]


def test_an_epsilon_needs_public_days(shell: Shell, weeks: Path) -> None:
    private = ("--privacy", "distributed", "--epsilon", "1")
    for command in (("monitor", weeks), ("evaluate", weeks, "--by", "week")):
        for days in ((), ("--from", "30"), ("--until", "64")):
            said = shell(*command, *private, *days)
            assert said.code == 2
            assert "Expected --from and --until" in said.err
    for days, text in (
        (("--from", "2024-01-01", "--until", "2024-02-01"), "as the number of a day"),
        (("--from", "64", "--until", "30"), "swap them"),
        (("--from", "soon", "--until", "30"), "'soon'"),
        (("--from", "0", "--until", "9999999"), "at most 1000 windows"),
    ):
        said = shell("monitor", weeks, *private, *days)
        assert said.code == 2
        assert text in said.err
    assert "--by with --from" in shell("evaluate", weeks, "--from", "30").err


def test_one_early_record_changes_no_window(shell: Shell, weeks: Path) -> None:
    """Of a private monitoring, everything but the noise is the same with a record of an early day and without it."""
    table = pd.read_csv(weeks)
    early = pd.DataFrame({"site": [0], "score": [0.5], "label": [1], "day": [12]})
    pd.concat([table, early]).to_csv("with.csv", index=False)
    words = ("--by", "week", "--privacy", "distributed", "--epsilon", "0.5", "--format", "json", "--out")
    documents = []
    for file in (weeks, "with.csv"):
        said = shell("monitor", file, *words, f"{Path(file).stem}-out", *FIVE)
        assert said.code == 0, said.err
        documents.append(json.loads(Path(f"{Path(file).stem}-out/result.json").read_text()))
    shapes = [[(window["window"], window["first_day"]) for window in one["windows"]] for one in documents]
    assert shapes[0] == shapes[1] == [(f"week {k + 1}", 30 + 7 * k) for k in range(5)]
    assert documents[0]["privacy"] == documents[1]["privacy"]
    assert documents[0]["warnings"] == documents[1]["warnings"] == []


def test_bad_words_are_told(shell: Shell, weeks: Path) -> None:
    assert "column 'when'" in shell("monitor", weeks, "--time", "when").err
    assert "--recalibrate" in shell("monitor", weeks, "--method", "acc-t").err
    assert shell("monitor", weeks, "--false-alarms", "2").code == 2
    assert "minimum effect" in shell("monitor", weeks, "--min-effect", "1.5").err
    assert "Expected --epsilon" in shell("monitor", weeks, "--privacy", "distributed").err


def test_records_without_a_time_are_left_out(home: Path) -> None:
    pd.DataFrame({"score": [0.1, 0.9, 0.5], "label": [0, 1, 1], "day": [3.0, None, 4.0]}).to_csv("gap.csv", index=False)
    reading = read_checked("gap.csv", Columns(score="score", time="day", one_site=True))
    assert len(reading.federation.records) == 2
    assert reading.federation.records.extra["time"].tolist() == [3, 4]
    assert "column 'day'" in str(reading.rejected[0])
