from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import signal, stats

from fedcalib.errors import InputError
from fedcalib.randomness import Secure, Simulated, polya
from fedcalib.randomness.samplers import (
    CHUNK,
    at_least,
    below,
    bits,
    chunks,
    coins,
    fair_heads,
    halvings,
    heads,
    poisson,
    tosses,
    unit_poissons,
)
from fedcalib.types import Floats, Ints, Words

SEEDED = 1e-4  # with a seed, a test either fails or never does
SECURE = 1e-10  # without one, this is how often it fails by chance


def fit(draws: Ints, pmf: Floats, low: int) -> float:
    """p-value of draws under a law given from `low` up; cells expected below 10 times are pooled."""
    counts = np.bincount(np.clip(draws - low, -1, pmf.size) + 1, minlength=pmf.size + 2)
    chances = np.concatenate([[0.0], pmf, [max(1 - pmf.sum(), 0.0)]])
    rare = chances * draws.size < 10
    seen = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(chances[~rare], chances[rare].sum()) * draws.size
    if expected[-1] < 10:
        order = np.argsort(expected[:-1])
        seen[order[0]] += seen[-1]
        expected[order[0]] += expected[-1]
        seen, expected = seen[:-1], expected[:-1]
    return float(stats.chi2.sf(((seen - expected) ** 2 / expected).sum(), max(seen.size - 1, 1)))


def share_law(r: float, scale: float, reach: int) -> Floats:
    """Law of X - Y from -reach to reach, X and Y negative binomial, by convolution."""
    single = stats.nbinom.pmf(np.arange(4 * reach + 1), r, -np.expm1(-1 / scale))
    full = np.maximum(signal.fftconvolve(single, single[::-1]), 0)
    return full[3 * reach : 5 * reach + 1]


def laplace_law(scale: float, reach: int) -> Floats:
    k = np.abs(np.arange(-reach, reach + 1))
    return np.asarray(np.exp(-k / scale) * np.tanh(0.5 / scale))


def given_words(*batches: Sequence[int]) -> Callable[[int], Words]:
    """A source that hands out prepared words, and insists on the counts asked."""
    waiting = [np.array(batch, dtype=np.uint64) for batch in batches]

    def source(count: int) -> Words:
        batch = waiting.pop(0)
        assert batch.size == count
        return batch

    return source


@pytest.fixture
def source() -> Callable[[int], Words]:
    return Simulated(2024).words


class TestIntegers:
    def test_a_word_past_the_last_full_round_is_drawn_again(self) -> None:
        top = (1 << 64) - 1  # 2^64 = 1 mod 3: one word too many
        assert below(given_words([top, top - 1], [5]), 3, 2).tolist() == [5 % 3, (top - 1) % 3]

    def test_a_power_of_two_rejects_nothing(self) -> None:
        top = (1 << 64) - 1
        assert below(given_words([top, 0]), 1 << 40, 2).tolist() == [(1 << 40) - 1, 0]

    @given(bound=st.integers(1, 1 << 62), word=st.integers(0, (1 << 64) - 1))
    def test_words_are_kept_exactly_below_the_last_multiple(self, bound: int, word: int) -> None:
        kept = word < (1 << 64) // bound * bound
        drawn = below(given_words([word], [0]), bound, 1)
        assert drawn.tolist() == [word % bound if kept else 0]

    def test_uniform(self, source: Callable[[int], Words]) -> None:
        drawn = below(source, 7, 70_000).astype(np.int64)
        assert fit(drawn, np.full(7, 1 / 7), 0) > SEEDED

    def test_bounds_may_differ(self, source: Callable[[int], Words]) -> None:
        bounds = np.array([1, 2, 3, 10**18] * 1000, dtype=np.uint64)
        drawn = below(source, bounds, bounds.size)
        assert (drawn < bounds).all()
        assert fit(drawn[2::4].astype(np.int64), np.full(3, 1 / 3), 0) > SEEDED

    def test_bits_of_mixed_widths(self) -> None:
        top = (1 << 64) - 1
        widths = np.array([0, 1, 8, 62])
        assert bits(given_words([top] * 4), widths, 4).tolist() == [0, 1, 255, (1 << 62) - 1]

    def test_a_word_of_zeros_goes_on_into_the_next(self) -> None:
        assert halvings(given_words([0, 1, 12], [1 << 63]), 3).tolist() == [127, 0, 2]

    def test_halvings(self, source: Callable[[int], Words]) -> None:
        assert fit(halvings(source, 100_000), 0.5 ** np.arange(1, 40), 0) > SEEDED

    def test_coins(self, source: Callable[[int], Words]) -> None:
        assert not coins(source, Fraction(0), 100).any()
        assert coins(source, Fraction(1), 100).all()
        drawn = coins(source, Fraction(10**17, 3 * 10**17 + 1), 100_000).astype(np.int64)
        assert fit(drawn, np.array([2 / 3, 1 / 3]), 0) > SEEDED


