"""Domains with many records get their own temperature, those with few borrow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedcalib as fc
from fedcalib.errors import InputError
from fedcalib.methods.domain_shift import DomainGaps, shrink
from fedcalib.queries.shift import ConfidenceGaps


def mixed(sizes: list[int], temperatures: list[float], seed: int = 0) -> fc.Records:
    """Domains whose logits are too sharp by a factor of their own."""
    rng = np.random.default_rng(seed)
    domain = np.repeat(np.arange(len(sizes)), sizes)
    logits = 1.5 * rng.normal(size=(len(domain), 4))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (probs.cumsum(axis=1) < rng.random(len(domain))[:, None]).sum(axis=1)
    return fc.Records.of_logits(logits * np.array(temperatures)[domain][:, None], labels, domain=domain)


def ask(records: fc.Records, domains: int, privacy: fc.privacy.Privacy | None = None) -> object:
    runtime = fc.InProcess(fc.Federation.iid(records, 5, seed=0))
    method = fc.methods.DomainTemperatures(domains, places=(1.0, 1.5, 2.0, 3.0, 4.5))
    return fc.run(method, runtime, privacy or fc.Open(), randomness=fc.Simulated(0)).artifact


@pytest.mark.parametrize("privacy", [fc.Open(), fc.DistributedDP(epsilon=2.0)], ids=repr)
def test_large_domains_get_their_own(privacy: fc.privacy.Privacy) -> None:
    found = ask(mixed([8000, 8000, 8000], [1.2, 2.0, 4.0]), 3, privacy)
    np.testing.assert_allclose([found.of(d).temperature for d in range(3)], [1.2, 2.0, 4.0], rtol=0.12)


def test_calibrated_domains_are_left_alone_through_noise() -> None:
    found = [ask(mixed([300] * 3, [1.0] * 3, seed), 3, fc.DistributedDP(epsilon=0.5)) for seed in range(40)]
    changed = [any(one.of(domain).temperature != 1.0 for domain in range(3)) for one in found]
    assert np.mean(changed) <= 0.1  # 3% and two standard errors
    assert ask(mixed([300] * 3, [3.0] * 3), 3, fc.DistributedDP(epsilon=0.5)).overall.temperature > 2


def test_small_domains_borrow() -> None:
    found = ask(mixed([6000, 6000, 6000, 12], [2.0, 2.1, 2.2, 2.1], seed=1), 4)
    assert found.of(3).temperature == pytest.approx(found.overall.temperature, rel=0.15)


def test_domains_that_do_not_differ_are_one() -> None:
    found = ask(mixed([300, 300, 300], [2.0, 2.0, 2.0], seed=2), 3)
    for domain in range(3):
        assert found.of(domain).temperature == pytest.approx(found.overall.temperature, rel=0.1)


@given(
    st.lists(st.tuples(st.floats(-3, 3), st.floats(1e-6, 10)), min_size=1, max_size=8), st.floats(-3, 3)
)  # fmt: skip
def test_shrinking_stays_between(pairs: list[tuple[float, float]], overall: float) -> None:
    own, doubt = (np.array(column) for column in zip(*pairs, strict=True))
    shrunk = shrink(own, doubt, overall)
    assert (shrunk >= np.minimum(own, overall) - 1e-9).all()
    assert (shrunk <= np.maximum(own, overall) + 1e-9).all()


def test_a_record_touches_its_own_domain_only() -> None:
    records = mixed([3, 2], [1.0, 3.0])
    query = DomainGaps((1.0, 2.0, 4.0), 2)
    rows = query.rows(records).dense(query.size)
    alone = np.asarray(ConfidenceGaps((1.0, 2.0, 4.0)).rows(records).values)
    np.testing.assert_allclose(rows[:3, :3], alone[:3])
    np.testing.assert_allclose(rows[3:, 3:6], alone[3:])
    assert rows[:, 6:].tolist() == [[1, 0]] * 3 + [[0, 1]] * 2
    assert not rows[:3, 3:6].any()
    assert np.abs(rows[:, :6]).sum(axis=1).max() <= 1


def test_nonsense_is_refused() -> None:
    with pytest.raises(InputError, match="column 'domain'"):
        ask(fc.Records.of_logits(np.zeros((5, 3)), [0, 1, 2, 0, 1]), 2)
    with pytest.raises(InputError):
        fc.methods.DomainTemperatures(0)
    with pytest.raises(InputError):
        fc.methods.DomainTemperatures(2, places=(1.0,))
    with pytest.raises(InputError, match="domain from 0"):
        ask(mixed([30, 30], [1.0, 2.0]), 2).of(2)


def test_domains_as_files_have_them_are_the_same() -> None:
    """Text that is not a number of a domain is in none, as a number out of range is."""
    numbers = np.array([0.0, 1.0, -1.0, 7.0, 1.0])
    words = np.array(["0", "01", "north", "99999999999999999999", "1"])
    logits, labels = np.random.default_rng(0).normal(size=(5, 2)), [0, 1, 1, 0, 1]
    asked = DomainGaps((1.0, 2.0), 2)
    found = [asked.pooled(fc.Records.of_logits(logits, labels, domain=column)) for column in (numbers, words)]
    np.testing.assert_array_equal(*found)
