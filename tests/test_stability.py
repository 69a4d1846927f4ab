"""Removing one record changes nothing about any other: not the record of its unit, nor its side, nor its window."""

from __future__ import annotations

import csv
from collections import Counter
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcalib as fc
from fedcalib.data import read_checked
from fedcalib.data.columns import Columns
from fedcalib.errors import InputError
from fedcalib.federation import _occurrences
from fedcalib.workflows import calibrate, evaluate
from fedcalib.workflows.drift import Every, windows_between
from fedcalib.workflows.session import State

Row = tuple[str, float, int, int, int]  # site, score, label, unit, day

# few values, so that equal records and units with several records are common
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["north", "south"]),
        st.sampled_from([0.0, 0.25, 0.5, 1.0]),
        st.integers(0, 1),
        st.integers(0, 5),
        st.integers(0, 40),
    ),
    min_size=2,
    max_size=40,
)
KEYS = st.one_of(st.binary(min_size=1, max_size=32), st.integers(0, 1000))


def federation(rows: list[Row], units: bool = False) -> fc.Federation:
    """The rows by site; both sites are there even if one holds no record."""
    sites = {}
    for name in ("north", "south"):
        own = [row for row in rows if row[0] == name]
        columns = {"unit": np.array([row[3] for row in own], dtype=np.int64)} if units else {}
        extra = {"time": np.array([row[4] for row in own], dtype=np.int64)}
        labels = np.array([row[2] for row in own], dtype=np.int64)
        scores = np.array([row[1] for row in own], dtype=np.float64)
        probs = np.stack([1 - scores, scores], axis=1)
        sites[name] = fc.Records(probs, labels, False, columns.get("unit"), extra)
    return fc.Federation.of(sites)


def contents(federation: fc.Federation) -> Counter[tuple[object, ...]]:
    """What each site holds, without an order."""
    records = federation.records
    unit = np.full(len(records), -1) if records.unit is None else records.unit
    columns = (federation.owner, records.given[:, 1], records.labels, records.extra["time"], unit)
    return Counter(zip(*(column.tolist() for column in columns), strict=True))


def distance(one: fc.Federation, other: fc.Federation) -> int:
    """How many records are in one of them only."""
    first, second = contents(one), contents(other)
    return ((first - second) + (second - first)).total()


class TestSplits:
    @given(ROWS, KEYS, st.data())
    def test_removing_a_record_moves_no_other(self, rows: list[Row], key: bytes | int, data: st.DataObject) -> None:
        left_out = data.draw(st.integers(0, len(rows) - 1))
        sides = [federation(some).split(0.5, key) for some in (rows, rows[:left_out] + rows[left_out + 1 :])]
        assert sum(distance(*pair) for pair in zip(*sides, strict=True)) == 1

    @given(ROWS, KEYS, st.randoms(use_true_random=False))
    def test_order_does_not_matter(self, rows: list[Row], key: bytes | int, random: object) -> None:
        mixed = list(rows)
        random.shuffle(mixed)  # type: ignore[attr-defined]
        sides = [federation(some).split(0.4, key) for some in (rows, mixed)]
        assert [distance(*pair) for pair in zip(*sides, strict=True)] == [0, 0]

    @given(ROWS, KEYS)
    def test_a_unit_is_on_one_side_at_all_sites(self, rows: list[Row], key: bytes | int) -> None:
        kept, held = federation(rows, units=True).split(0.5, key)
        assert kept.records.unit is not None and held.records.unit is not None
        assert not set(kept.records.unit.tolist()) & set(held.records.unit.tolist())

    @given(ROWS, st.integers(0, 2**128), st.data())
    def test_a_workflow_splits_so_too(self, rows: list[Row], secret: int, data: st.DataObject) -> None:
        left_out = data.draw(st.integers(0, len(rows) - 1))
        state = State(None, secret)
        sides = [state.split(federation(some), 0.3) for some in (rows, rows[:left_out] + rows[left_out + 1 :])]
        assert sum(distance(*pair) for pair in zip(*sides, strict=True)) == 1

    @pytest.mark.parametrize("share", [0.05, 0.3, 0.9])
    def test_the_share_is_met_with_and_without_equal_records(self, share: float) -> None:
        rng = np.random.default_rng(0)
        labels = rng.integers(0, 2, 20_000)
        wide = rng.normal(size=(20_000, 20)).astype(np.float32)
        scores = (rng.random(20_000), rng.integers(0, 5, 20_000) / 4, np.full(20_000, 0.5))
        for records in (*(fc.Records.of_scores(score, labels) for score in scores), fc.Records.of_logits(wide, labels)):
            _, held = fc.Federation.iid(records, 10, seed=0).split(share, seed=1)
            assert len(held.records) == pytest.approx(20_000 * share, abs=5 * np.sqrt(20_000 * share * (1 - share)))

    def test_splits_by_two_seeds_are_independent(self) -> None:
        all_ = fc.Federation.simulated(records=20_000)
        rest, _ = all_.split(0.5, seed=1)
        assert len(rest.split(0.5, seed=2)[1].records) == pytest.approx(5000, abs=300)

    def test_equal_records_are_numbered_exactly_when_hashes_collide(self) -> None:
        records = fc.Records.of_scores([0.1, 0.2, 0.1, 0.2, 0.1], labels=[1, 1, 1, 1, 0])
        site, same = np.array([0, 0, 0, 0, 0], dtype=np.uint64), np.zeros(5, dtype=np.uint64)
        assert _occurrences(records, site, same).tolist() == [0, 0, 1, 1, 0]
        assert _occurrences(records, np.array([0, 0, 1, 0, 1], dtype=np.uint64), same).tolist() == [0, 0, 0, 1, 0]


