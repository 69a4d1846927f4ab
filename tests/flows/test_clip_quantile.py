from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcalib as fc
from fedcalib import accounting, registry, wire
from fedcalib.errors import InputError
from fedcalib.flows.wrapped import DEFAULT_EDGES, clip_quantile, clipped_sum
from fedcalib.queries.class_tables import LabelHistogram
from fedcalib.queries.reliability import Losses, TopLabelTable
from fedcalib.queries.wrapped import Clipped, NormHistogram
from fedcalib.query import Join
from tests.privacy.small_queries import one_by_one, scored, served
from tests.strategies import federations

JOINED = Join((TopLabelTable(4), Losses(6.0)))


@dataclass(frozen=True)
class ClippedHistogram(fc.Method[tuple[float, np.ndarray]]):
    """Choose a clip privately, then count within it."""

    bins: int = 4
    quantile: float = 0.5
    weight: float = 0.2

    def protocol(self, schema):
        query = LabelHistogram(schema.classes, self.bins)
        clip = yield from clip_quantile(query, self.quantile, weight=self.weight)
        answer = yield from clipped_sum(query, clip)
        return clip, answer["1"], answer.variance("1")


if ClippedHistogram.__name__ not in registry.names():
    registry.register(ClippedHistogram)


def alike(sizes):
    """Make clients whose records all fall into one cell, so that the norm is the size."""
    sizes = np.asarray(sizes)
    records = fc.Records.of_scores(np.full(sizes.sum(), 0.9), np.ones(sizes.sum(), dtype=int))
    return fc.Federation.grouped(records, np.repeat(np.arange(len(sizes)), sizes), len(sizes))


def ask(federation, privacy, **options):
    return fc.run(ClippedHistogram(**options), fc.InProcess(federation), privacy, randomness=fc.Simulated(1))


def test_without_noise_the_clip_is_the_quantile_and_the_sum_is_cut_there():
    federation = alike([1] * 30 + [8] * 50 + [1000] * 20)
    clip, counts, variance = ask(federation, fc.Open()).artifact
    assert clip == 8.0
    assert counts.sum() == pytest.approx(30 + 50 * 8 + 20 * 8, rel=1e-6)
    assert not variance.any()


@pytest.mark.parametrize("privacy", [fc.UserGaussian(1.0, 1e-5), fc.DistributedDP(1.0), fc.DistributedDP(1.0, 1e-6)])
def test_with_noise_the_choice_is_paid_for_and_close(privacy):
    federation = alike([1] * 1500 + [8] * 2500 + [1000] * 1000)
    run = ask(federation, privacy, bins=1)
    clip, counts, variance = run.artifact
    assert 4.0 <= clip <= 16.0
    expected = 1500 * min(1, clip) + 2500 * min(8, clip) + 1000 * clip
    assert abs(counts[0, 0] - expected) < 6 * np.sqrt(variance[0, 0])
    cohort, drawn = run.cohort, fc.Everyone()
    events = [privacy.mechanism(query, run.plan, cohort, drawn).event(query, cohort) for query in run.plan.queries]
    assert len(events) == 2
    assert accounting.epsilon(events, privacy.delta) == pytest.approx(1.0, abs=1e-6)
    assert accounting.epsilon(events[1:], privacy.delta) < 0.97  # the choice took its part


def test_the_plan_does_not_depend_on_the_clip():
    assert dict(Clipped(JOINED, 1.0).blocks) == dict(Clipped(JOINED, 500.0).blocks)


@given(federations(3), st.sampled_from([0.01, 1.0, 3.0, 100.0]))
def test_a_clipped_client_never_has_a_norm_above_one(federation, clip):
    query = Clipped(JOINED, clip)
    for records in federation.clients():
        term = query.term(records, np.random.default_rng(0))
        for name, part in query.split(term).items():
            assert np.linalg.norm(part) <= 1, name
            assert np.abs(part).sum() <= query.blocks[name].bound.l1


@given(federations(3), st.sampled_from([0.5, 4.0]))
def test_clipped_sums_add_up_over_clients(federation, clip):
    for query in (Clipped(JOINED, clip), NormHistogram(JOINED, (1.0, 2.0, 4.0))):
        scale = np.full(query.size, 1024.0)
        together = query.total(federation, fc.Simulated(0), scale)
        apart = [query.total(fc.Federation.of([records]), fc.Simulated(0), scale) for records in federation.clients()]
        assert (together == np.sum(apart, axis=0)).all()
        terms = [query.term(records, np.random.default_rng(0)) for records in federation.clients()]
        assert np.allclose(query.total(federation, fc.Simulated(0)), np.sum(terms, axis=0))


def test_a_wide_clip_changes_nothing_and_a_narrow_one_keeps_ratios():
    federation = scored(0, 200, 1)
    exact = JOINED.total(federation, fc.Simulated(0))
    wide, narrow = Clipped(JOINED, 1000.0), Clipped(JOINED, 2.0)
    assert np.allclose(wide.total(federation, fc.Simulated(0)) * wide.spread(wide.units), exact)
    shrunk = narrow.total(federation, fc.Simulated(0)) * narrow.spread(narrow.units)
    assert np.allclose(shrunk * (exact @ exact) / (exact @ shrunk), exact)
    assert np.linalg.norm(shrunk) < 0.1 * np.linalg.norm(exact)


def test_each_client_with_records_is_counted_once_in_the_histogram_of_norms():
    federation = alike([0, 1, 2, 3, 100_000])
    query = NormHistogram(LabelHistogram(2, 4), (1.0, 2.0, 4.0))
    assert query.total(federation, fc.Simulated(0)).tolist() == [1, 1, 1, 1]
    mechanism = served(fc.UserGaussian(1.0, 1e-5), query)
    together = mechanism.gather(query, federation, fc.Simulated(0))
    assert (together == one_by_one(mechanism, query, federation, fc.Simulated(0))).all()


def test_queries_around_queries_cross_the_wire():
    for query in (Clipped(JOINED, 3.0), NormHistogram(JOINED, DEFAULT_EDGES, 0.1)):
        assert wire.loads(wire.dumps(query)) == query


def test_what_cannot_be_is_refused():
    with pytest.raises(InputError, match="clip above 0"):
        Clipped(JOINED, 0.0)
    with pytest.raises(InputError, match="increasing edges"):
        NormHistogram(JOINED, (2.0, 1.0))
    with pytest.raises(InputError, match="weight above 0"):
        NormHistogram(JOINED, (1.0,), 0.0)
    with pytest.raises(InputError, match="quantile between 0 and 1"):
        next(clip_quantile(JOINED, 1.0))
