from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import fedcalib as fc
from fedcalib.errors import InputError
from fedcalib.metrics import binning as fast
from fedcalib.metrics.binning import bin_index
from fedcalib.queries.class_tables import LabelHistogram
from fedcalib.types import Floats
from tests.examples import examples


def by_hand(probs: Floats, bins: int) -> Floats:
    return np.stack([np.bincount(bin_index(column, bins), minlength=bins) for column in probs.T])


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from([np.float32, np.float64]).flatmap(
        lambda kind: arrays.arrays(
            kind, st.tuples(st.integers(0, 30), st.integers(1, 5)), elements=st.floats(0, 1, width=32)
        )
    ),
    st.sampled_from([1, 3, 10, 15, 128]),
)
def test_both_ways_count_what_bins_say(probs: Floats, bins: int) -> None:
    expected = by_hand(probs, bins)
    np.testing.assert_array_equal(fast.counted(probs, bins), expected)
    with fast.compiled():
        np.testing.assert_array_equal(fast.counted(probs, bins), expected)


@pytest.mark.parametrize("bins", [3, 10, 15, 100])
def test_edges_fall_alike(bins: int) -> None:
    edges = np.arange(bins + 1) / bins
    near = np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, 1)])[:, None]
    with fast.compiled():
        np.testing.assert_array_equal(fast.counted(near, bins), by_hand(near, bins))
    np.testing.assert_array_equal(fast.counted(near, bins), by_hand(near, bins))


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_histograms_are_the_sums_of_their_rows(classes: int, kind: type[Floats]) -> None:
    rng = np.random.default_rng(classes)
    probs = rng.dirichlet(np.ones(classes), 5000).astype(kind)
    records = fc.Records.of_probs(probs, rng.integers(classes, size=5000))
    query = LabelHistogram(classes, 16)
    scale = query.spread(dict.fromkeys(query.blocks, 8.0))
    rows = query.rows(records)
    for given_scale in (None, scale):
        expected = rows.sum(query.size, None if given_scale is None else query.grid(given_scale))
        np.testing.assert_array_equal(query.pooled(records, given_scale), expected)
        with fast.compiled():
            np.testing.assert_array_equal(query.pooled(records, given_scale), expected)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fast._compiled_loop.cache_clear()
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(InputError, match=r"pip install 'fedcalib\[fast\]'"), fast.compiled():
        pass
    fast._compiled_loop.cache_clear()


def test_nothing_is_compiled_outside_the_block() -> None:
    with fast.compiled():
        inside = fast._COUNTER.get()
    assert fast._COUNTER.get() is fast._plain is not inside