class TestUnits:
    @given(ROWS, KEYS, st.data())
    def test_removing_a_record_changes_no_other_unit(
        self, rows: list[Row], key: bytes | int, data: st.DataObject
    ) -> None:
        left_out = data.draw(st.integers(0, len(rows) - 1))
        less = rows[:left_out] + rows[left_out + 1 :]
        site, _, _, unit, _ = rows[left_out]
        same = [(row[0], row[3]) for row in less].count((site, unit))
        both = [federation(some, units=True).one_per_unit(key) for some in (rows, less)]
        # its own unit may have another record now, or none
        assert distance(*both) <= (2 if same else 1)

    @given(ROWS, KEYS, st.data())
    def test_removing_a_unit_changes_one_record_per_site(
        self, rows: list[Row], key: bytes | int, data: st.DataObject
    ) -> None:
        gone = data.draw(st.sampled_from([row[3] for row in rows]))
        less = [row for row in rows if row[3] != gone]
        both = [federation(some, units=True).one_per_unit(key) for some in (rows, less)]
        assert distance(*both) == len({row[0] for row in rows if row[3] == gone})

    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_one_patient_less_changes_one_count_of_a_file(self, tmp_path: Path, seed: int) -> None:
        def counts(patients: range) -> np.ndarray:
            """Labels of the records that are kept; each patient has a negative one and a positive one."""
            path = tmp_path / "site.csv"
            with path.open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(["score", "label", "patient"])
                writer.writerows([[0.25 + 0.5 * k, k, f"p{patient}"] for patient in patients for k in (0, 1)])
            kept = read_checked(path, Columns(unit="patient", one_site=True), seed=seed).federation.records
            return np.bincount(kept.labels, minlength=2)

        assert counts(range(400)).sum() == 400
        assert np.abs(counts(range(400)) - counts(range(1, 400))).sum() == 1


class TestWindows:
    @given(ROWS, st.data(), st.sampled_from(list(Every)), st.booleans())
    def test_removing_a_record_changes_no_other_window(
        self, rows: list[Row], data: st.DataObject, by: Every, dated: bool
    ) -> None:
        left_out = data.draw(st.integers(0, len(rows) - 1))
        start, until = sorted(data.draw(st.lists(st.integers(-10, 60), min_size=2, max_size=2)))
        ends = [date(2024, 1, 1) + timedelta(days=day) for day in (start, until)] if dated else [start, until]

        def cut(days: list[int]) -> tuple[object, list[tuple[str, str | int]], list[int]]:
            numbers = np.array(days, dtype=np.int64)
            column = np.datetime64("2024-01-01") + numbers if dated else numbers
            windows = windows_between(by, column, *ends)
            named = [(windows.name(k), windows.first_day(k)) for k in range(len(windows))]
            return windows, named, windows.place(column).tolist()

        days = [row[4] for row in rows]
        every, less = cut(days), cut(days[:left_out] + days[left_out + 1 :])
        assert every[:2] == less[:2]
        assert every[2][:left_out] + every[2][left_out + 1 :] == less[2]
        assert [place == -1 for place in every[2]] == [not start <= day <= until for day in days]


