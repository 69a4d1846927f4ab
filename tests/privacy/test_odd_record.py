"""Finding A1: one record with huge logits, or with features that are no numbers, broke the bounds of four queries.

Each test of the finding ran as an attack before: a release revealed for certain whether somebody held the record.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.privacy.small_queries import served

import fedcalib as fc
from fedcalib import wire
from fedcalib.artifacts.scaling import VectorScaling
from fedcalib.errors import InputError, RefusedError
from fedcalib.families.affine import TemperatureFamily, VectorFamily
from fedcalib.federation import Federation
from fedcalib.methods.ccvr import ClosedForm
from fedcalib.numeric import Grid
from fedcalib.privacy.local import Coder, RandomisedReports
from fedcalib.privacy.local_reports import Cell, Coordinate, Entries, SignedCell, Unary
from fedcalib.privacy.ring import MAX_SUM, exact_total, grid, grid_total, unwrap
from fedcalib.queries.class_tables import ClassCurvature, LabelHistogram, LogitResiduals
from fedcalib.queries.moments import ClassMoments
from fedcalib.queries.reliability import ClasswiseResiduals, Hits, Losses, OwnErrors, TopLabelTable
from fedcalib.queries.scaling import LocalFit, ScalingGradient
from fedcalib.queries.scores import ScoreLeaves
from fedcalib.queries.shift import (
    BinnedGaps,
    ClippedLosses,
    Confidence,
    ConfidenceGaps,
    ConfusionCounts,
    Predictions,
    RightWrong,
)
from fedcalib.queries.temperature import TemperatureCurve, TemperatureScores, TemperatureSlope
from fedcalib.queries.wrapped import Calibrated
from fedcalib.query import Query, Rows, coordinates
from fedcalib.records import MAX_LOGIT

INVERSES = (0.25, 0.5, 1.0, 1.4)
QUERIES: list[Query] = [
    TemperatureCurve(INVERSES, 3.0),
    TemperatureSlope(1.0, 3.0, 3),
    TemperatureScores(INVERSES),
    ConfidenceGaps((0.7, 1.0, 4.0)),
    ClippedLosses((0.7, 1.0, 4.0), 5.0),
    ClassMoments(3, 2, 1.0),
    ClassMoments(3, 2, 1.0, shift=(-1e308, 0.0), diagonal=True),
]
METHODS = [fc.OneShotTemperature(), fc.BoundedTemperature(), fc.Auto(), fc.methods.CCVR(2, ClosedForm(), radius=1.0)]
MODELS = [
    fc.SourceLaplace(1.0),
    fc.DistributedDP(1.0),
    fc.UserGaussian(1.0, 1e-5, clip=10.0),
    fc.LocalDP(8.0),
]
ODD_LOGITS = [
    np.array([[1e308, -1e308, 0.0]]),
    np.array([[-1.7e308, -1.7e308, 1.7e308]]),
]
ODD_FEATURES = [[np.nan, 1.0], [np.inf, 1.0], [np.inf, -np.inf], [1e308, 1e308]]
HUGE = st.floats(-1.7e308, 1.7e308, allow_subnormal=False)


def ordinary(records: int, seed: int = 0) -> fc.Records:
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=records)
    return fc.Records.of_logits(2 * rng.normal(size=(records, 3)), labels, features=rng.normal(size=(records, 2)))


def odd(logits: object = ODD_LOGITS[0], features: object = (np.nan, np.inf), label: int = 1) -> fc.Records:
    """A record that was not checked at the door, which refuses such features."""
    return fc.Records(np.asarray(logits), np.array([label]), True, None, {"features": np.array([features])})


@cache
def many(extra: bool) -> Federation:
    """Enough clients for every method to ask; one of them may hold the odd record and nothing else."""
    clients = [ordinary(60, seed) for seed in range(40)]
    return Federation.of([*clients, odd() if extra else ordinary(0)])


def check_encoded(query: Query, records: fc.Records) -> None:
    """One unit's term on the grid is within the bound of every block."""
    scales = {name: grid(block) for name, block in query.blocks.items()}
    steps = grid_total(query, Federation.of([records]), fc.Simulated(0), scales)
    for name, part in query.split(steps.astype(np.float64) / query.spread(scales)).items():
        bound = query.blocks[name].bound
        assert np.abs(part).sum() <= bound.l1 * (1 + 1e-9)
        assert np.linalg.norm(part.reshape(-1)) <= bound.l2 * (1 + 1e-9)
        assert np.abs(part).max() <= bound.linf


@pytest.mark.parametrize("logits", ODD_LOGITS, ids=["1e308", "1.7e308"])
@pytest.mark.parametrize("label", [0, 1, 2])
@pytest.mark.parametrize("query", QUERIES[:3], ids=repr)
def test_huge_logits_stay_within_the_bound(query, logits, label):
    check_encoded(query, odd(logits, (0.5, 0.5), label))


