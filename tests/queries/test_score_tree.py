from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcalib as fc
from fedcalib.errors import InputError
from fedcalib.queries.scores import ScoreLeaves, ScoreTree
from tests.strategies import federations


@given(federations(2), st.integers(2, 5), st.integers(1, 4))
def test_fast_sum_is_the_sum_of_the_rows(federation: fc.Federation, arity: int, height: int) -> None:
    query = ScoreTree(arity, height)
    rows = query.rows(federation.records).sum(query.size)
    assert query.total(federation, fc.Simulated(0)).tolist() == rows.tolist()
    exact = query.sufficient.total(federation, fc.Simulated(0))
    assert query.expand(exact).tolist() == rows.tolist()


@given(federations(2), st.integers(1, 9))
def test_leaves_count_by_label_and_score(federation: fc.Federation, leaves: int) -> None:
    table = ScoreLeaves(leaves).total(federation, fc.Simulated(0)).reshape(2, leaves)
    records = federation.records
    assert table.sum(axis=1).tolist() == [int((records.labels == 0).sum()), int((records.labels == 1).sum())]
    expected = np.histogram2d(
        records.labels, np.minimum(np.floor(records.score * leaves), leaves - 1), bins=(range(3), range(leaves + 1))
    )[0]
    assert table.tolist() == expected.tolist()


def test_secure_aggregation_sends_leaves_only_and_the_method_sees_all_levels() -> None:
    query = ScoreTree(4, 3)
    data = fc.Federation.iid(fc.Records.of_scores(np.linspace(0, 1, 40), np.arange(40) % 2), 5, 0)
    for privacy in (fc.Open(), fc.SecAgg()):
        mechanism = privacy.mechanism(query, fc.method.Plan((query,)), fc.cohort.Cohort(5), fc.Everyone())
        share = mechanism.encode(query, data.client(0), fc.Simulated(0))
        assert len(share) == 2 * 64 == mechanism.width(query)
        value, variance = mechanism.decode(query, mechanism.gather(query, data, fc.Simulated(0)), 5, fc.Simulated(0))
        assert value.tolist() == query.rows(data.records).sum(query.size).tolist()
        assert len(variance) == query.size == 2 * (4 + 16 + 64)


def test_distributed_noise_covers_all_levels_at_their_share() -> None:
    query = ScoreTree(4, 5)
    mechanism = fc.DistributedDP(1.0).mechanism(
        query, fc.method.Plan((query,)), fc.cohort.Cohort(1000, floor=1000), fc.Everyone()
    )
    cost = mechanism.event(query, fc.cohort.Cohort(1000, floor=1000))
    assert cost.epsilon == pytest.approx(1.0)
    _, variance = mechanism.decode(query, np.zeros(query.size, np.uint64), 1000, fc.Simulated(0))
    np.testing.assert_allclose(variance, 2 * np.exp(-0.2) / (1 - np.exp(-0.2)) ** 2, rtol=1e-9)


def test_a_rivals_scores_come_from_their_own_column() -> None:
    records = fc.Records.of_scores([0.1, 0.9], [0, 1], rival=[0.6, 0.2])
    assert ScoreLeaves(2, "rival").pooled(records).tolist() == [0, 1, 1, 0]
    with pytest.raises(InputError, match="column 'rivall'"):
        ScoreLeaves(2, "rivall").pooled(records)
    beyond = fc.Records.of_scores([0.1, 0.9], [0, 1], rival=[0.6, 1.2])  # a refusal would reveal the record
    assert ScoreLeaves(2, "rival").pooled(beyond).tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(("arity", "height"), [(1, 3), (2, 0), (2, 40), (4, 11), (2, -1)])
def test_absurd_trees_are_refused(arity: int, height: int) -> None:
    with pytest.raises(InputError, match="at most 2\\^20 leaves"):
        ScoreTree(arity, height)
