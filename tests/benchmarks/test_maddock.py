"""The multiclass benchmark's shortcuts are the package's own methods, and its tables say what its rows say."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.maddock.data import Deal, QuickFedTemp, dealt
from benchmarks.maddock.statistics import Rows, average, best_single, duels, ratio
from benchmarks.maddock.tables import duel_table, methods_table, overview, remarks

import fedcalib as fc
from tests.contract.subjects import federation


def test_known_local_temperatures_give_fedtemp() -> None:
    records = federation(4, records=1200).records
    data = dealt(records, Deal(clients=30, records=40), run=0)
    quick, slow = (
        fc.run(method, fc.InProcess(data), fc.Open()).artifact.temperature
        for method in (QuickFedTemp(rounds=1), fc.FedTemp(rounds=1))
    )
    assert quick == pytest.approx(slow, abs=1e-9)


def test_more_records_than_there_are_come_with_replacement() -> None:
    records = federation(3, records=300).records
    data = dealt(records, Deal(clients=20, records=50), run=1)
    assert len(data.records) == 1000
    assert len(np.unique(data.records.given, axis=0)) <= 300


def line(
    method: str, cwece: float, accuracy: float, *, run: int = 0, setting: str = "", debiased: float = 1.0
) -> dict[str, str]:
    numbers = {"cwece": cwece, "debiased": debiased, "nll": 1.0, "accuracy": accuracy, "base_accuracy": 0.9}
    rest = {"run": run, "bytes": 8, "seconds": 0.1}
    values = {k: str(v) for k, v in {**numbers, **rest}.items()}
    return {"method": method, "setting": setting, "network": "n", **values}


ROWS: Rows = [
    line("base", 2.0, 0.9),
    line("FedBin", 1.0, 0.8, setting="s", debiased=0.9),
    line("FedTemp", 1.5, 0.9, setting="t", debiased=0.6),
    line("RidgeVector", 0.45, 0.9, debiased=0.5),
    line("Auto", 0.5, 0.9, debiased=0.3),
]


def test_tables_name_the_best_rival_and_mark_lost_accuracy() -> None:
    assert "FedBin (s)" in duel_table(ROWS)
    assert "2.000" in duel_table(ROWS)
    assert "FedBin **(accuracy falls)**" in methods_table(ROWS)
    assert "| d, 10 clients of 5 records, exact sums | 1 | 1 | 2.000 |" in overview(
        {("open", "d", "10", "5", ""): ROWS}
    )


def test_remarks_say_where_the_errors_disagree_and_who_is_lower() -> None:
    said = remarks(ROWS)
    assert "n (1.111 [1.111, 1.111] times RidgeVector)" in said
    assert "debiased error Auto is the lowest of all methods" in said
    assert "different published methods as the best on n" in said
    assert best_single(ROWS, "cwece") == (("FedBin", "s"), 1.0)
    assert duels(ROWS)[0].to_base == 0.25


def test_ratios_pair_runs_and_square_debiased_errors() -> None:
    rival = [line("FedTemp", value, 0.9, run=run) for run, value in enumerate((1.0, 2.0, 3.0, 9.0))]
    auto = [line("Auto", value, 0.9, run=run) for run, value in enumerate((0.5, 1.0, 1.5))]
    found = ratio(rival, auto)
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))
    signed = [line("Auto", 1.0, 0.9, run=run, debiased=value) for run, value in enumerate((3.0, -1.0))]
    assert average(signed, "debiased") == pytest.approx(((9.0 - 1.0) / 2) ** 0.5)
