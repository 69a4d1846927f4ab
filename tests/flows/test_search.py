"""Searches find what they look for on any bracket, and look no more often than they say."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import sqrt

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.interpolate import PchipInterpolator

from fedcalib.errors import InputError
from fedcalib.estimation.roots import cubic_roots
from fedcalib.queries.class_tables import LabelCounts
from fedcalib.query import Answer
from fedcalib.search import Bisection, GoldenSection, GridSearch, Interpolation, OnMagnitude, SearchResult

BRACKETS = st.tuples(st.floats(-100, 100), st.floats(0.01, 100)).map(lambda pair: (pair[0], pair[0] + pair[1]))
GOLDEN = (sqrt(5) - 1) / 2


def look(flow: object, function: Callable[[float], float]) -> tuple[SearchResult, list[int]]:
    """Drive a search on a plain function; note how many points each message has."""
    asked: list[int] = []

    def ask(places: tuple[float, ...]):
        asked.append(len(places))
        yield LabelCounts(2)
        return np.array([function(place) for place in places])

    generator = flow(ask)
    try:
        query = next(generator)
        while True:
            query = generator.send(Answer.empty(query))
    except StopIteration as end:
        return end.value, asked


@given(BRACKETS, st.floats(0, 1), st.integers(1, 25))
def test_golden_section_finds_the_minimum_on_any_bracket(
    bracket: tuple[float, float], share: float, steps: int
) -> None:
    low, high = bracket
    target = low + share * (high - low)
    found, asked = look(lambda ask: GoldenSection(steps).minimum(ask, low, high), lambda x: abs(x - target))
    assert abs(found.place - target) <= GOLDEN**steps * (high - low) / 2 * (1 + 1e-6) + 1e-9 * (high - low)
    assert sum(asked) == steps + 1
    assert asked == [1] * (steps + 1)


def published(function: Callable[[float], float], low: float, high: float, steps: int) -> tuple[float, float]:
    """The index order as it was printed: the new point is placed in the old bracket."""
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    for _ in range(steps):
        old_low, old_high = low, high
        if function(left) >= function(right):
            low, left = left, right
            right = old_low + GOLDEN * (old_high - old_low)
        else:
            high, right = right, left
            left = old_high - GOLDEN * (old_high - old_low)
    return low, high


def test_the_published_index_order_fails() -> None:
    """On a clean, monotone query with its root at 1.985 in [0.5, 3] the printed order turns the bracket inside out."""

    def gap(x: float) -> float:
        return abs(x - 1.985)

    low, high = published(gap, 0.5, 3.0, 5)
    assert low > high
    found, _ = look(lambda ask: GoldenSection(5).minimum(ask, 0.5, 3.0), gap)
    assert abs(found.place - 1.985) <= 0.113
    assert abs((low + high) / 2 - 1.985) > 0.3


@given(BRACKETS, st.floats(0, 1), st.integers(2, 20))
def test_bisection_finds_the_root_on_any_bracket(bracket: tuple[float, float], share: float, looks: int) -> None:
    low, high = bracket
    target = low + share * (high - low)
    found, asked = look(lambda ask: Bisection(looks).root(ask, low, high), lambda x: x - target)
    outer = min(target - low, high - target) <= (high - low) / 2 ** (looks - 1) * (1 + 1e-9)
    finest = (high - low) / 2 ** (looks if outer else looks + 1)  # the last look is spent on an end that is touched
    assert abs(found.place - target) <= finest * (1 + 1e-6) + 1e-9 * (high - low)
    assert asked == [1] * looks
    assert not found.at_end or found.place in bracket


@given(BRACKETS, st.floats(0.001, 10), st.integers(2, 20), st.sampled_from([-1, 1]))
def test_bisection_knows_that_a_root_is_outside(
    bracket: tuple[float, float], share: float, looks: int, side: int
) -> None:
    low, high = bracket
    target = low - share * (high - low) if side < 0 else high + share * (high - low)
    found, asked = look(lambda ask: Bisection(looks).root(ask, low, high), lambda x: x - target)
    assert found == SearchResult(low if side < 0 else high, True)
    assert asked == [1] * looks


@given(st.floats(0.3, 7.9))
def test_interpolation_is_exact_on_logarithms(target: float) -> None:
    found, asked = look(lambda ask: Interpolation().root(ask, 0.25, 8.0), lambda x: np.log(x / target))
    assert found.place == pytest.approx(target, rel=1e-9)
    assert asked == [5]  # both ends, 1, 2 and 5
    assert not found.at_end


def test_interpolation_looks_at_both_ends() -> None:
    assert Interpolation().within(0.5, 16.0) == (0.5, 1.0, 2.0, 5.0, 16.0)
    assert Interpolation().within(0.5, 3.0) == (0.5, 1.0, 2.0, 3.0)
    assert Interpolation(()).within(0.5, 3.0) == (0.5, 3.0)


CURVES = st.lists(st.floats(0, 100), min_size=2, max_size=6)


@given(CURVES, st.floats(-100, 300), st.integers(0, 1 << 30))
def test_a_cubic_crosses_between_the_signs_and_as_the_reference_does(
    rises: list[float], drop: float, seed: int
) -> None:
    values = np.cumsum([0.0, *rises]) - drop
    places = np.cumsum(np.random.default_rng(seed).uniform(0.1, 2.0, len(values)))
    (found,) = cubic_roots(places, values[None])
    if values[-1] <= 0 or values[0] >= 0:
        assert found == (places[-1] if values[-1] <= 0 else places[0])
        return
    first = int(np.flatnonzero(values >= 0)[0])
    assert places[first - 1] <= found <= places[first] + 1e-9
    assume(min(rises) > 1e-3)  # the reference is undefined to the last digit where the curve is flat
    assert float(PchipInterpolator(places, values)(found)) == pytest.approx(0.0, abs=1e-6)


def test_curves_are_crossed_row_by_row() -> None:
    places = np.array([0.0, 1.0, 2.5, 4.0])
    table = np.random.default_rng(0).normal(size=(20, 4)).cumsum(axis=1)
    together = cubic_roots(places, table)
    assert together.tolist() == [float(cubic_roots(places, row[None])[0]) for row in table]


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=6, unique=True).map(sorted), st.floats(0.1, 10))
def test_interpolation_brackets_any_rising_curve(places: list[float], target: float) -> None:
    assume(all(b / a > 1.05 for a, b in itertools.pairwise(places)))
    assume(all(0.05 < place < 20 for place in places))
    search = Interpolation(tuple(places))
    found, _ = look(lambda ask: search.root(ask, 0.05, 20.0), lambda x: np.tanh(np.log(x / target)))
    inside = [(a, b) for a, b in itertools.pairwise(places) if a <= target <= b]
    for low, high in inside:
        assert low * (1 - 1e-9) <= found.place <= high * (1 + 1e-9)


@pytest.mark.parametrize(
    "search",
    [
        OnMagnitude(GoldenSection(5)),
        OnMagnitude(GridSearch(16, 2, 1)),
        Bisection(2),
        Bisection(8),
        Interpolation(),
        Interpolation(()),
        Interpolation((0.6, 1.2, 2.8)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("root", [-10.0, 0.49, 3.01, 10.0])
def test_a_root_outside_the_bracket_ends_at_its_end_with_a_flag(search: object, root: float) -> None:
    found, _ = look(lambda ask: search.root(ask, 0.5, 3.0), lambda x: x - root)
    assert found.at_end
    assert found.within(0.5, 3.0) == (3.0 if root > 3 else 0.5)


@pytest.mark.parametrize("search", [Bisection(8), Interpolation(), Interpolation(()), Interpolation((0.6, 1.2, 2.8))])
@pytest.mark.parametrize("root", [0.51, 0.7, 1.3, 2.9])
def test_a_root_in_the_bracket_carries_no_flag(search: object, root: float) -> None:
    found, _ = look(lambda ask: search.root(ask, 0.5, 3.0), lambda x: x - root)
    assert not found.at_end
    assert found.within(0.5, 3.0) == found.place


@given(BRACKETS, st.floats(0, 1))
def test_a_grid_finds_the_lowest_of_many_valleys(bracket: tuple[float, float], share: float) -> None:
    low, high = bracket
    width = high - low
    target = low + share * width

    def rough(x: float) -> float:
        return abs(x - target) / width + 0.3 * (1 - np.cos(60 * np.pi * (x - target) / width))

    found, asked = look(lambda ask: GridSearch(512, 8, 3).minimum(ask, low, high), rough)
    assert abs(found.place - target) <= 1e-5 * width
    assert asked == [256] * 8


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3))
def test_any_answers_give_a_place_in_the_bracket(values: list[float]) -> None:
    answers = iter(values * 10)
    for search in (OnMagnitude(), Bisection(), Interpolation((0.6, 1.2, 2.8))):
        found, _ = look(lambda ask, search=search: search.root(ask, 0.5, 3.0), lambda x: next(answers))
        assert 0.5 <= found.place <= 3.0


def test_nonsense_is_refused() -> None:
    for make in (
        lambda: GoldenSection(0),
        lambda: Bisection(1),
        lambda: Interpolation((2.0, 1.0)),
        lambda: GridSearch(8, 4),
    ):
        with pytest.raises(InputError):
            make()