@pytest.mark.parametrize("features", ODD_FEATURES, ids=repr)
@pytest.mark.parametrize("query", QUERIES[-2:], ids=repr)
def test_features_that_are_no_numbers_stay_within_the_bound(query, features):
    check_encoded(query, odd([[0.0, 1.0, 2.0]], features))


@settings(max_examples=examples(60), deadline=None)
@given(logits=st.lists(HUGE, min_size=3, max_size=3), features=st.lists(st.floats(), min_size=2, max_size=2))
def test_any_record_stays_within_the_bound(logits, features):
    for query in QUERIES:
        check_encoded(query, odd([logits], features))


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_a_run_with_an_odd_record_goes_like_one_without(method, model):
    if isinstance(model, fc.LocalDP) and isinstance(method, fc.BoundedTemperature):
        pytest.skip("LocalDP serves no queries on whole clients")
    largest = []
    for extra in (False, True):
        result = fc.run(method, fc.InProcess(many(extra)), model, randomness=fc.Simulated(3))
        answers = [wire.decode(line["value"]) for line in result.transcript.lines if line["state"] == "answered"]
        largest.append(max((np.abs(answer).max() for answer in answers), default=0.0))
    assert largest[1] <= 2 * largest[0] + 20


@pytest.mark.parametrize("query", [QUERIES[0], QUERIES[1], QUERIES[5]], ids=repr)
@pytest.mark.parametrize("model", MODELS[:3], ids=repr)
def test_an_odd_record_moves_a_share_by_its_bound_at_most(model, query):
    mechanism = served(model, query)
    with_it, without = (mechanism.gather(query, many(extra), fc.Simulated(1)) for extra in (True, False))
    moved = (with_it.view(np.int64) - without.view(np.int64)) / query.spread(mechanism.scales)
    for name, part in query.split(moved).items():
        assert np.linalg.norm(part.reshape(-1)) <= query.blocks[name].bound.l2 * (1 + 1e-6)


@pytest.mark.parametrize("query", [TemperatureCurve(INVERSES, 3.0), ClassMoments(3, 2, 1.0)], ids=repr)
def test_the_reports_of_other_records_stay_the_same(query):
    usual = odd([[50.0, -50.0, 0.0]], (0.0, 0.0))  # as wrong as the odd one, and as silent: coins stay in step
    coders = {name: Coder(SignedCell(block.size, block.bound.l1), Unary(8.0)) for name, block in query.blocks.items()}
    reports = [
        RandomisedReports(coders).reports(query, fc.Records.concatenate([first, ordinary(300)]), fc.Simulated(0))
        for first in (usual, odd())
    ]
    np.testing.assert_array_equal(reports[0][1:], reports[1][1:])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_a_record_draws_its_symbol_alone(value):
    def drawn(second: float) -> np.ndarray:
        values = np.tile([0.5, -0.7], 50)
        values[2] = second
        entries = Entries(50, np.repeat(np.arange(50), 2), np.tile([0, 1], 50), values)
        return SignedCell(2, 2.0).draw(entries, np.random.default_rng(0))

    np.testing.assert_array_equal(np.delete(drawn(0.3), 1), np.delete(drawn(value), 1))
    assert (drawn(0.3) >= 0).sum() > 20


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("cells", [None, np.array([[0, 1], [1, 0], [0, -1]])], ids=["dense", "sparse"])
def test_what_is_no_number_adds_nothing_and_takes_nothing_along(cells, value):
    clean = np.array([[1.5, 2.5], [0.0, 0.25], [4.0, 8.0]])
    broken = clean.copy()
    broken[1, 0] = value
    for steps in (None, Grid([1, 1], [2.0, 4.0], [(9.0, 9.0, 9.0)] * 2)):
        assert Rows(cells, broken).sum(2, steps).tolist() == Rows(cells, clean).sum(2, steps).tolist()
    for size in (2, 1 << 20):  # the second takes the way of sparse sums
        rows = [Rows(np.array([[0, 1], [1, 0], [0, 1]]), values) for values in (broken, clean)]
        found = [coordinates(each, np.array([0, 0, 1]), 2, size) for each in rows]
        assert found[0].value.tolist() == found[1].value.tolist()


@pytest.mark.parametrize("total", [np.iinfo(np.int64).min, np.iinfo(np.int64).max, np.nan, 1e300])
def test_an_exact_sum_beyond_the_grid_is_refused_and_a_noisy_one_saturates(total, monkeypatch):
    query, alone = TemperatureSlope(1.0, 3.0, 3), Federation.of([ordinary(1)])
    monkeypatch.setattr(TemperatureSlope, "total", lambda *_: np.array([0, total]))
    with pytest.raises(RefusedError, match="below 2\\^62"):
        exact_total(query, alone, fc.Simulated(0), {"slope": 1.0, "bend": 1.0})
    steps = grid_total(query, alone, fc.Simulated(0), {"slope": 1.0, "bend": 1.0})
    assert steps.tolist() == [0, 0 if np.isnan(total) else int(np.sign(total)) * (MAX_SUM - 1)]


