"""Days as people write them: each is the date that is written, or refused by file, column and row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedcalib.data import Columns, read_checked
from fedcalib.errors import InputError

DAYS = np.array(["2024-02-28", "2024-02-29", "2024-03-01", "2024-03-02"], "datetime64[D]")


def frame(days: Any) -> pd.DataFrame:
    return pd.DataFrame(
        {"site": ["a", "a", "b", "b"], "score": [0.1, 0.2, 0.3, 0.9], "label": [0, 1, 0, 1], "day": days}
    )


def read(days: Any, folder: Path | None = None) -> list[Any]:
    table: Any = frame(days)
    if folder is not None:
        table.to_csv(folder / "a.csv", index=False)
        table = folder / "a.csv"
    return list(read_checked(table, Columns(time="day")).federation.records.extra["time"])


@pytest.mark.parametrize(
    "ending",
    ["", "T00:30:00", " 23:59:59", "T00:30:00Z", "T23:30:00-05:00", "T00:30:00.250+02:00", " 00:30:00 UTC"],
)
def test_a_date_is_the_one_that_is_written(tmp_path: Path, ending: str) -> None:
    assert read([f"{day}{ending}" for day in DAYS], tmp_path) == list(DAYS)


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Zurich", "America/New_York"])
@pytest.mark.parametrize("hour", [0, 23])
def test_a_time_zone_moves_no_date_of_a_frame(zone: str | None, hour: int) -> None:
    times = (pd.DatetimeIndex(DAYS) + pd.Timedelta(hours=hour, minutes=30)).tz_localize(zone)
    assert read(times) == list(DAYS)


@pytest.mark.parametrize(
    "days",
    [
        ["31.03.2024", "01.04.2024", "02.04.2024", "03.04.2024"],
        ["3/31/2024", "4/1/2024", "4/2/2024", "4/3/2024"],
        [20240331, 20240401, 20240402, 20240403],
        [1711843200, 1711929600, 1712016000, 1712102400],
        ["2024-03", "2024-04", "2024-05", "2024-06"],
    ],
)
def test_other_dates_are_refused_with_their_place(tmp_path: Path, days: list[Any]) -> None:
    with pytest.raises(
        InputError, match=rf"a date such as 2024-03-31.*a.csv, row 1, found '?{days[0]}.*year-month-day"
    ):
        read(days, tmp_path)


def test_a_day_that_no_calendar_has_is_found_where_it_stands(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"column 'day' of .*a.csv, row 3, found '2024-02-30'"):
        read(["2024-02-28", "", "2024-02-30", "2024-03-01"], tmp_path)


def test_numbered_days_stay_numbers() -> None:
    assert read([-3, 0, 1.0, 45_292]) == [-3, 0, 1, 45_292]
