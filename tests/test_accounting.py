from __future__ import annotations

from collections.abc import Sequence
from math import exp, expm1, inf, log, pi, sqrt

import numpy as np
import pytest
from benchmarks.noise_table import markdown, noise_table
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from fedcalib.accounting import (
    ORDERS,
    analytic_gaussian_multiplier,
    compose,
    discrete_laplace_variance,
    distributed_gaussian_rho,
    distributed_gaussian_sigma,
    epsilon,
    group,
    multiplier_for,
    polya_epsilon,
    rho_for,
)
from fedcalib.accounting.events import Composed, Concentrated, Event, Parallel, Pure, Repeated, SampledGaussian
from fedcalib.errors import InputError
from fedcalib.types import Floats
from tests.examples import examples

DELTA = 1e-5
EPSILONS = st.floats(0.01, 20)
DELTAS = st.floats(1e-12, 0.1)
RHOS = st.floats(1e-6, 20)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(Pure, st.floats(0, 3)),
    st.builds(Concentrated, st.floats(0, 1)),
    st.builds(SampledGaussian, st.floats(0.8, 20), st.sampled_from([0.01, 0.3, 1.0])),
)


def divergence(order: float, first: Floats, second: Floats) -> float:
    """The Renyi divergence of two laws on the same grid."""
    return float(special.logsumexp(order * np.log(first) + (1 - order) * np.log(second)) / (order - 1))


class TestVectors:
    def test_rho(self) -> None:
        assert rho_for(1, DELTA) == pytest.approx(0.0305566, abs=5e-8)
        assert rho_for(3, DELTA) == pytest.approx(0.2242492, abs=5e-8)
        assert rho_for(10, DELTA) == pytest.approx(1.782696, abs=5e-7)

    def test_exact_single_release(self) -> None:
        assert analytic_gaussian_multiplier(1, DELTA) == pytest.approx(3.7306, abs=5e-5)

    @pytest.mark.parametrize(
        ("budget", "steps", "exact", "concentrated"),
        [
            (1, 1, 3.731, 4.045),
            (3, 1, 1.391, 1.493),
            (10, 1, 0.500, 0.530),
            (1, 12, 12.92, 14.01),
            (3, 12, 4.82, 5.17),
            (10, 12, 1.73, 1.83),
        ],
    )
    def test_multipliers_with_everybody(self, budget: float, steps: int, exact: float, concentrated: float) -> None:
        digits = 5e-4 if steps == 1 else 5e-3
        assert analytic_gaussian_multiplier(budget, DELTA, steps) == pytest.approx(exact, abs=digits)
        assert multiplier_for(budget, DELTA, steps) == pytest.approx(concentrated, abs=digits)

    @pytest.mark.parametrize(
        ("budget", "steps", "multiplier", "digits"),
        [
            (1, 12, 2.00, 5e-3),
            (3, 12, 1.10, 5e-3),
            (10, 12, 0.653, 5e-4),
            (1, 30, 2.62, 5e-3),
            (3, 30, 1.29, 5e-3),
            (10, 30, 0.732, 5e-4),
        ],
    )
    def test_multipliers_under_sampling(self, budget: float, steps: int, multiplier: float, digits: float) -> None:
        assert multiplier_for(budget, DELTA, steps, 0.1) == pytest.approx(multiplier, abs=digits)

    @pytest.mark.parametrize(
        ("a", "expected"),
        [
            (0.1, (0.146, 0.305, 0.606, 1.152)),
            (1.0, (1.099, 1.342, 1.675, 2.189)),
            (5.0, (5.105, 5.357, 5.693, 6.204)),
        ],
    )
    def test_missing_shares(self, a: float, expected: Sequence[float]) -> None:
        assert [polya_epsilon(b, a) for b in (0.9, 0.7, 0.5, 0.3)] == pytest.approx(expected, abs=5e-4)

    def test_variance(self) -> None:
        assert discrete_laplace_variance(1) == pytest.approx(1.84135, abs=5e-6)
        k = np.arange(-4000, 4001)
        law = np.exp(-np.abs(k) / 37.5)
        assert discrete_laplace_variance(37.5) == pytest.approx((law * k**2).sum() / law.sum())

    def test_missing_shares_to_four_digits(self) -> None:
        assert polya_epsilon(0.5, 1) == pytest.approx(1.6751, abs=5e-5)
        assert polya_epsilon(0.9, 0.1) == pytest.approx(0.1459, abs=5e-5)

    def test_twelve_releases_turned_into_epsilon_alone_seem_three_times_as_dear(self) -> None:
        each = Concentrated(rho_for(1, DELTA) / 12)
        assert epsilon([Repeated(each, 12)], DELTA) == pytest.approx(1)
        assert 12 * epsilon([each], DELTA) == pytest.approx(3.1, abs=0.05)


