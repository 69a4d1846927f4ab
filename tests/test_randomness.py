from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal, getcontext
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedcalib.errors import InputError
from fedcalib.randomness import Randomness, Rate, Secure, Simulated
from fedcalib.types import Floats, Ints

KEYS = st.lists(st.integers() | st.text(max_size=8), max_size=4)
BOTH = pytest.mark.parametrize("randomness", [Secure(), Simulated(3)], ids=repr)


def fits(draws: Ints, pmf: Floats, low: int) -> bool:
    """Whether seeded draws look like a law; what is expected less than 10 times is pooled."""
    cells = np.clip(draws - low, 0, pmf.size - 1)
    counts, expected = np.bincount(cells, minlength=pmf.size), pmf * draws.size
    rare = expected < 10
    seen = np.append(counts[~rare], counts[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum() + 1e-9)
    if wanted[-1] < 1:
        assert seen[-1] <= 10
        seen, wanted = seen[:-1], wanted[:-1]
    return bool(stats.chi2.sf(((seen - wanted) ** 2 / wanted).sum(), max(seen.size - 1, 1)) > 1e-4)


class TestStreams:
    @given(seed=st.integers(-(2**70), 2**70), first=KEYS, second=KEYS)
    def test_keys_chain(self, seed: int, first: list[int | str], second: list[int | str]) -> None:
        together = Simulated(seed).derive(*first, *second).words(4)
        assert (Simulated(seed).derive(*first).derive(*second).words(4) == together).all()

    @given(seed=st.integers(0, 10), first=KEYS, second=KEYS)
    def test_different_keys_give_different_streams(
        self, seed: int, first: list[int | str], second: list[int | str]
    ) -> None:
        same = [(type(k), k) for k in first] == [(type(k), k) for k in second]
        drawn = [Simulated(seed).derive(*key).words(4) for key in (first, second)]
        assert bool((drawn[0] == drawn[1]).all()) == same

    def test_a_number_is_not_its_name_and_parts_do_not_run_together(self) -> None:
        keys: list[tuple[int | str, ...]] = [(1,), ("1",), ("a", "b"), ("ab",), ("a", ""), ("a",), (), (12,), (1, 2)]
        assert len({Simulated(0).derive(*key).words(1)[0] for key in keys}) == len(keys)

    def test_what_was_drawn_before_plays_no_role(self) -> None:
        used, fresh = Simulated(5), Simulated(5)
        used.words(1000)
        assert (used.derive("a", 1).words(8) == fresh.derive("a", 1).words(8)).all()
        assert (used.words(8) != Simulated(5).words(8)).any()

    def test_another_process_derives_the_same(self) -> None:
        code = "from fedcalib.randomness import Simulated; print(*Simulated(9).derive('run', 3, 'client', 8).words(3))"
        environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)}
        printed = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
        ).stdout
        assert [int(word) for word in printed.split()] == Simulated(9).derive("run", 3, "client", 8).words(3).tolist()

    def test_streams_are_unrelated(self) -> None:
        first, second = (Simulated(1).derive("client", i).generator().random(20_000) for i in (1, 2))
        assert abs(np.corrcoef(first, second)[0, 1]) < 5 / 20_000**0.5

    def test_a_pickled_stream_goes_on_where_it_was(self) -> None:
        stream = Simulated(4).derive("x")
        stream.words(3)
        copy = pickle.loads(pickle.dumps(stream))
        assert (copy.words(5) == stream.words(5)).all()

    def test_the_generator_goes_on_where_it_was(self) -> None:
        stream = Simulated(4)
        assert stream.generator().random() != stream.generator().random()

    def test_numpy_integers_are_integers(self) -> None:
        assert (Simulated(np.int64(3)).derive(np.int32(2)).words(2) == Simulated(3).derive(2).words(2)).all()

    def test_a_float_is_no_key(self) -> None:
        with pytest.raises(TypeError):
            Simulated(3).derive(0.5)  # type: ignore[arg-type]


