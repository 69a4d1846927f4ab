"""Every method runs under every model in every runtime, or is refused with a reason."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

import fedcalib as fc
from fedcalib import wire
from fedcalib.errors import InputError, RefusedError
from fedcalib.loop import Runtime
from tests.contract.subjects import METHODS, MODELS, RUNTIMES, federation, name


def outcome(method: fc.Method, runtime: Runtime, privacy: fc.privacy.Privacy) -> object:
    """Run, or give back the reason why not."""
    try:
        return fc.run(method, runtime, privacy, randomness=fc.Simulated(7)).artifact
    except (RefusedError, InputError) as refusal:
        return refusal


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("place", RUNTIMES, ids=name)
@pytest.mark.parametrize("privacy", MODELS, ids=name)
@pytest.mark.parametrize("method", METHODS, ids=name)
def test_runs_or_refuses_with_a_reason(
    method: fc.Method, privacy: fc.privacy.Privacy, place: Callable[[fc.Federation], Runtime], classes: int
) -> None:
    result = outcome(method, place(federation(classes)), privacy)
    if isinstance(result, Exception):
        assert len(str(result)) > 40
        assert str(result).endswith(".")
    else:
        assert wire.loads(wire.dumps(result)) is not None
        if isinstance(result, fc.Calibrator):
            check_probabilities(result, classes)


def check_probabilities(calibrator: fc.Calibrator, classes: int) -> None:
    """A calibrator answers any probabilities, certain ones included, with probabilities."""
    rng = np.random.default_rng(0)
    asked = np.concatenate([rng.dirichlet(np.ones(classes), 50), np.eye(classes)])
    answered = calibrator(asked)
    assert answered.shape == asked.shape
    assert np.isfinite(answered).all()
    assert answered.min() >= 0
    assert answered.max() <= 1 + 1e-12
    np.testing.assert_allclose(answered.sum(axis=1), 1.0, atol=1e-9)


def numbers(artifact: object) -> np.ndarray:
    """Every number in an artifact, in order; how many bins are small is told of exact counts only."""
    found: list[float] = []

    def walk(data: object) -> None:
        if isinstance(data, bool) or data is None or isinstance(data, str):
            return
        if isinstance(data, int | float):
            found.append(float(data))
        elif isinstance(data, dict) and "array" in data:
            found.extend(np.asarray(wire.decode(data), dtype=float).reshape(-1))
        elif isinstance(data, dict):
            for name, item in data.items():
                walk(None if name == "small_bins" else item)
        elif isinstance(data, list):
            for item in data:
                walk(item)

    walk(wire.encode(artifact))
    return np.array(found)


def asks_whole_clients(method: fc.Method, schema: fc.Schema) -> bool:
    """Local fits depend on who holds what, by their nature."""
    try:
        return any(isinstance(query, fc.query.ClientQuery) for query in fc.method.Plan.of(method, schema).queries)
    except InputError:
        return False


@cache
def pooled_and_split(classes: int) -> tuple[fc.Federation, list[fc.Federation]]:
    """The same records at one client, at five, at fifty, and at five in another order."""
    five = federation(classes)
    parts = [five.client(k) for k in range(len(five))]
    backwards = fc.Federation.of(parts[::-1])
    fifty = fc.Federation.iid(five.records, 50, seed=1)
    return fc.Federation.of([five.records]), [five, backwards, fifty]


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("method", METHODS, ids=name)
def test_federated_equals_pooled_in_the_open(method: fc.Method, classes: int) -> None:
    pooled, split = pooled_and_split(classes)
    if asks_whole_clients(method, pooled.schema):
        pytest.skip("local fits depend on who holds what")
    expected = outcome(method, fc.InProcess(pooled), fc.Open())
    if isinstance(expected, Exception):
        pytest.skip(f"refused: {expected}")
    for federated in split:
        actual = outcome(method, fc.InProcess(federated), fc.Open())
        # what is asked agrees to 1e-12 (below); a fit that iterates on it may enlarge the last digits
        np.testing.assert_allclose(numbers(actual), numbers(expected), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("method", METHODS, ids=name)
def test_open_sums_do_not_depend_on_who_holds_what(method: fc.Method, classes: int) -> None:
    """A sum in another order differs in its last digits at most: 1e-12 of what the records add up to."""
    pooled, split = pooled_and_split(classes)
    try:
        queries = fc.method.Plan.of(method, pooled.schema).queries
    except InputError as refusal:
        pytest.skip(f"refused: {refusal}")
    for query in queries:
        if isinstance(query, fc.query.ClientQuery):
            continue
        expected = query.total(pooled, fc.Simulated(0))
        for federated in split:
            actual = query.total(federated, fc.Simulated(0))
            np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12 * len(pooled.records))


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("method", METHODS, ids=name)
def test_secure_sums_do_not_depend_on_who_holds_what(method: fc.Method, classes: int) -> None:
    """Each record is cut to the grid on its own, so any split of the records gives the very same integers."""
    pooled, split = pooled_and_split(classes)
    if asks_whole_clients(method, pooled.schema):
        pytest.skip("local fits depend on who holds what")
    alone = fc.InProcess(pooled, fewest_clients=1)
    expected = outcome(method, alone, fc.SecAgg())
    if isinstance(expected, Exception):
        pytest.skip(f"refused: {expected}")
    for federated in split:
        assert numbers(outcome(method, fc.InProcess(federated), fc.SecAgg())).tolist() == numbers(expected).tolist()


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("method", METHODS, ids=name)
def test_integers_are_exact_under_secure_aggregation(method: fc.Method, classes: int) -> None:
    data = federation(classes)
    try:
        plan = fc.method.Plan.of(method, data.schema)
    except InputError as refusal:
        pytest.skip(f"refused: {refusal}")
    query = plan.queries[0]
    for privacy in (fc.Open(), fc.SecAgg()):
        mechanism = privacy.mechanism(query, plan, fc.cohort.Cohort(5, 1.0, 3), fc.Everyone())
        total = mechanism.gather(query, data, fc.Simulated(0))
        value, _ = mechanism.decode(query, total, 5, fc.Simulated(0))
        for block, part in query.split(value).items():
            if query.blocks[block].integral:
                exact = query.split(query.total(data, fc.Simulated(0)))[block]
                assert part.tolist() == exact.tolist()