class TestEpsilon:
    def test_pure_events_add_up_as_decimals(self) -> None:
        assert epsilon([Pure(0.1)] * 10, 0) == 1.0
        assert epsilon([Pure(0.1), Pure(0.2)], 0) == 0.3
        assert epsilon([Repeated(Pure(0.01), 100)], DELTA) == 1.0
        assert epsilon([], 0) == 0

    @given(RHOS, DELTAS)
    def test_the_best_order_is_the_best(self, rho: float, delta: float) -> None:
        orders = 1 + np.geomspace(1e-3, 1e5, 4000)
        price = orders * rho + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
        found = epsilon([Concentrated(rho)], delta)
        assert found <= max(price.min(), 0) + 1e-9 * (1 + rho)
        assert found >= max(price.min(), 0) - 1e-4 * (1 + price.min())

    @given(EPSILONS, DELTAS)
    def test_rho_is_the_largest_that_fits(self, budget: float, delta: float) -> None:
        rho = rho_for(budget, delta)
        assert epsilon([Concentrated(rho)], delta) <= budget * (1 + 1e-12)
        assert epsilon([Concentrated(rho * (1 + 1e-6))], delta) > budget

    @given(st.lists(EVENTS, max_size=4), EVENTS, st.floats(1e-9, 0.01))
    def test_one_more_event_never_costs_less(self, events: list[Event], more: Event, delta: float) -> None:
        assume(any(event.pure() == inf for event in events))  # pure events alone do not make use of delta
        assert epsilon([*events, more], delta) >= epsilon(events, delta) - 1e-9

    @given(st.lists(EVENTS, min_size=1, max_size=4), st.floats(1e-9, 0.01))
    def test_together_never_costs_more_than_apart(self, events: list[Event], delta: float) -> None:
        pure = [event for event in events if event.pure() < inf]
        others = [event for event in events if event not in pure]
        apart = epsilon(pure, delta) + (epsilon(others, delta) if others else 0)
        assert epsilon(events, delta) <= apart * (1 + 1e-12)

    @given(st.lists(EVENTS, min_size=1, max_size=3), st.floats(1e-9, 1e-3))
    def test_a_smaller_delta_costs_more(self, events: list[Event], delta: float) -> None:
        assert epsilon(events, delta) >= epsilon(events, delta * 2) - 1e-9

    @given(st.lists(EVENTS, min_size=1, max_size=3), st.integers(1, 5), st.floats(1e-9, 1e-3))
    def test_nesting_changes_nothing(self, events: list[Event], times: int, delta: float) -> None:
        flat = epsilon(events * times, delta)
        assert epsilon([Repeated(Composed(tuple(events)), times)], delta) == pytest.approx(flat, rel=1e-9)
        assert epsilon([Composed((Composed(tuple(events * times)),))], delta) == pytest.approx(flat, rel=1e-9)

    def test_many_small_pure_events_are_converted_with_the_rest(self) -> None:
        small = Repeated(Pure(0.05), 400)
        together = epsilon([small, Concentrated(0.01)], DELTA)
        line = epsilon([Concentrated(small.concentrated() + 0.01)], DELTA)
        assert 0.99 * line < together <= line < 5  # added up, they cost 20 alone

    def test_a_large_pure_event_is_hardly_cheaper_with_the_rest(self) -> None:
        rest = epsilon([Concentrated(0.01)], DELTA)
        assert 0.99 * (3 + rest) < epsilon([Pure(3), Concentrated(0.01)], DELTA) <= 3 + rest

    def test_a_pure_event_is_added_where_no_integer_order_serves_the_rest(self) -> None:
        rest = epsilon([Concentrated(50)], 0.1)  # its best order is below 2
        assert epsilon([Pure(20), Concentrated(50)], 0.1) == 20 + rest

    def test_a_sampled_release_of_everybody_is_concentrated(self) -> None:
        assert epsilon([SampledGaussian(2.0)], DELTA) == epsilon([Concentrated(0.125)], DELTA)

    def test_endless_noise_is_free(self) -> None:
        assert epsilon([SampledGaussian(inf)], DELTA) == 0

    def test_no_delta_no_gaussian(self) -> None:
        with pytest.raises(InputError, match="not every release is pure"):
            epsilon([Concentrated(0.1)], 0)

    def test_phases(self) -> None:
        phases = {"train": [SampledGaussian(2.0, 0.1)] * 5, "calibrate": [Concentrated(0.02)], "evaluate": [Pure(0.3)]}
        flat = [event for events in phases.values() for event in events]
        assert epsilon([compose(phases)], DELTA) == epsilon(flat, DELTA)
        assert epsilon([compose({})], 0) == 0

    def test_disjoint_cohorts_cost_the_dearest(self) -> None:
        assert epsilon([Parallel((Pure(1), Pure(2), Pure(0.5)))], 0) == 2
        cohorts = Parallel(tuple(Concentrated(0.1) for _ in range(12)))
        assert epsilon([cohorts], DELTA) == epsilon([Concentrated(0.1)], DELTA)
        mixed = Parallel((SampledGaussian(2, 0.1), SampledGaussian(1, 0.1)))
        assert epsilon([mixed], DELTA) == epsilon([SampledGaussian(1, 0.1)], DELTA)
        assert epsilon([Parallel(())], 0) == 0