class TestSecure:
    def test_it_cannot_be_seeded(self) -> None:
        with pytest.raises(TypeError):
            Secure(1)  # type: ignore[call-arg]
        np.random.seed(0)
        first = Secure().words(4)
        np.random.seed(0)
        assert (first != Secure().words(4)).all()

    def test_it_is_its_own_derivation(self) -> None:
        secure = Secure()
        assert secure.derive("run", 1) is secure

    def test_each_draw_is_new(self) -> None:
        draws: list[Callable[[], Ints]] = [
            lambda: Secure().discrete_laplace(1e6, 8),
            lambda: Secure().discrete_gaussian(1e6, 8),
            lambda: Secure().polya(1, 1e6, 8),
            lambda: Secure().polya(Fraction(1, 2), 1e6, 64),
            lambda: Secure().integers(1 << 40, 8),
            lambda: Secure().binomial(1000, Rate.at_least(0.5), 64),
            lambda: Secure().generator().integers(0, 1 << 40, 8),
        ]
        for draw in draws:
            assert (draw() != draw()).any()

    def test_only_the_simulation_says_so(self) -> None:
        assert not Secure().simulated
        assert not Secure().derive(1).simulated
        assert Simulated(1).simulated
        assert Simulated(1).derive(1).simulated


class TestShapes:
    @BOTH
    @pytest.mark.parametrize("size", [0, 3, (2, 3), (0, 4), ()])
    def test_every_draw_has_the_shape_asked(self, randomness: Randomness, size: int | tuple[int, ...]) -> None:
        shape = np.empty(size).shape
        rate = Rate.at_least(0.25)
        for drawn in (
            randomness.discrete_laplace(Fraction(7, 3), size),
            randomness.discrete_gaussian(2.5, size),
            randomness.discrete_gaussian(5000.0, size),
            randomness.polya(Fraction(7, 3), 2, size),
            randomness.polya(0.01, 2.0, size),
            randomness.binomial(9, rate, size),
            randomness.integers(5, size),
        ):
            assert (drawn.shape, drawn.dtype) == (shape, np.dtype(np.int64))
        tossed = randomness.bernoulli(rate, size)
        assert (tossed.shape, tossed.dtype) == (shape, np.dtype(np.bool_))

    @BOTH
    def test_words_are_64_bits(self, randomness: Randomness) -> None:
        words = randomness.words(4000)
        assert words.dtype == np.uint64
        for place in range(64):
            ones = int(((words >> np.uint64(place)) & np.uint64(1)).sum())
            assert abs(ones - 2000) < 7 * 1000**0.5

    @BOTH
    def test_a_coin_count_a_cell(self, randomness: Randomness) -> None:
        drawn = randomness.binomial(np.array([0, 1000, 10**6]), Rate.at_least(0.25), (50, 3))
        assert (drawn[:, 0] == 0).all()
        assert abs(drawn[:, 1].mean() - 250) < 7 * (187.5 / 50) ** 0.5
        assert abs(drawn[:, 2].mean() - 250_000) < 7 * (187_500 / 50) ** 0.5

    @BOTH
    @pytest.mark.parametrize("bad", [0, -1.0, float("nan"), float("inf")])
    def test_noise_has_to_have_a_width(self, randomness: Randomness, bad: float) -> None:
        for draw in (randomness.discrete_laplace, randomness.discrete_gaussian):
            with pytest.raises(InputError, match="above 0"):
                draw(bad, 2)
        with pytest.raises(InputError, match="shape"):
            randomness.polya(bad, 1, 2)
        with pytest.raises(InputError, match="scale"):
            randomness.polya(1, bad, 2)

    @BOTH
    @pytest.mark.parametrize("high", [0, -1, (1 << 62) + 1])
    def test_integers_need_a_bound(self, randomness: Randomness, high: int) -> None:
        with pytest.raises(InputError, match="bound"):
            randomness.integers(high, 2)