@pytest.mark.parametrize("total", [np.iinfo(np.int64).min, -MAX_SUM, MAX_SUM])
def test_a_ring_sum_is_refused_at_either_end(total):
    words = np.array([0, total], dtype=np.int64).view(np.uint64)
    with pytest.raises(RefusedError, match="overflowed the ring"):
        unwrap(words, TemperatureSlope(1.0, 3.0, 3), {"slope": 1.0, "bend": 1.0})


def test_logits_up_to_the_limit_are_kept_as_they_are():
    given = np.array([[MAX_LOGIT, -MAX_LOGIT, 0.1], [1e9, 1e9 + 1, 3.0]])
    assert fc.Records.of_logits(given, [0, 1]).logits is given
    assert fc.Records.of_logits(given, [0, 1]).given is given


def test_logits_beyond_the_limit_keep_their_probabilities_and_leave_other_records_alone():
    given = np.array([[0.1, 0.2, 0.3], [1e308, -1e308, 1e308], [5e30, -1.0, 2.0]])
    records = fc.Records.of_logits(given, [0, 1, 2])
    assert records.given is records.logits  # clamped at the door, and the caller's array is left alone
    assert given[1].tolist() == [1e308, -1e308, 1e308]
    assert records.logits[0].tolist() == given[0].tolist()
    assert records.logits[1:].tolist() == [[0.0, -MAX_LOGIT, 0.0], [0.0, -MAX_LOGIT, -MAX_LOGIT]]
    assert records.probs[1:].tolist() == [[0.5, 0.0, 0.5], [1.0, 0.0, 0.0]]


def test_logits_of_a_head_on_features_that_are_no_numbers_are_finite():
    records = fc.Records(np.array([[np.nan, 1.0, np.inf], [0.5, 0.25, 0.0]]), np.array([0, 1]), True)
    assert records.logits.tolist() == [[-MAX_LOGIT, -MAX_LOGIT, 0.0], [0.5, 0.25, 0.0]]
    assert np.isfinite(records.probs).all()


EVIL = {
    "1e308": fc.Records.of_logits([[1e308, -1e308, 0.0]], [1]),
    "float32": fc.Records.of_logits(np.array([[3e38, -3e38, 0.0]], dtype=np.float32), [1]),
    "1e200": fc.Records.of_logits([[1e200, -1e200, 0.0]], [1]),
    "subnormal": fc.Records.of_logits([[5e-324, -5e-324, 0.0]], [1]),
    "certain": fc.Records.of_probs([[1.0, 0.0, 0.0]], [1]),
    "0.9991": fc.Records.of_probs([[0.9991, 0.0, 0.0]], [1]),
    "1.0009": fc.Records.of_probs([[1.0, 0.0009, 0.0]], [1]),
    "float32 0.9991": fc.Records.of_probs(np.array([[0.9991, 0.0, 0.0]], dtype=np.float32), [1]),
}
MANY_KINDS: list[Query] = [
    *QUERIES[:5],
    BinnedGaps((0.5, 1.0), 5),
    RightWrong(5),
    TopLabelTable(5),
    ClasswiseResiduals(3, 5),
    Losses(5.0),
    LogitResiduals(3, 4, 8.0),
    LogitResiduals(3, 4, 8.0, pooled_classes=True),
    ClassCurvature(3, 2, 8.0),
    LabelHistogram(3, 5),
    LabelHistogram(3, 5, None, fc.methods.EvenLogOdds()),
    Confidence(),
    Predictions(3),
    ConfusionCounts(3),
    Hits(),
    OwnErrors(5, 1),
    ScalingGradient(VectorFamily(), tuple(VectorFamily().start(3)), 3.0),
    LocalFit(TemperatureFamily(), tuple(TemperatureFamily().start(3)), 1.0, 0.1, 5),
]


@pytest.mark.parametrize("records", EVIL.values(), ids=EVIL)
def test_a1_no_record_that_passes_the_door_exceeds_a_bound(records):
    """Proof p1: before, four queries returned NaN or -2^63 for a record of finite logits."""
    for query in MANY_KINDS:
        check_encoded(query, records)
        check_encoded(Calibrated(query, VectorScaling((1e308, 1.0, -1e308), (0.0, 1e308, 0.0))), records)