class TestGroups:
    def test_pure_and_concentrated(self) -> None:
        assert group(Pure(0.1), 3) == Pure(0.3)
        assert group(Concentrated(0.5), 4) == Concentrated(8)
        assert group(SampledGaussian(6), 3) == SampledGaussian(2)

    def test_composites(self) -> None:
        event = Composed((Repeated(Pure(0.1), 2), Parallel((Concentrated(0.5), Pure(0.2)))))
        expected = Composed((Repeated(Pure(0.2), 2), Parallel((Concentrated(2), Pure(0.4)))))
        assert group(event, 2) == expected

    def test_a_sampled_release_is_refused(self) -> None:
        with pytest.raises(InputError, match="without sampling"):
            group(SampledGaussian(2, 0.1), 2)

    def test_a_group_has_a_member(self) -> None:
        with pytest.raises(InputError, match="at least 1"):
            group(Pure(1), 0)


class TestCurves:
    @pytest.mark.parametrize("cost", [0.01, 0.3, 1.0, 4.0, 20.0])
    def test_randomised_response_is_what_pure_is_taken_for(self, cost: float) -> None:
        truth = np.array([exp(cost), 1]) / (1 + exp(cost))
        for order in (2, 3, 8):
            assert Pure(cost).renyi(np.array([order]))[0] == pytest.approx(divergence(order, truth, truth[::-1]))
        for order in (1.0001, 1.01, 1.5, 2, 5, 30):
            assert divergence(order, truth, truth[::-1]) <= order * Pure(cost).concentrated() * (1 + 1e-9)
        assert Pure(cost).concentrated() <= cost**2 / 2

    @pytest.mark.parametrize("sigma", [0.7, 1.0, 2.5])
    @pytest.mark.parametrize("rate", [0.05, 0.4])
    def test_sampled_discrete_noise_keeps_the_curve_both_ways(self, sigma: float, rate: float) -> None:
        k = np.arange(-60, 61)
        law = np.exp(-0.5 * (k / sigma) ** 2)
        without, within = law / law.sum(), np.roll(law, 1) / law.sum()
        mixed = (1 - rate) * without + rate * within
        kept = (without > 1e-250) & (within > 1e-250)
        for order in (2, 3, 5):
            bound = SampledGaussian(sigma, rate).renyi(np.array([order]))[0]
            assert divergence(order, mixed[kept], without[kept]) <= bound * (1 + 1e-9)
            assert divergence(order, without[kept], mixed[kept]) <= bound * (1 + 1e-9)

    def test_the_curve_is_the_integral(self) -> None:
        z, rate = 1.3, 0.2

        def integrand(x: float, order: int) -> float:
            ratio = 1 - rate + rate * exp((2 * x - 1) / (2 * z * z))
            return float(stats.norm.pdf(x, scale=z) * ratio**order)

        for order in (2, 4, 7):
            moment = integrate.quad(integrand, -15, 25, args=(order,), epsabs=1e-12, limit=200)[0]
            assert SampledGaussian(z, rate).renyi(np.array([order]))[0] == pytest.approx(log(moment) / (order - 1))

    @pytest.mark.parametrize(("z", "rate", "steps"), [(2.0, 0.1, 12), (1.1, 0.1, 30), (0.8, 0.01, 1000), (4.0, 1.0, 5)])
    def test_dp_accounting_agrees(self, z: float, rate: float, steps: int) -> None:
        import dp_accounting as dp
        from dp_accounting.rdp import RdpAccountant

        accountant = RdpAccountant(orders=ORDERS.tolist())
        accountant.compose(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(z)), steps)
        ours = epsilon([Repeated(SampledGaussian(z, rate), steps)], DELTA)
        if rate < 1:
            assert ours == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)
        else:
            assert ours == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-2)
            assert ours <= accountant.get_epsilon(DELTA)

    @pytest.mark.parametrize(("z", "rate", "steps"), [(3.7306, 1.0, 1), (12.92, 1.0, 12), (2.0, 0.1, 12)])
    def test_the_privacy_loss_distribution_is_a_little_below(self, z: float, rate: float, steps: int) -> None:
        import dp_accounting as dp
        from dp_accounting.pld import PLDAccountant

        accountant = PLDAccountant(value_discretization_interval=1e-3)
        accountant.compose(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(z)), steps)
        tight = accountant.get_epsilon(DELTA)
        ours = epsilon([Repeated(SampledGaussian(z, rate), steps)], DELTA)
        assert tight < ours < 1.2 * tight
        if rate == 1:
            assert tight == pytest.approx(1, abs=2e-3)


