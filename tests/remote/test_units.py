"""Which record of a unit counts: a choice that no other unit's records can change (finding A3), and an audit of it."""

from __future__ import annotations

import os
from math import log
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

import fedcalib as fc
from fedcalib.federation import chosen_per_unit
from fedcalib.queries.class_tables import LabelCounts
from fedcalib.remote.site import records_of

PATIENTS = 400
TRIALS = 20_000 if "FEDCALIB_FUZZ" in os.environ else 2_000  # `make fuzz` runs them all


def read(folder: Path, patients: list[int], labels: list[tuple[int, int]]) -> fc.Records:
    """The records that a site keeps: each patient has two, and the score tells which of them it is."""
    path = folder / "records.csv"
    rows = [f"{0.25 + 0.5 * k},{labels[p][k]},p{p}" for p in patients for k in (0, 1)]
    path.write_text("score,label,patient\n" + "\n".join(rows) + "\n")
    config = {"data-path": str(path), "unit": "patient", "score": "score", "label": "label", "state": str(folder / "s")}
    return records_of(config).records


@pytest.mark.parametrize("kind", ["the same labels", "labels by the first choice"])
def test_a3_a_site_without_one_patient_keeps_everybody_elses_record(kind: str, tmp_path: Path) -> None:
    """Once a fixed seed over row positions chose: one patient less changed 200 of 400 labels, for epsilon 1."""
    everybody, labels = list(range(PATIENTS)), [(0, 1)] * PATIENTS
    kept = read(tmp_path, everybody, labels).score > 0.5
    assert 100 < kept.sum() < 300
    if kind != "the same labels":  # the record that is kept is positive, the other one negative
        labels = [(0, 1) if second else (1, 0) for second in kept]
    one, other = (read(tmp_path, who, labels) for who in (everybody, everybody[1:]))
    counts = [np.bincount(records.labels, minlength=2) for records in (one, other)]
    assert np.abs(counts[0] - counts[1]).sum() == 1
    assert lower_bound(one, other, counts) < 1.0


def lower_bound(one: fc.Records, other: fc.Records, counts: list[np.ndarray]) -> float:
    """The epsilon that noisy counts of positives show with 95% confidence; epsilon 1 is claimed."""
    query, plan = LabelCounts(2), fc.method.Plan((LabelCounts(2),))
    mechanism = fc.SourceLaplace(1.0).mechanism(query, plan, fc.cohort.Cohort(3), fc.Everyone())
    middle, sign = (counts[0][1] + counts[1][1]) / 2, 1 if counts[0][1] > counts[1][1] else -1
    hits = []
    for records in (one, other):
        site = fc.Federation.of([records])
        drawn = np.array([mechanism.gather(query, site, fc.Secure())[1] for _ in range(TRIALS)])
        hits.append(int((sign * (drawn - middle) > 0).sum()))
    low = beta.ppf(0.025, hits[0], TRIALS - hits[0] + 1)
    return log(low / beta.ppf(0.975, hits[1] + 1, TRIALS - hits[1]))


def records(units: list[int], seed: int = 0) -> fc.Records:
    rng = np.random.default_rng(seed)
    return fc.Records.of_scores(rng.random(len(units)), rng.integers(0, 2, len(units)), unit=units)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.randoms())
def test_neither_order_nor_other_units_change_a_choice(units: list[int], chance) -> None:
    data, secret = records(units), b"a secret"
    kept = {int(data.unit[row]): float(data.score[row]) for row in chosen_per_unit(data, secret)}
    assert kept.keys() == set(units)
    order = list(range(len(units)))
    chance.shuffle(order)
    gone = units[0]
    fewer = data.take([row for row in order if units[row] != gone])
    again = {int(fewer.unit[row]): float(fewer.score[row]) for row in chosen_per_unit(fewer, secret)}
    assert again == {unit: score for unit, score in kept.items() if unit != gone}


def test_every_record_of_a_unit_is_as_likely_and_clients_choose_apart() -> None:
    data = records([0, 0, 0] * 1000)
    data = fc.Records.of_scores(data.score, data.labels, unit=np.repeat(np.arange(1000), 3))
    chosen = chosen_per_unit(data, b"another secret")
    counts = np.bincount(chosen % 3, minlength=3)
    assert counts.sum() == 1000
    assert (np.abs(counts - 1000 / 3) < 75).all()  # five standard deviations
    apart = chosen_per_unit(data, b"another secret", np.arange(3000) % 3)
    assert len(apart) == 3000
    assert chosen_per_unit(data, 7).tolist() == chosen_per_unit(data, 7).tolist() != chosen_per_unit(data, 8).tolist()


def test_the_type_of_a_column_does_not_depend_on_other_records() -> None:
    notes = np.array(["a", "b", "a long text", "c"])
    data = fc.Records.of_scores([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1], unit=[1, 1, 2, 2], note=notes)
    short = fc.Records.of_scores([0.1, 0.2], [0, 1], unit=[1, 1], note=np.array(["a", "b"]))
    for secret in range(20):
        assert chosen_per_unit(data, secret)[0] == chosen_per_unit(short, secret)[0]
