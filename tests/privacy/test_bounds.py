"""Bounds hold for any bit pattern of floats: every registered query, under every mechanism, in integers.

Records are built here without the checks at the door, so that NaN and infinity reach the queries.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from math import floor
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.compatibility.instances import INSTANCES
from tests.contract.subjects import planned_queries
from tests.examples import examples
from tests.privacy.small_queries import served

import fedcalib as fc
from fedcalib.artifacts.scaling import VectorScaling
from fedcalib.federation import Federation
from fedcalib.numeric import ExactSum, Grid
from fedcalib.privacy import Mechanism
from fedcalib.privacy.local import RandomisedReports
from fedcalib.privacy.ring import grid_total
from fedcalib.privacy.secagg import FixedPoint
from fedcalib.privacy.source_laplace import LaplaceTerms
from fedcalib.privacy.user_gaussian import ClippedGaussian
from fedcalib.queries.class_tables import LabelCounts
from fedcalib.queries.scaling import LocalFit
from fedcalib.queries.shift import Confidence, ConfidenceGaps
from fedcalib.queries.wrapped import Calibrated
from fedcalib.query import ClientQuery, Join, Query, Rows
from fedcalib.records import Records, clip_logits

REGISTERED = [thing for thing in INSTANCES if isinstance(thing, Query)]
MORE: list[Query] = [
    Join((ConfidenceGaps((0.5, 2.0)), Confidence(), LabelCounts(2))),
    LabelCounts(3),  # of fewer classes than the records have
    Calibrated(ConfidenceGaps((0.5, 2.0)), VectorScaling((1e308, -1e308), (0.0, 1e308))),
]
QUERIES = [*REGISTERED, *MORE]
PLANNED = [query for mark, query in planned_queries() if mark.split("-")[1] == "4"]
OF_RECORDS = [index for index, query in enumerate([*QUERIES, *PLANNED]) if not isinstance(query, ClientQuery)]
MODELS: list[fc.privacy.Privacy] = [
    fc.SecAgg(),
    fc.DistributedDP(1.0),
    fc.DistributedDP(1.0, 1e-5),
    fc.SourceLaplace(1.0),
    fc.UserGaussian(1.0, 1e-5, clip=10.0),
    fc.LocalDP(8.0),
]
SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, 5e-324, -2e-308, 1.8e-308, 1.7e308, -1.7e308, 0.0, -0.0, 0.5, 1.0, 2.0]
WORDS = st.one_of(
    st.integers(0, 2**64 - 1), st.sampled_from([int(np.float64(value).view(np.uint64)) for value in SPECIAL])
)
PLACES = 8  # of a record: up to 4 scores, 2 features, a rival's score, a domain


def classes_of(query: Query) -> int:
    """The number of classes that a query was made for."""
    if isinstance(query, Join):
        return max(classes_of(part) for part in query.parts)
    if query == LabelCounts(3):
        return 4
    inner = getattr(query, "query", query)
    return int(getattr(inner, "classes", 2))


def held(values: np.ndarray, labels: np.ndarray, classes: int, logits: bool) -> Records:
    """Records of any floats, shape (n, places), which nobody has checked."""
    extra = {
        "features": values[:, 4:6],
        "rival": values[:, 6],
        "domain": values[:, 7],
        "inputs": values[:, 4:5],
        "sex": np.where(values[:, 7] > 0.5, "F", "unknown"),
    }
    return Records(values[:, :classes], labels % classes, logits, None, extra)


def ordinary(n: int, classes: int, seed: int = 0, logits: bool = True) -> Records:
    rng = np.random.default_rng(seed)
    given = 2 * rng.normal(size=(n, classes)) if logits else rng.dirichlet(np.ones(classes), n)
    values = np.concatenate([given, np.zeros((n, PLACES - classes))], axis=1)
    values[:, 4:] = rng.random((n, 4))
    return held(values, rng.integers(classes, size=n), classes, logits)


@st.composite
def odd(draw: st.DrawFn, classes: int, most: int = 3) -> Records:
    """A few records whose floats are any bit patterns."""
    n = draw(st.integers(1, most))
    words = draw(hnp.arrays(np.uint64, (n, PLACES), elements=WORDS))
    values = words.view(np.float64)
    if draw(st.booleans()):
        with np.errstate(all="ignore"):
            values = values.astype(np.float32)
    labels = draw(hnp.arrays(np.int64, n, elements=st.integers(0, classes - 1)))
    return held(values, labels, classes, draw(st.booleans()))


@contextmanager
def quietly() -> Iterator[None]:
    """NumPy warns of overflow; here that is the point."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