class TestMultiplier:
    @settings(max_examples=examples(10))
    @given(EPSILONS, st.floats(1e-9, 1e-3), st.integers(1, 50), st.sampled_from([0.05, 0.5, 1.0]))
    def test_noise_keeps_the_budget_and_hardly_less_would(
        self, budget: float, delta: float, steps: int, rate: float
    ) -> None:
        z = multiplier_for(budget, delta, steps, rate)
        assert epsilon([Repeated(SampledGaussian(z, rate), steps)], delta) <= budget * (1 + 1e-9)
        assert epsilon([Repeated(SampledGaussian(z * 0.999, rate), steps)], delta) > budget

    @given(EPSILONS, DELTAS)
    def test_the_closed_form_solves_its_equation(self, budget: float, delta: float) -> None:
        mu = 1 / analytic_gaussian_multiplier(budget, delta)
        spent = stats.norm.cdf(mu / 2 - budget / mu) - exp(budget) * stats.norm.cdf(-mu / 2 - budget / mu)
        assert spent == pytest.approx(delta, rel=1e-3)
        assert analytic_gaussian_multiplier(budget, delta) <= multiplier_for(budget, delta)

    @settings(max_examples=examples(10))
    @given(EPSILONS, st.floats(1e-9, 1e-3), st.integers(1, 20))
    def test_more_of_anything_needs_more_noise(self, budget: float, delta: float, steps: int) -> None:
        z = multiplier_for(budget, delta, steps, 0.2)
        assert multiplier_for(budget, delta, steps + 1, 0.2) > z
        assert multiplier_for(budget, delta, steps, 0.3) > z
        assert multiplier_for(budget * 0.9, delta, steps, 0.2) > z

    def test_table(self) -> None:
        rows = noise_table()
        assert len(rows) == 24
        for row in rows:
            assert epsilon([Repeated(SampledGaussian(row.multiplier, row.rate), row.steps)], row.delta) <= (
                row.epsilon * (1 + 1e-9)
            )
            assert (row.exact is None) == (row.rate < 1)
            if row.exact is not None:
                assert 1.05 < row.multiplier / row.exact < 1.1
        best = min((row for row in rows if row.epsilon == 1), key=lambda row: row.per_term)
        assert best.rate == 1  # for sums, sampling never pays
        text = markdown(rows).splitlines()
        assert len(text) == 26
        assert {line.count("|") for line in text} == {7}