class TestPoisson:
    def test_units(self, source: Callable[[int], Words]) -> None:
        assert fit(unit_poissons(source, 400_000), stats.poisson.pmf(np.arange(15), 1), 0) > SEEDED

    @pytest.mark.parametrize("rate", [Fraction(0), Fraction(1, 7), Fraction(3), Fraction(22, 7)])
    def test_rational_means(self, source: Callable[[int], Words], rate: Fraction) -> None:
        drawn = np.array([poisson(source, rate) for _ in range(1000)])
        assert fit(drawn, stats.poisson.pmf(np.arange(30), float(rate)), 0) > SEEDED

    def test_a_large_mean_is_drawn_in_chunks(self, source: Callable[[int], Words]) -> None:
        mean = 3 * CHUNK + 5
        drawn = poisson(source, Fraction(mean))
        assert abs(drawn - mean) < 5 * mean**0.5

    @given(st.integers(0, 5 * CHUNK))
    def test_chunks_cover(self, count: int) -> None:
        assert sum(chunks(count)) == count
        assert all(0 < size <= CHUNK for size in chunks(count))


class TestDecay:
    @given(st.floats(2**-25, 2**48))
    def test_a_float_scale_is_taken_exactly_or_with_more_noise(self, scale: float) -> None:
        decay = polya._Decay.of(Fraction(scale))
        alpha = decay.fraction * 2**decay.doublings
        taken, asked = alpha / 2**decay.octaves, 1 / Fraction(scale)
        assert taken <= asked
        if scale >= 1:
            assert taken == asked
        elif scale >= 2**-20:
            assert asked - taken <= asked / 2**39

    @given(st.fractions(min_value=Fraction(1, 1 << 20), max_value=1 << 48))
    def test_thinning_probabilities_are_probabilities(self, scale: Fraction) -> None:
        decay = polya._Decay.of(scale)
        alpha = decay.fraction * 2**decay.doublings
        assert alpha >= 1
        assert decay.octaves == 0 or alpha < 2
        assert Fraction(1, 2) < decay.fraction <= 1
        assert decay.inverse == 1 / alpha
        assert max(decay.fraction.denominator, decay.inverse.denominator) < 1 << 63

    @pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1), Fraction((1 << 50) + 1)])
    def test_scales_out_of_range(self, scale: Fraction) -> None:
        with pytest.raises(InputError, match="noise scale"):
            polya._Decay.of(scale)

    def test_a_long_shape_is_rounded_up(self) -> None:
        asked = Fraction(1, 3**50)
        assert 0 <= polya._rounded_up(asked) - asked < Fraction(1, 1 << 60)
        assert polya._rounded_up(Fraction(1, 10**9)) == Fraction(1, 10**9)