@cache
def mechanisms(index: int) -> list[Mechanism]:
    """One mechanism per privacy model that serves the query."""
    found = []
    for model in MODELS:
        try:
            found.append(served(model, (QUERIES + PLANNED)[index], clients=3))
        except fc.errors.RefusedError:
            continue
    return found


def check_within(
    query: Query, steps: np.ndarray, scales: Mapping[str, float], clips: Mapping[str, float] | None
) -> None:
    for name, part in query.split(steps).items():
        bound, scale = query.blocks[name].bound, scales[name]
        whole = [abs(int(step)) for step in part.reshape(-1)]
        if clips is not None:
            assert sum(step**2 for step in whole) <= (clips[name] * scale * (1 + 2.0**-32)) ** 2 * (1 + 2.0**-49)
            continue
        assert sum(whole) <= floor(bound.l1 * scale)
        assert sum(step**2 for step in whole) <= floor((bound.l2 * scale) ** 2 * (1 + 2.0**-49))
        assert max(whole, default=0) <= floor(bound.linf * scale)


def split_up(rest: Records, one: Records) -> tuple[Federation, Federation]:
    """The same clients with a record more and without it; a column has one precision."""
    rest = replace(rest, given=rest.given.astype(one.given.dtype))
    others = [rest.take(slice(0, 4)), rest.take(slice(4, 7))]
    joined = Records.concatenate([others[0].take(slice(0, 2)), one, others[0].take(slice(2, 4))])
    return Federation.of([joined, others[1]]), Federation.of(others)


def moved_by_record(query: Query, mechanism: Mechanism, one: Records) -> np.ndarray:
    """What a record moves the shares by: the same seed draws the same noise with it and without it."""
    both = split_up(ordinary(7, one.classes, logits=one.are_logits), one)
    shares = [mechanism.gather(query, federation, fc.Simulated(5)) for federation in both]
    assert shares[0].shape == shares[1].shape == (mechanism.width(query),)
    assert shares[0].dtype == shares[1].dtype
    return shares[0].view(np.int64) - shares[1].view(np.int64)


def moved_by_client(query: Query, mechanism: Mechanism, one: Records) -> np.ndarray:
    """What a client moves the noiseless sum by; it comes last, so that the others train with their own seeds."""
    rest = ordinary(7, one.classes, logits=one.are_logits)
    others = [rest.take(slice(0, 4)), rest.take(slice(4, 7))]
    clients = [Federation.of([*others, one]), Federation.of(others)]
    if isinstance(mechanism, ClippedGaussian):
        words = [mechanism.gather(query, federation, fc.Simulated(5)) for federation in clients]
        return words[0].view(np.int64) - words[1].view(np.int64)
    sums = [grid_total(query, federation, fc.Simulated(5), mechanism.scales) for federation in clients]
    return sums[0] - sums[1]


def check_every_mechanism(index: int, one: Records) -> None:
    query = (QUERIES + PLANNED)[index]
    whole = any(block.bound.unit == "client" for block in query.blocks.values())
    for mechanism in mechanisms(index):
        if isinstance(mechanism, RandomisedReports):
            check_symbols(query, mechanism, one.take(slice(0, 1)))
            continue
        sent = query.sufficient if isinstance(mechanism, FixedPoint) else query
        clips = mechanism.clips if isinstance(mechanism, ClippedGaussian) else None
        if whole or clips is not None:
            steps = moved_by_client(sent, mechanism, one)
        else:
            steps = moved_by_record(query, mechanism, one.take(slice(0, 1)))
        check_within(sent, steps, mechanism.scales, clips)


def check_symbols(query: Query, mechanism: RandomisedReports, one: Records) -> None:
    """Symbols are within the coder, and a record in another's place changes no symbol but its own."""
    rest = ordinary(6, one.classes, seed=2, logits=one.are_logits)
    drawn = []
    for first in (one, rest.take(slice(0, 1))):
        joined = Records.concatenate([rest.take(slice(1, 6)), first])
        symbols = dict(mechanism._symbols(query, joined, np.random.default_rng(0)))
        for name, chosen in symbols.items():
            assert chosen.min(initial=-1) >= -1
            assert chosen.max(initial=-1) < mechanism.coders[name].symbols.count
        assert mechanism.gather(query, Federation.of([joined]), fc.Simulated(0)).shape == (mechanism.width(query),)
        assert mechanism.encode(query, joined, fc.Simulated(0)).shape == (mechanism.width(query),)
        drawn.append(symbols)
    differing = [int((drawn[0][name] != drawn[1][name]).sum()) for name in drawn[0]]
    reported = 1 if mechanism.chances is not None else len(differing)
    assert max(differing) <= 1 and sum(differing) <= reported