class TestPolya:
    @given(st.floats(0.01, 0.999), st.floats(1e-3, 5), st.integers(1, 20))
    def test_the_published_formula(self, b: float, a: float, distance: int) -> None:
        z = exp(-2 * a)
        ratio = special.hyp2f1(b, b, 1, z) / special.hyp2f1(b, b + distance, 1 + distance, z)
        gammas = special.gammaln(distance + 1) + special.gammaln(b) - special.gammaln(b + distance)
        assert polya_epsilon(b, a, distance) == pytest.approx(a * distance + log(ratio) + gammas, rel=1e-9)

    @pytest.mark.parametrize("b", [0.3, 0.5, 0.9, 1.0, 1.7])
    @pytest.mark.parametrize("distance", [1, 2, 5])
    def test_no_outcome_is_likelier_than_that(self, b: float, distance: int) -> None:
        single = stats.nbinom.pmf(np.arange(1500), b, -expm1(-0.3))
        law = np.convolve(single, single[::-1])[1499 - 60 : 1499 + 61]
        worst = np.abs(np.log(law[distance:] / law[:-distance])).max()
        bound = polya_epsilon(b, 0.3, distance)
        assert worst <= bound * (1 + 1e-9)
        assert b > 1 or worst == pytest.approx(bound)

    @pytest.mark.parametrize("cells", [2, 3, 10])
    def test_an_even_spread_is_the_dearest(self, cells: int) -> None:
        def dearest(left: int, cells: int) -> float:
            if cells == 1 or left == 0:
                return polya_epsilon(0.6, 0.2, left) if left else 0.0
            return max(
                (polya_epsilon(0.6, 0.2, here) if here else 0.0) + dearest(left - here, cells - 1)
                for here in range(left + 1)
            )

        assert polya_epsilon(0.6, 0.2, 5, cells) == pytest.approx(dearest(5, min(cells, 5)))

    @given(st.floats(0.05, 0.99), st.floats(1e-6, 5), st.integers(1, 1 << 24))
    def test_fewer_survivors_cost_more(self, b: float, a: float, distance: int) -> None:
        assert polya_epsilon(b, a, distance) >= polya_epsilon(b * 1.005, a, distance) - 1e-9
        assert polya_epsilon(b, a, distance) >= a * distance - 1e-9

    def test_a_fine_grid_makes_missing_shares_dearer(self) -> None:
        coarse, fine = polya_epsilon(0.5, 1), polya_epsilon(0.5, 2.0**-20, 1 << 20)
        assert coarse == pytest.approx(1.675, abs=1e-3)
        assert fine == pytest.approx(3.634, abs=1e-3)

    @given(st.floats(1, 100), st.floats(1e-6, 10), st.integers(1, 1 << 30))
    def test_with_all_shares_it_is_discrete_laplace(self, b: float, a: float, distance: int) -> None:
        assert polya_epsilon(b, a, distance) == a * distance
        assert polya_epsilon(0.999999999, 1.0, 3) == pytest.approx(3, abs=1e-6)