class TestPolya:
    @pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(10), Fraction(997, 10), Fraction(1 << 10)])
    def test_jumps_follow_the_logarithmic_law(self, source: Callable[[int], Words], scale: Fraction) -> None:
        jumps = polya._jumps(source, polya._Decay.of(scale), 60_000)
        k = np.arange(1, ceil(60 * scale) + 2)
        weights = np.exp(-k / float(scale)) / k
        assert fit(jumps, weights / weights.sum(), 1) > SEEDED

    @pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(5, 4), Fraction(10), Fraction(1 << 20)])
    def test_as_many_jumps_survive_as_should(self, source: Callable[[int], Words], scale: Fraction) -> None:
        decay, points = polya._Decay.of(scale), 60_000
        rate = -np.log(-np.expm1(-1 / float(scale)))  # the sum of e^(-ak)/k
        chance = rate / (decay.octaves + 2)
        survived = polya._jumps(source, decay, points).size
        assert stats.binomtest(survived, points, chance).pvalue > SEEDED

    @pytest.mark.parametrize("r", [Fraction(1, 3), Fraction(1, 100), Fraction(1), Fraction(7, 5)])
    @pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(1), Fraction(10), Fraction(1000)])
    def test_law(self, source: Callable[[int], Words], r: Fraction, scale: Fraction) -> None:
        cells = 40_000 if r < 1 else 15_000
        draws = polya.shares(source, r, scale, cells)
        reach = ceil(12 * scale) + 5
        assert fit(draws, share_law(float(r), float(scale), reach), -reach) > SEEDED

    @pytest.mark.parametrize("r", [Fraction(1, 3), Fraction(1, 100), Fraction(1)])
    @pytest.mark.parametrize("scale", [1 << 20, 1 << 24, 1 << 40])
    def test_law_at_a_large_scale(self, source: Callable[[int], Words], r: Fraction, scale: int) -> None:
        draws = polya.shares(source, r, Fraction(scale), 20_000)
        rng = np.random.default_rng(7)
        first, second = rng.poisson(rng.gamma(float(r), 1 / np.expm1(1 / scale), (2, 200_000)))
        edges = np.concatenate([-np.geomspace(20 * scale, 1, 60), np.geomspace(1, 20 * scale, 60)])
        theirs = np.bincount(np.searchsorted(edges, first - second), minlength=121) / first.size
        assert stats.ks_2samp(draws, first - second).pvalue > SEEDED
        common = theirs > 1e-3
        ours = np.bincount(np.searchsorted(edges, draws), minlength=121)
        table = np.stack([ours[common], (theirs * first.size)[common]])
        assert stats.chi2_contingency(table).pvalue > SEEDED

    @pytest.mark.parametrize("arrived", [7, 4, 1])
    def test_shares_add_up_also_when_some_are_missing(self, source: Callable[[int], Words], arrived: int) -> None:
        total = sum(polya.shares(source, Fraction(1, 7), Fraction(3), 30_000) for _ in range(arrived))
        law = laplace_law(3, 60) if arrived == 7 else share_law(arrived / 7, 3, 60)
        assert fit(np.asarray(total), law, -60) > SEEDED

    def test_missing_shares_are_noticed(self, source: Callable[[int], Words]) -> None:
        total = sum(polya.shares(source, Fraction(1, 7), Fraction(3), 30_000) for _ in range(6))
        assert fit(np.asarray(total), laplace_law(3, 60), -60) < 1e-9

    def test_cells_are_independent(self, source: Callable[[int], Words]) -> None:
        first, second = polya.shares(source, Fraction(1, 2), Fraction(5), 20_000).reshape(2, -1)
        assert stats.spearmanr(first, second).pvalue > SEEDED
        assert stats.spearmanr(np.abs(first), np.abs(second)).pvalue > SEEDED

    def test_no_cells_and_almost_no_noise(self, source: Callable[[int], Words]) -> None:
        assert polya.shares(source, Fraction(1, 2), Fraction(5), 0).size == 0
        assert not polya.shares(source, Fraction(1, 2), Fraction(1, 1 << 30), 500).any()

    def test_work_grows_with_the_logarithm_of_the_scale_only(self, source: Callable[[int], Words]) -> None:
        def drawn(scale: int) -> int:
            counts: list[int] = []

            def counted(count: int) -> Words:
                counts.append(count)
                return source(count)

            polya.shares(counted, Fraction(1, 100), Fraction(scale), 2048)
            return sum(counts)

        assert drawn(1 << 40) < 2.5 * drawn(1 << 20)