class TestPublicLists:
    """What there is to release follows from public facts, not from which records there are."""

    PRIVATE = fc.SourceLaplace(epsilon=1.0)

    @staticmethod
    def write(path: Path, rows: list[tuple[object, ...]], header: str = "score,label") -> Path:
        path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
        return path

    def test_the_last_record_of_a_class_does_not_decide_whether_there_is_a_release(self, tmp_path: Path) -> None:
        rows = [(0.1 * (k % 10), 0) for k in range(40)]
        file = self.write(tmp_path / "rare.csv", rows)
        done = evaluate(file, self.PRIVATE, one_site=True)
        assert done.privacy.epsilon == 1.0
        assert calibrate(file, fc.FedBin(), self.PRIVATE, one_site=True).privacy.epsilon == 1.0
        with pytest.raises(InputError, match="two classes"):
            evaluate(file, one_site=True)

    def test_a_file_without_records_is_a_site(self, tmp_path: Path) -> None:
        full = [(0.1 * (k % 10), k % 2) for k in range(40)]
        files = [self.write(tmp_path / f"{name}.csv", full) for name in ("a", "b")]
        for rows in ([(0.5, 1)], []):
            last = self.write(tmp_path / "c.csv", rows)
            assert len(evaluate([*files, last], self.PRIVATE).sites or ()) == 3
        nobody = [self.write(tmp_path / f"{name}.csv", []) for name in "abc"]
        assert len(evaluate(nobody, self.PRIVATE).sites or ()) == 3
        with pytest.raises(InputError, match="no rows"):
            evaluate([*files[:2], last])

    def test_a_listed_site_is_there_without_records(self, tmp_path: Path) -> None:
        rows = [(0.1 * (k % 10), k % 2, "ab"[k % 2]) for k in range(40)]
        file = self.write(tmp_path / "sites.csv", rows, "score,label,site")
        assert len(evaluate(file, self.PRIVATE).sites or ()) == 2
        assert len(evaluate(file, self.PRIVATE, sites=["a", "c", "b"]).sites or ()) == 3
        with pytest.raises(InputError, match=r"site of the list in column 'site' of .*, row 2, found 'b'"):
            evaluate(file, self.PRIVATE, sites=["a", "c"])
        with pytest.raises(InputError, match="name it with site"):
            evaluate(self.write(tmp_path / "alone.csv", [row[:2] for row in rows]), sites=["a"])


def test_a_hold_out_follows_from_the_key_and_not_from_a_file_name(tmp_path: Path) -> None:
    """One key per state directory: another file name or another method holds out the same records."""
    rng = np.random.default_rng(0)
    score = rng.random(900).round(3)
    columns = {"site": rng.integers(0, 4, 900), "score": score, "label": (rng.random(900) < score**2).astype(int)}
    rows = list(zip(*(column.tolist() for column in columns.values()), strict=True))
    for name in ("first.csv", "second.csv"):
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file).writerows([list(columns), *rows])
    kept = {"state": tmp_path / "state"}
    first = calibrate(tmp_path / "first.csv", fc.FedBin(), fc.SecAgg(), **kept).to_json()["before"]
    assert calibrate(tmp_path / "second.csv", fc.FedBin(), fc.SecAgg(), **kept).to_json()["before"] == first
    assert calibrate(tmp_path / "first.csv", fc.PlattScaling(), fc.SecAgg(), **kept).to_json()["before"] == first
    other = calibrate(tmp_path / "first.csv", fc.FedBin(), fc.SecAgg(), state=tmp_path / "other").to_json()["before"]
    assert other != first, "another state directory has another key"
    seeded = [
        calibrate(tmp_path / name, fc.FedBin(), fc.SecAgg(), split_seed=3) for name in ("first.csv", "second.csv")
    ]
    assert seeded[0].to_json()["before"] == seeded[1].to_json()["before"]
    key = tmp_path / "state" / "split-key"
    assert key.stat().st_mode & 0o077 == 0, "nobody else may read it"