class TestDistributedGaussian:
    @pytest.mark.parametrize("sigma", [0.5, 0.7, 1.0])
    @pytest.mark.parametrize("shares", [1, 2, 6])
    @pytest.mark.parametrize("distance", [1, 3])
    def test_the_sum_of_shares_keeps_the_bound(self, sigma: float, shares: int, distance: int) -> None:
        k = np.arange(-40, 41)
        share = np.exp(-0.5 * (k / sigma) ** 2)
        law = np.ones(1)
        for _ in range(shares):
            law = np.convolve(law, share / share.sum())
        moved = np.concatenate([np.zeros(distance), law])
        law = np.concatenate([law, np.zeros(distance)])
        kept = (law > 1e-200) & (moved > 1e-200)
        rho = distributed_gaussian_rho(distance, distance, sigma, shares, 1)
        for order in (1.001, 1.1, 2, 4):
            assert divergence(order, law[kept], moved[kept]) <= order * rho * (1 + 1e-9)
            assert divergence(order, moved[kept], law[kept]) <= order * rho * (1 + 1e-9)

    def test_wide_shares_need_no_correction(self) -> None:
        assert distributed_gaussian_rho(30, 10, 4, 100, 1000) == pytest.approx(10**2 / (2 * 16 * 100), rel=1e-12)

    def test_each_of_the_three_bounds_can_be_the_smallest(self) -> None:
        def bounds(l1: float, l2: float, sigma: float, shares: int, d: int) -> list[float]:
            total = sigma * sqrt(shares)
            tau = 10 * sum(exp(-2 * (pi * sigma) ** 2 * k / (k + 1)) for k in range(1, shares))
            return [
                l2**2 / total**2 / 2 + tau * d,
                (l2**2 / total**2 + 2 * l1 / total * tau + tau**2 * d) / 2,
                (l2 / total + sqrt(d) * tau) ** 2 / 2,
            ]

        winners = set()
        for case in [(100, 10, 0.8, 5, 1), (10, 10, 0.8, 5, 1000), (1000, 10, 0.8, 5, 100), (1000, 1000, 0.6, 3, 2)]:
            assert distributed_gaussian_rho(*case) == pytest.approx(min(bounds(*case)))
            winners.add(int(np.argmin(bounds(*case))))
        assert winners == {0, 1, 2}

    @given(st.floats(1e-4, 5), st.floats(1, 100), st.integers(1, 1000), st.integers(1, 10_000))
    def test_the_least_share_keeps_rho(self, rho: float, l2: float, shares: int, dimension: int) -> None:
        l1 = l2 * sqrt(dimension)
        sigma = distributed_gaussian_sigma(rho, l1, l2, shares, dimension)
        assert distributed_gaussian_rho(l1, l2, sigma, shares, dimension) <= rho
        assume(sigma > 0.5001)
        assert distributed_gaussian_rho(l1, l2, sigma * 0.9999, shares, dimension) > rho

    def test_narrow_shares_are_refused(self) -> None:
        with pytest.raises(InputError, match="half a grid step"):
            distributed_gaussian_rho(1, 1, 0.4, 10, 1)


class TestRefusals:
    @pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf")])
    def test_budgets(self, bad: float) -> None:
        for find in (rho_for, multiplier_for, analytic_gaussian_multiplier):
            with pytest.raises(InputError, match="epsilon"):
                find(bad, DELTA)

    @pytest.mark.parametrize("bad", [0, 1, -0.1, float("nan")])
    def test_deltas(self, bad: float) -> None:
        for find in (rho_for, multiplier_for, analytic_gaussian_multiplier):
            with pytest.raises(InputError, match="delta"):
                find(1, bad)

    @pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf")])
    def test_events(self, bad: float) -> None:
        for make in (Pure, Concentrated):
            with pytest.raises(InputError, match="at least 0"):
                make(bad)

    def test_the_rest(self) -> None:
        with pytest.raises(InputError, match="multiplier"):
            SampledGaussian(0)
        with pytest.raises(InputError, match="rate"):
            SampledGaussian(1, 0)
        with pytest.raises(InputError, match="times"):
            Repeated(Pure(1), -1)
        with pytest.raises(InputError, match="step"):
            multiplier_for(1, DELTA, 0)
        with pytest.raises(InputError, match="delta"):
            epsilon([], 1)
        with pytest.raises(InputError, match="survivors"):
            polya_epsilon(0, 1)
        with pytest.raises(InputError, match="decay"):
            polya_epsilon(0.5, 0)
        with pytest.raises(InputError, match="sensitivity"):
            polya_epsilon(0.5, 1, 0)
        with pytest.raises(InputError, match="cell"):
            polya_epsilon(0.5, 1, 1, 0)
