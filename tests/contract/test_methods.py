"""What every method promises: a plan that ignores answers, and an artifact that survives any of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedcalib as fc
from fedcalib import wire
from fedcalib.artifacts.scaling import Temperature
from fedcalib.errors import InputError
from fedcalib.method import drive
from tests.contract.subjects import METHODS, SCHEMAS, name
from tests.contract.test_product import check_probabilities
from tests.examples import examples
from tests.strategies import answers

PAIRS = [(method, schema) for method in METHODS for schema in SCHEMAS]


def planned(method: fc.Method, schema: fc.Schema) -> fc.method.Plan:
    try:
        return fc.method.Plan.of(method, schema)
    except InputError as refusal:
        pytest.skip(f"refused: {refusal}")


@pytest.mark.parametrize(("method", "schema"), PAIRS, ids=[f"{name(m)}-{s.classes}" for m, s in PAIRS])
@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_plan_ignores_answers_and_artifacts_stay_valid(
    method: fc.Method, schema: fc.Schema, data: st.DataObject
) -> None:
    plan = planned(method, schema)
    asked = 0

    def ask(step: int, query: fc.query.Query) -> fc.query.Answer:
        nonlocal asked
        asked += 1
        plan.check(step, query)
        return data.draw(answers(query))

    artifact = drive(method, schema, ask)
    assert asked == len(plan.queries)
    text = wire.dumps(artifact)
    assert wire.dumps(wire.loads(text)) == text
    if isinstance(artifact, fc.Calibrator):
        check_probabilities(artifact, schema.classes)


@pytest.mark.parametrize("method", METHODS, ids=name)
def test_methods_survive_the_wire(method: fc.Method) -> None:
    assert wire.loads(wire.dumps(method)) == method


@pytest.mark.parametrize(("method", "schema"), PAIRS, ids=[f"{name(m)}-{s.classes}" for m, s in PAIRS])
def test_the_same_answers_give_the_same_artifact(method: fc.Method, schema: fc.Schema) -> None:
    planned(method, schema)

    def ask(step: int, query: fc.query.Query) -> fc.query.Answer:
        value = np.random.default_rng(step).normal(20, 10, query.size)
        return fc.query.Answer.of(query, value, np.ones(query.size), 5)

    assert wire.dumps(drive(method, schema, ask)) == wire.dumps(drive(method, schema, ask))


@pytest.mark.parametrize("tiny", [1e-193, 5e-324])
@pytest.mark.parametrize("method", [fc.FederatedMetrics(), fc.methods.PairedMetrics(Temperature(1.5))], ids=name)
def test_sums_over_almost_no_record_determine_nothing(method: fc.Method, tiny: float) -> None:
    """Their squares are 0, by which nothing can be divided."""

    def ask(step: int, query: fc.query.Query) -> fc.query.Answer:
        value = np.full(query.size, tiny)
        value[0] = 1.0
        return fc.query.Answer.of(query, value, np.zeros(query.size), 5)

    artifact = drive(method, fc.Schema(2, 5), ask)
    assert getattr(artifact, "before", artifact).ece is None