@pytest.mark.parametrize("index", range(len(QUERIES)), ids=lambda i: type(QUERIES[i]).__name__)
@settings(max_examples=examples(8), deadline=None)
@given(data=st.data())
def test_any_unit_stays_within_its_bound_under_every_mechanism(index: int, data: st.DataObject) -> None:
    check_every_mechanism(index, data.draw(odd(classes_of(QUERIES[index]))))


@pytest.mark.parametrize("index", OF_RECORDS, ids=lambda i: type((QUERIES + PLANNED)[i]).__name__)
@settings(max_examples=examples(8), deadline=None)
@given(data=st.data(), bits=st.sampled_from([0, 7, 20]))
def test_every_sum_is_that_of_enforced_rows_and_each_record_adds_its_own(
    index: int, data: st.DataObject, bits: int
) -> None:
    """So no override leaves the bounds, and no record changes what another one adds."""
    query = (QUERIES + PLANNED)[index]
    one = data.draw(odd(classes_of(query) if index < len(QUERIES) else 4)).take(slice(0, 1))
    scale = np.full(query.size, 2.0**bits)
    with quietly():
        both = split_up(ordinary(7, one.classes, logits=one.are_logits), one)
        sums = [query.total(held, fc.Simulated(0), scale) for held in (*both, Federation.of([one]))]
        assert (sums[0] - sums[1]).tolist() == sums[2].tolist()
        if not isinstance(query, Join):
            rows, grid = query.rows(both[0].records), query.grid(scale)
            assert sums[0].tolist() == rows.sum(query.size, grid).tolist()
            assert sums[0].tolist() == Rows(rows.cells, rows.values).sum(query.size, grid).tolist()
            check_within(query, sums[2], dict.fromkeys(query.blocks, 2.0**bits), None)


def lines_run(action: Callable[[], object]) -> int:
    """How many lines of the package an action runs through: its time, as far as code decides it."""
    package, count = str(Path(fc.__file__).parent), 0

    def within(frame: FrameType, event: str, argument: object) -> Callable[..., object] | None:
        nonlocal count
        count += event == "line"
        return within if frame.f_code.co_filename.startswith(package) else None

    before = sys.gettrace()
    sys.settrace(within)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


# a local fit goes on until it converges, which takes up to its stated number of steps
STEADY = [index for index, query in enumerate(QUERIES) if not isinstance(query, LocalFit)]


@pytest.mark.parametrize("index", STEADY, ids=lambda i: type(QUERIES[i]).__name__)
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_the_work_of_an_answer_does_not_depend_on_what_records_hold(index: int, data: st.DataObject) -> None:
    """Under noise of one seed, a site runs through as many lines with any record as with an ordinary one."""
    query = QUERIES[index]
    one = data.draw(odd(classes_of(query))).take(slice(0, 1))
    if one.are_logits:
        one = replace(one, given=clip_logits(one.given))  # as at the door
    usual = ordinary(1, one.classes, seed=3, logits=one.are_logits)
    usual = replace(usual, given=usual.given.astype(one.given.dtype), labels=one.labels)
    for mechanism in mechanisms(index):
        with quietly():
            both = [split_up(ordinary(7, one.classes, logits=one.are_logits), record)[0] for record in (one, usual)]
            answers = [partial(mechanism.gather, query, federation, fc.Simulated(5)) for federation in both]
            for answer in answers:
                answer()  # what is computed once is computed before
            counted = [lines_run(answer) for answer in answers]
        assert counted[0] == counted[1] > 0


SIZES, BOUNDS = [1, 3, 2], [(1.0, 1.0, 1.0), (2.0, 1.5, 1.0), (0.5, 0.5, 0.25)]


@settings(max_examples=examples(150), deadline=None)
@given(
    words=hnp.arrays(np.uint64, st.tuples(st.integers(0, 4), st.just(6)), elements=WORDS),
    small=hnp.arrays(np.float64, (2, 6), elements=st.floats(-1, 1)),
    scale=st.sampled_from([0.75, 1.0, 8.0, 1000.0, 2.0**20, 2.0**45]),
)
def test_dense_rows_sparse_rows_and_terms_become_the_same_integers(words, small, scale):
    values = np.concatenate([words.view(np.float64), small])
    grid = Grid(SIZES, [scale] * 3, BOUNDS)
    cells = np.tile(np.arange(6), (len(values), 1))
    owner, flat = np.divmod(np.arange(values.size), 6)
    dense, sparse, lanes, terms = (ExactSum(6) for _ in range(4))
    grid.add_dense(values, dense)
    grid.add_sparse(cells[:, ::-1], values[:, ::-1], sparse)
    grid.add_lanes(cells, values, np.arange(7), lanes)
    grid.add_terms(len(values), owner, flat, values.reshape(-1), terms)
    assert dense.value().tolist() == sparse.value().tolist() == lanes.value().tolist() == terms.value().tolist()
    for row in grid.dense(values):
        for part, (l1, l2, linf) in zip(np.split(row, [1, 4]), BOUNDS, strict=True):
            whole = [abs(int(step)) for step in part]
            assert sum(whole) <= l1 * scale and max(whole) <= linf * scale
            assert sum(step**2 for step in whole) <= (l2 * scale) ** 2 * (1 + 2.0**-49)


