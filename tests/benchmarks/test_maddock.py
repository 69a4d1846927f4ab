"""The multiclass benchmark's shortcuts are the package's own methods, only quicker."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.maddock.data import Deal, QuickFedTemp, dealt
from benchmarks.maddock.tables import duel_table, methods_table

import fedcalib as fc
from tests.contract.subjects import federation


@pytest.mark.parametrize("rounds", [1, 5])
def test_known_local_temperatures_give_fedtemp(rounds: int) -> None:
    records = federation(4, records=1200).records
    data = dealt(records, Deal(clients=30, records=40), run=0)
    quick, slow = (
        fc.run(method, fc.InProcess(data), fc.Open()).artifact.temperature
        for method in (QuickFedTemp(rounds=rounds), fc.FedTemp(rounds=rounds))
    )
    assert quick == pytest.approx(slow, abs=1e-9)


def test_more_records_than_there_are_come_with_replacement() -> None:
    records = federation(3, records=300).records
    data = dealt(records, Deal(clients=20, records=50), run=1)
    assert len(data.records) == 1000
    assert len(np.unique(data.records.given, axis=0)) <= 300


def test_tables_name_the_best_rival_and_mark_lost_accuracy() -> None:
    def line(method: str, cwece: float, accuracy: float) -> dict[str, str]:
        numbers = {"cwece": cwece, "debiased": cwece, "nll": 1.0, "accuracy": accuracy, "base_accuracy": 0.9}
        rest = {"run": 0, "bytes": 8, "seconds": 0.1}
        return {"method": method, "setting": "s", "network": "n", **{k: str(v) for k, v in {**numbers, **rest}.items()}}

    rows = [line("base", 2.0, 0.9), line("FedBin", 1.0, 0.8), line("FedTemp", 1.5, 0.9), line("Auto", 0.5, 0.9)]
    assert "FedBin (s)" in duel_table(rows)
    assert "2.000" in duel_table(rows)
    assert "FedBin (accuracy falls)" in methods_table(rows)