class TestSimulatedLaws:
    """The simulation is fast and has the laws of the real thing."""

    @pytest.mark.parametrize("scale", [0.01, 0.5, 1.0, 40.0])
    def test_discrete_laplace(self, scale: float) -> None:
        reach = ceil(30 * scale) + 1
        k = np.abs(np.arange(-reach, reach + 1))
        law = np.exp(-k / scale) * np.tanh(0.5 / scale)
        assert fits(Simulated(8).discrete_laplace(scale, 200_000), law, -reach)

    @pytest.mark.parametrize("sigma", [0.05, 0.3, 0.7, 1.0, 3.0, 3.3, 80.0, 1024.0, 1025.0])
    def test_discrete_gaussian(self, sigma: float) -> None:
        reach = ceil(10 * sigma)
        law = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
        draws = Simulated(8).discrete_gaussian(sigma, 300_000)
        assert fits(draws, law / law.sum(), -reach)
        variance = (law * np.arange(-reach, reach + 1) ** 2).sum() / law.sum()
        assert draws.var() == pytest.approx(variance, rel=0.015, abs=1e-6)

    @pytest.mark.parametrize("r", [1 / 3, 1 / 100, 1.0, 7 / 5])
    @pytest.mark.parametrize("scale", [0.5, 1.0, 10.0])
    def test_polya(self, r: float, scale: float) -> None:
        single = stats.nbinom.pmf(np.arange(801), r, -np.expm1(-1 / scale))
        law = np.convolve(single, single[::-1])[400:1201]
        assert fits(Simulated(8).polya(r, scale, 200_000), law, -400)

    def test_shares_sum_to_the_law_of_the_sum(self) -> None:
        stream = Simulated(8)
        for arrived in (10, 6):
            total = sum(stream.derive(i).polya(Fraction(1, 10), 4, 50_000) for i in range(arrived))
            whole = stream.derive("sum").polya(Fraction(arrived, 10), 4, 50_000)
            assert stats.ks_2samp(np.asarray(total), whole).pvalue > 1e-4

    @pytest.mark.parametrize("numerator", [0, 1 << 30, 3_000_000_000, 1 << 32])
    def test_coins_and_their_sums(self, numerator: int) -> None:
        rate = Rate(numerator)
        law = stats.binom.pmf(np.arange(31), 30, float(rate))
        assert fits(Simulated(8).binomial(30, rate, 50_000), law, 0)
        assert fits(Simulated(8).bernoulli(rate, (50_000, 30)).sum(axis=1), law, 0)

    def test_integers(self) -> None:
        assert fits(Simulated(8).integers(11, 100_000), np.full(11, 1 / 11), 0)

    def test_no_noise_at_a_vanishing_scale(self) -> None:
        assert not Simulated(8).polya(1, 1e-4, 1000).any()
        assert not Simulated(8).discrete_laplace(1e-4, 1000).any()


class TestRate:
    @given(st.fractions(0, 1) | st.floats(0, 1))
    def test_a_rate_is_the_next_step_up(self, chance: Fraction | float) -> None:
        rate = Rate.at_least(chance)
        assert 0 <= rate.value - Fraction(chance) < Fraction(1, 1 << 32)
        assert float(rate) == float(rate.value)

    @given(st.floats(1e-6, 20))
    def test_a_flipped_bit_keeps_its_epsilon_and_no_more(self, epsilon: float) -> None:
        getcontext().prec = 60
        ratio, steps = Decimal(epsilon).exp(), 1 << 32
        flipped = Rate.flip(epsilon).numerator
        assert Decimal(steps - flipped) <= ratio * flipped
        assert Decimal(steps - flipped + 2) > ratio * (flipped - 2)

    @pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan")])
    def test_a_chance_lies_between_0_and_1(self, bad: float) -> None:
        with pytest.raises(InputError, match="from 0 to 1"):
            Rate.at_least(bad)

    @pytest.mark.parametrize("bad", [-1, (1 << 32) + 1])
    def test_a_numerator_fits(self, bad: int) -> None:
        with pytest.raises(InputError, match="numerator"):
            Rate(bad)

    def test_no_epsilon_no_flip(self) -> None:
        with pytest.raises(InputError, match="epsilon"):
            Rate.flip(0)


def test_importing_randomness_stays_light() -> None:
    code = (
        "import sys, fedcalib.randomness, fedcalib.accounting; "
        "print(*[m for m in ('scipy', 'opendp', 'dp_accounting') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert printed.stdout.strip() == ""