@settings(max_examples=examples(60), deadline=None)
@given(
    cells=hnp.arrays(np.int64, (3, 5), elements=st.one_of(st.integers(-2, 8), st.sampled_from([-(2**63), 2**63 - 1]))),
    words=hnp.arrays(np.uint64, (3, 5), elements=WORDS),
    ones=st.booleans(),
)
def test_entries_that_share_a_cell_are_bounded_together_and_cells_outside_are_dropped(cells, words, ones):
    grid = Grid(SIZES, [16.0] * 3, BOUNDS)
    apart = []
    for row in range(3):
        total = ExactSum(6)
        grid.add_sparse(cells[row : row + 1], None if ones else words[row : row + 1].view(np.float64), total)
        apart.append(total.value())
        for part, (l1, l2, linf) in zip(np.split(apart[-1], [1, 4]), BOUNDS, strict=True):
            whole = np.abs(part)
            assert whole.sum() <= 16 * l1 and (whole**2).sum() <= 256 * l2**2 and whole.max() <= 16 * linf
    together = ExactSum(6)
    grid.add_sparse(cells, None if ones else words.view(np.float64), together)
    assert together.value().tolist() == sum(apart).tolist()


def test_an_entry_outside_its_lane_is_dropped():
    grid, total = Grid(SIZES, [16.0] * 3, BOUNDS), ExactSum(6)
    cells = np.array([[0, 3, 5], [1, 0, 4], [-(2**63), 2**63 - 1, 3]])
    grid.add_lanes(cells, None, np.array([0, 1, 4, 6]), total)
    assert total.value().tolist() == [16, 0, 0, 16, 4, 4]
    for wrong in ([0, 2, 4], [0, 1, 1], [3, 2, 6], [-1, 0, 1], [0, 1, 7]):
        with pytest.raises(fc.errors.InputError, match="lanes"):
            grid.add_lanes(cells[:, :2], None, np.array(wrong), total)


@pytest.mark.parametrize("norm", [2.0, 3.0, 5.0, 7.0, 12.0])
def test_a_term_that_attains_its_bounds_is_kept_to_the_last_step(norm):
    """The square of a rounded square root may be below the whole number that it stands for."""
    grid = Grid([int(norm)], [2.0**20], [(norm, norm**0.5, 1.0)])
    assert grid.dense(np.ones((1, int(norm)))).tolist() == [[2.0**20] * int(norm)]
    tight = Grid([2], [1.0], [(2.0, 2.0**0.5, 1.0)])
    assert tight.dense(np.array([[1.0, -1.0]])).tolist() == [[1.0, -1.0]]


@pytest.mark.parametrize("scale", [2.0**20, 2.0**40, 2.0**55, 2.0**61])
def test_sums_are_exact_far_beyond_the_precision_of_floats(scale):
    values = np.array([[1.0], [1.0], [2.0**-19], [-(2.0**-20)], [1.0]] * 3)
    expected = min(sum(int(scale * value) for value in values[:, 0].tolist()), (1 << 62) - 1)
    for cells in (None, np.zeros((15, 1), dtype=np.int64)):
        total = ExactSum(1)
        grid = Grid([1], [scale], [(1.0, 1.0, 1.0)])
        grid.add_dense(values, total) if cells is None else grid.add_sparse(cells, values, total)
        assert total.value().tolist() == [expected]


def test_a_sum_saturates_once_whatever_the_order():
    for order in ([1, 1, 1, -1, -1], [-1, 1, 1, -1, 1], [1, -1, 1, -1, 1]):
        total = ExactSum(1)
        for sign in order:
            total.add(np.array([sign * (3 << 60)]), most=3 << 60)
        assert total.value().tolist() == [3 << 60]


def test_under_an_epsilon_a_sum_beyond_the_ring_is_clamped_and_not_refused():
    query, many = LabelCounts(2), Federation.of([ordinary(40, 2)])
    fine = {"labels": 2.0**58}
    assert grid_total(query, many, fc.Simulated(0), fine).tolist() == [(1 << 62) - 1] * 2
    noisy = LaplaceTerms(fine, {"labels": 2.0**40}).gather(query, many, fc.Simulated(0))
    assert noisy.shape == (2,)
    with pytest.raises(fc.errors.RefusedError, match="coarser"):
        FixedPoint(fine).gather(query, many, fc.Simulated(0))
