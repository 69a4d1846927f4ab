"""One bin convention, total on [0, 1] and the same everywhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcalib.errors import InputError
from fedcalib.metrics.binning import MAX_BINS, bin_edges, bin_index

unit = st.floats(0, 1)
some_bins = st.integers(1, 3000)


@given(st.lists(unit, max_size=30), some_bins)
def test_it_is_the_formula_exactly(values: list[float], bins: int) -> None:
    expected = [min(math.floor(value * bins), bins - 1) for value in values]
    assert expected == bin_index(values, bins).tolist()


@given(unit, some_bins)
def test_float32_falls_where_its_exact_value_falls(value: float, bins: int) -> None:
    narrow = np.float32(value)
    assert bin_index(np.array([float(narrow)]), bins).tolist() == bin_index(np.array([narrow]), bins).tolist()


def test_single_precision_would_round_a_product_up_into_the_next_bin() -> None:
    narrow = np.array([0.7, 0.9], dtype=np.float32)  # both lie below their decimals
    assert np.floor(narrow * np.float32(10)).tolist() == [7, 9]
    assert bin_index(narrow, 10).tolist() == [6, 8]


@given(unit, unit, some_bins)
def test_order_is_kept(one: float, other: float, bins: int) -> None:
    low, high = bin_index([min(one, other), max(one, other)], bins)
    assert low <= high


@given(unit, some_bins)
def test_halving_the_bins_merges_neighbours(value: float, bins: int) -> None:
    assert bin_index(value, bins) == bin_index(value, 2 * bins) // 2


def test_both_ends_have_a_bin_and_shapes_are_kept() -> None:
    assert bin_index([[0.0, -0.0], [1.0, np.nextafter(1.0, 0.0)]], 15).tolist() == [[0, 0], [14, 14]]
    assert bin_index(1.0, MAX_BINS) == MAX_BINS - 1
    assert bin_index([], 3).shape == (0,)


def test_decimals_open_the_bin_that_a_reader_expects() -> None:
    tenths = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    assert bin_index(tenths, 10).tolist() == list(range(10))
    digitized = np.digitize(tenths, np.linspace(0, 1, 11)) - 1
    assert digitized.tolist() != list(range(10))  # comparing with rounded edges misplaces 0.3, 0.6 and 0.7


@pytest.mark.parametrize("value", [np.nan, -1e-9, 1 + 1e-9, np.inf, -np.inf])
def test_what_is_no_probability_is_refused(value: float) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        bin_index([0.5, value], 15)


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(InputError, match="as numbers"):
        bin_index(["0.5"], 15)


@pytest.mark.parametrize("bins", [0, -1, 1.5, True, MAX_BINS + 1])
def test_what_is_no_number_of_bins_is_refused(bins: int) -> None:
    with pytest.raises(InputError, match="whole number of bins"):
        bin_index([0.5], bins)


@given(some_bins)
def test_edges_span_the_unit_interval(bins: int) -> None:
    edges = bin_edges(bins)
    assert (len(edges), edges[0], edges[-1]) == (bins + 1, 0.0, 1.0)
    assert (np.diff(edges) > 0).all()