def p2_federation(extra: bool) -> Federation:
    rng = np.random.default_rng(0)
    clients = [fc.Records.of_logits(rng.normal(size=(200, 3)) * 2, rng.integers(0, 3, 200)) for _ in range(5)]
    logits = np.vstack([clients[0].given, [[1e308, -1e308, 0.0]]]) if extra else clients[0].given
    labels = np.append(clients[0].labels, 1) if extra else clients[0].labels
    return Federation.of([fc.Records.of_logits(logits, labels), *clients[1:]])


P2_MODELS = [
    fc.DistributedDP(0.01),
    fc.SourceLaplace(0.01),
    fc.UserGaussian(0.1, 1e-6, clip=10),
    fc.LocalDP(1.0),
]


@pytest.mark.parametrize("model", P2_MODELS, ids=repr)
@pytest.mark.parametrize("method", [fc.OneShotTemperature(), fc.FedTemp(), fc.Auto()], ids=repr)
def test_a1_a_release_does_not_reveal_an_odd_record(method, model):
    """Proofs p2 and p13: answers of 8.8e12 instead of hundreds, or a refusal, showed that the record was there."""
    if isinstance(model, fc.LocalDP) and isinstance(method, fc.FedTemp):
        pytest.skip("LocalDP serves no queries on whole clients")
    answers = []
    for extra in (False, True):
        result = fc.run(method, fc.InProcess(p2_federation(extra)), model, randomness=fc.Simulated(3))
        lines = [wire.decode(line["value"]) for line in result.transcript.lines if line["state"] == "answered"]
        answers.append([np.abs(np.asarray(line, dtype=np.float64)).max() for line in lines])
    assert len(answers[0]) == len(answers[1])
    assert max(answers[1], default=0.0) <= 2 * max(answers[0], default=0.0) + 20


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e308])
def test_a1_features_that_are_no_numbers_add_what_is_within_the_bound(bad):
    """Proof p10: the total of one such record was -2^63, which passed as a small number."""
    unchecked = fc.Records(np.array([[0.0, 1.0]]), np.array([1]), True, None, {"features": np.array([[bad, 1.0, 2.0]])})
    check_encoded(ClassMoments(2, 3, 1.0), unchecked)


def test_a1_a_silent_record_does_not_silence_those_after_it():
    """Proof p10: one NaN turned the symbols of all later records to null."""
    values = np.array([1.0, np.nan, 1.0, 1.0, 1.0])
    drawn = SignedCell(1, 1.0).draw(Entries(5, np.arange(5), np.zeros(5, int), values), np.random.default_rng(0))
    assert drawn.tolist() == [1, -1, 1, 1, 1]


@pytest.mark.parametrize("symbols", [Cell(2), SignedCell(2, 1.0), Coordinate(2, 1.0)], ids=repr)
@pytest.mark.parametrize("cell", [-1, 2, 99, -(2**63)])
def test_a1_symbols_are_within_the_coder(symbols, cell):
    """A cell outside the block is no cell; before, it raised an error or became another block's symbol."""
    entries = Entries(3, np.arange(3), np.array([0, cell, 1]), np.array([1.0, 1.0, 1.0]))
    drawn = symbols.draw(entries, np.random.default_rng(0))
    assert drawn.min() >= -1 and drawn.max() < symbols.count
    if isinstance(symbols, Cell | SignedCell):
        assert drawn[1] == -1


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_door_names_the_column_and_the_first_row_that_is_no_number(bad):
    features = np.ones((4, 3))
    features[2:, 1] = bad
    with pytest.raises(InputError, match="column 'features', found NaN or infinity first in row 2"):
        fc.Records.of_logits(np.zeros((4, 2)), [0, 1, 0, 1], features=features)
    with pytest.raises(InputError, match="column 'rival', found NaN or infinity first in row 0"):
        fc.Records.of_scores([0.5, 0.5], [0, 1], rival=np.array([bad, 0.5], dtype=np.float32))
    kept = fc.Records.of_scores([0.5], [0], site=["north"], domain=[3], time=np.array([7], dtype="datetime64[D]"))
    assert set(kept.extra) == {"site", "domain", "time"}


def test_a_rival_score_outside_the_unit_interval_counts_as_the_nearer_end():
    records = fc.Records.of_scores([0.5] * 3, [1] * 3, rival=[-4.0, 0.5, 7.0])
    assert ScoreLeaves(4, "rival").pooled(records).tolist() == [0.0] * 4 + [1.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("query", MANY_KINDS, ids=repr)
def test_no_records_or_one_class_are_nothing_special(query):
    scale = query.spread({name: grid(block) for name, block in query.blocks.items()})
    none = fc.Records.of_logits(np.zeros((0, 3)), np.zeros(0, dtype=int))
    assert not query.total(Federation.of([none]), fc.Simulated(0), scale).any()
    same = fc.Records.of_logits(np.zeros((2, 3)), [2, 2])
    check_encoded(query, same.take(slice(0, 1)))