class TestBernoulli:
    @pytest.mark.parametrize("numerator", [0, 1, 1 << 31, 0xDEADBEEF, (1 << 32) - 1, 1 << 32])
    @pytest.mark.parametrize("tossed", [1, 20, 64, 65, 300])
    def test_heads_are_binomial(self, source: Callable[[int], Words], numerator: int, tossed: int) -> None:
        drawn = heads(source, numerator, np.full(5000, tossed))
        assert fit(drawn, stats.binom.pmf(np.arange(tossed + 1), tossed, numerator / 2**32), 0) > SEEDED

    def test_cells_may_toss_different_numbers(self, source: Callable[[int], Words]) -> None:
        tossed = np.array([0, 1, 63, 64, 65, 128, 1000, 10**6])
        drawn = np.stack([heads(source, 3 << 30, tossed) for _ in range(100)])
        assert (drawn[:, 0] == 0).all()
        z = (drawn.mean(0) - 0.75 * tossed)[1:] / np.sqrt(0.1875 * tossed[1:] / 100)
        assert (np.abs(z) < 5).all()

    def test_many_tosses_in_few_cells_go_in_chunks(self, source: Callable[[int], Words]) -> None:
        tossed = np.array([200_000_000, 3])
        drawn = fair_heads(source, tossed)
        assert abs(drawn[0] - 1e8) < 6 * 5e7**0.5
        assert 0 <= drawn[1] <= 3

    def test_a_string_of_ones_is_all_heads(self) -> None:
        top = (1 << 64) - 1
        assert fair_heads(given_words([top] * 5), np.array([64, 65, 1, 0, 7])).tolist() == [64, 65, 1, 0, 7]

    def test_tosses_compare_32_bits(self) -> None:
        words = given_words([(5 << 32) | 4, (1 << 64) - 1])
        assert tosses(words, 5, 3).tolist() == [True, False, False]

    @pytest.mark.parametrize(("numerator", "expected"), [(0, False), (1 << 32, True)])
    def test_certain_tosses(self, source: Callable[[int], Words], numerator: int, expected: bool) -> None:
        assert (tosses(source, numerator, 1001) == expected).all()


class TestSecure:
    """The operating system's words cannot be seeded, so these fail once in 10^10 runs."""

    @pytest.mark.parametrize("r", [Fraction(1, 3), Fraction(1, 100), Fraction(1), Fraction(7, 5)])
    def test_polya(self, r: Fraction) -> None:
        draws = Secure().polya(r, 10, 20_000)
        assert fit(draws, share_law(float(r), 10, 200), -200) > SECURE

    @pytest.mark.parametrize("scale", [0.3, 1.0, 25.0])
    def test_discrete_laplace(self, scale: float) -> None:
        reach = ceil(20 * scale) + 5
        assert fit(Secure().discrete_laplace(scale, 20_000), laplace_law(scale, reach), -reach) > SECURE

    @pytest.mark.parametrize("sigma", [0.3, 1.0, 25.0])
    def test_discrete_gaussian(self, sigma: float) -> None:
        k = np.arange(-ceil(12 * sigma), ceil(12 * sigma) + 1)
        law = np.exp(-0.5 * (k / sigma) ** 2)
        assert fit(Secure().discrete_gaussian(sigma, 20_000), law / law.sum(), int(k[0])) > SECURE

    def test_words(self) -> None:
        words = Secure().words(50_000)
        for shift in range(0, 64, 8):
            byte = (words >> np.uint64(shift)).astype(np.uint8).astype(np.int64)
            assert fit(byte, np.full(256, 1 / 256), 0) > SECURE

    @given(st.fractions(min_value=Fraction(1, 10**6), max_value=10**12))
    def test_scales_for_opendp_are_rounded_up(self, scale: Fraction) -> None:
        assert scale <= Fraction(at_least(scale)) <= scale * (1 + Fraction(1, 1 << 51))
