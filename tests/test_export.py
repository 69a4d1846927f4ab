from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import final

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import fedcalib as fc
from fedcalib import registry
from fedcalib.artifacts.calibrator import Calibrator, Mixture
from fedcalib.artifacts.scaling import (
    Beta,
    MatrixScaling,
    OddsCurve,
    OrderPreservingNetwork,
    OrderPreservingVector,
    Platt,
    Temperature,
    VectorScaling,
)
from fedcalib.artifacts.steps import Blend, EdgeSteps, Steps, TopLabelSteps
from fedcalib.errors import InputError
from fedcalib.export import Exported, Input, Logits, Probabilities, Score, to_onnx
from fedcalib.export.graph import Graph, Scores, calibrated
from fedcalib.export.model import EXTREME_TOLERANCE, ORDINARY_TOLERANCE
from fedcalib.records import softmax
from fedcalib.types import Floats
from tests.examples import examples

RNG = np.random.default_rng(3)
STEPS = Steps.of_table(4, RNG.random((4, 15)))
EMPTY = Steps.of_table(4, np.where(RNG.random((4, 10)) < 0.7, 0.0, 0.4))  # rows without mass keep the base model's
VECTOR = VectorScaling(tuple(RNG.normal(1, 0.3, 4)), tuple(RNG.normal(0, 1, 4)))
OFFSETS = fc.artifacts.LogitOffsets(tuple(map(tuple, RNG.normal(0, 0.5, (4, 16)).tolist())), 8.0)
BENT = OrderPreservingVector(tuple(RNG.normal(0, 0.1, 4)), tuple(RNG.normal(0.5, 0.3, 4)))
SHIFTS = fc.artifacts.LogitShifts(((0.2, -0.1), (0.3, 0.1), (-0.2, 0.0), (0.1, 0.4)), 8.0)
TWO_CHAINS = Mixture((fc.artifacts.Chain((VECTOR, OFFSETS)), fc.artifacts.Chain((SHIFTS, BENT, OFFSETS))), (0.5, 0.5))
SHARES = tuple((np.arange(1, 5) / 10).tolist())

CALIBRATORS: dict[str, Calibrator] = {
    "identity": fc.artifacts.Identity("nothing to do"),
    "temperature": Temperature(2.3),
    "sharp temperature": Temperature(0.05),
    "temperature near one": Temperature(1 + 1e-8),
    "vector": VECTOR,
    "binary vector": VectorScaling((0.7, 1.3), (0.2, -0.4)),
    "binary matrix": MatrixScaling(((0.9, 0.2), (-0.3, 1.1)), (0.0, 0.5)),
    "binary order-preserving vector": OrderPreservingVector((0.1, -0.2), (0.5, 0.3)),
    "binary order-preserving network": OrderPreservingNetwork(
        (RNG.normal(0, 0.3, (8, 2)), RNG.normal(0, 0.3, (2, 8))), (RNG.normal(size=8), RNG.normal(size=2))
    ),
    "matrix": MatrixScaling(tuple(map(tuple, (np.eye(4) + RNG.normal(0, 0.2, (4, 4))).tolist())), SHARES),
    "order-preserving vector": OrderPreservingVector(tuple(RNG.normal(0, 0.1, 4)), tuple(RNG.normal(0.5, 0.3, 4))),
    "order-preserving network": OrderPreservingNetwork(
        (RNG.normal(0, 0.1, (8, 4)), RNG.normal(0, 0.1, (8, 8)), RNG.normal(0, 0.1, (4, 8))),
        (RNG.normal(size=8), RNG.normal(size=8), RNG.normal(size=4)),
    ),
    "steps": STEPS,
    "steps without mass": EMPTY,
    "log-odds steps": Steps.of_table(4, RNG.random((4, 16)), fc.methods.EvenLogOdds()),
    "binary log-odds steps": Steps.of_table(2, RNG.random((1, 12)), fc.methods.EvenLogOdds(6.0)),
    "steps by odds": Steps.of_table(4, RNG.random((4, 16)), fc.methods.EvenLogOdds(), fc.methods.ByOdds()),
    "empty steps by odds": Steps.of_table(4, np.array(EMPTY.table), normaliser=fc.methods.ByOdds()),
    "binary steps by odds": Steps.of_table(2, RNG.random((1, 10)), normaliser=fc.methods.ByOdds()),
    "blend by odds": Blend(
        Steps.of_table(4, np.array(STEPS.table), normaliser=fc.methods.ByOdds()), (0.2, 0.9, 0.5, 1.0), True
    ),
    "binary steps": Steps.of_table(2, RNG.random((1, 10))),
    "blend": Blend(STEPS, (0.2, 0.9, 0.0, 1.0)),
    "blend of what changed": Blend(STEPS, (0.2, 0.9, 0.5, 1.0), changed_only=True),
    "top label": TopLabelSteps(4, tuple(RNG.random(15).tolist())),
    "edges": EdgeSteps((0.1, 0.3, 0.35, 0.9), (0.0, 0.2, 0.2, 0.7, 1.0)),
    "no edges": EdgeSteps((), (0.25,)),
    "platt": Platt(0.4, -0.7),
    "platt near one": Platt(1 - 1e-8, 0.0),
    "platt within a span": Platt(0.4, -0.7, (-1.5, 1.0)),
    "beta": Beta(0.5, 1.5, 0.2),
    "curve of log-odds": OddsCurve((-28.0, -1.0, 0.5, 28.0), (-9.0, -2.0, 0.1, 21.0)),
    "beta within a span": Beta(0.5, 1.5, 0.2, (-1.5, 1.0)),
    "offsets": OFFSETS,
    "shifts": fc.artifacts.LogitShifts(tuple(map(tuple, RNG.normal(0, 0.5, (4, 2)).tolist())), 8.0),
    "label shift": fc.artifacts.LabelShift(VECTOR, SHARES, SHARES[::-1]),
    "mixture": Mixture((Temperature(1.7), STEPS), (0.3, 0.7)),
    "what Auto finds": fc.artifacts.KeepTop(
        fc.artifacts.Chain((fc.artifacts.KeepTop(fc.artifacts.Chain((Temperature(2.1), TWO_CHAINS))), OFFSETS))
    ),
    "chain": fc.artifacts.Chain((Temperature(1.7), OFFSETS, STEPS)),
    "guard": fc.artifacts.KeepTop(fc.artifacts.Chain((VECTOR, STEPS))),
    "guard of many": fc.artifacts.KeepTop(Steps.of_table(12, RNG.random((12, 20)))),
}


BINARY = [name for name in CALIBRATORS if name.startswith("binary")]


@pytest.mark.parametrize("name", [*BINARY, "temperature", "platt", "beta", "edges"])
def test_two_classes_are_one_score_however_it_was_given(name: str) -> None:
    calibrator, odds = CALIBRATORS[name], RNG.normal(0, 3, 50)
    logits = np.stack([-1.7 * odds, odds - 1.7 * odds], axis=1)  # a shift that depends on the record
    probs = softmax(logits)
    given = [fc.Records.of_logits(logits, np.zeros(50)), fc.Records.of_probs(probs, np.zeros(50))]
    for found in (calibrator.from_logits(logits), calibrator(probs), *map(calibrator.of, given)):
        np.testing.assert_allclose(found[:, 1], calibrator(probs[:, 1]), rtol=1e-9, atol=1e-12)


def run(exported: Exported, values: object) -> Floats:
    session = onnxruntime.InferenceSession(exported.model, providers=["CPUExecutionProvider"])
    found: Floats = session.run(None, {session.get_inputs()[0].name: values})[0]
    return found


def test_every_calibrator_that_can_be_saved_is_tried() -> None:
    types = {type(calibrator) for calibrator in CALIBRATORS.values()}
    names = [row.name for row in registry.ROWS if row.wire and row.module.startswith(".artifacts.")]
    missing = []
    for name in names:
        try:
            found = registry.lookup(name)
        except ImportError:
            continue
        if issubclass(found, Calibrator) and found not in types:
            missing.append(name)
    assert missing == []


@pytest.mark.parametrize("takes", [Probabilities(), Logits(), Probabilities(single=True)], ids=repr)
@pytest.mark.parametrize("name", CALIBRATORS)
def test_models_agree_with_python(name: str, takes: Input) -> None:
    exported = to_onnx(CALIBRATORS[name], takes)
    assert exported.parity.records > 500
    if not takes.single:
        assert exported.parity.ordinary <= ORDINARY_TOLERANCE
        assert exported.parity.extreme <= EXTREME_TOLERANCE


@pytest.mark.parametrize("name", ["binary steps", "edges", "no edges", "platt", "beta", "temperature", "identity"])
def test_binary_calibrators_take_one_score_a_record(name: str) -> None:
    exported = to_onnx(CALIBRATORS[name], Score())
    scores = np.array([0.0, 0.1, 0.3, 0.5, 1.0])
    found = run(exported, scores)
    assert found.shape == (5,)
    np.testing.assert_allclose(found, CALIBRATORS[name](scores), atol=1e-12)


def test_one_score_a_record_needs_two_classes() -> None:
    with pytest.raises(InputError, match="4 classes"):
        to_onnx(STEPS, Score())


SMOOTH = ("order-preserving vector", "order-preserving network", "matrix")  # without steps that rounding could decide


@pytest.mark.parametrize("name", SMOOTH)
def test_agreement_is_not_a_matter_of_the_tried_records(name: str) -> None:
    session = onnxruntime.InferenceSession(to_onnx(CALIBRATORS[name], Logits()).model)

    @settings(max_examples=examples(100), deadline=None)
    @given(arrays.arrays(np.float64, (3, 4), elements=st.floats(-50, 50)))
    def agree(logits: Floats) -> None:
        (found,) = session.run(None, {"logits": logits})
        np.testing.assert_allclose(found, CALIBRATORS[name].from_logits(logits), atol=1e-10)

    agree()


def test_what_python_refuses_comes_back_as_nan_and_disturbs_no_neighbour() -> None:
    probs = softmax(RNG.normal(size=(4, 4)))
    spoilt = probs.copy()
    spoilt[0, 0], spoilt[1, 1], spoilt[2, 2] = np.nan, -0.2, 1.5
    found = run(to_onnx(STEPS), spoilt)
    assert np.isnan(found[:3]).all()
    np.testing.assert_allclose(found[3:], STEPS(probs[3:]), atol=1e-12)
    logits = np.array([[np.inf, 0, 0, 0], [0.0, 1, 2, 3]])
    assert np.isnan(run(to_onnx(STEPS, Logits()), logits)).tolist() == [[True] * 4, [False] * 4]


def test_no_records_give_no_records() -> None:
    assert run(to_onnx(fc.artifacts.KeepTop(STEPS)), np.zeros((0, 4))).shape == (0, 4)


def test_a_model_says_what_it_takes() -> None:
    exported = to_onnx(Temperature(2.0), Logits())
    model = onnx.load_model_from_string(exported.model)
    properties = {prop.key: prop.value for prop in model.metadata_props}
    assert properties == {"fedcalib.input": "logits", "fedcalib.artifact": "Temperature", "fedcalib.classes": "any"}
    assert [value.name for value in model.graph.input] == ["logits"]
    assert [opset.version for opset in model.opset_import] == [exported.opset] == [18]
    assert model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.DOUBLE


def test_any_number_of_classes_fits_a_temperature() -> None:
    exported = to_onnx(fc.artifacts.KeepTop(Temperature(3.0)))
    for classes in (2, 7, 100):
        probs = RNG.dirichlet(np.ones(classes), 20)
        np.testing.assert_allclose(run(exported, probs), Temperature(3.0)(probs), atol=1e-12)


@final
@dataclass(frozen=True)
class Halved(Calibrator):
    """What no graph below agrees with."""

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        return 0.5 * probs + 0.5 / probs.shape[1]


@final
@dataclass(frozen=True)
class Unknown(Calibrator):
    """What nobody wrote a graph for."""

    def calibrate(self, probs: Floats, logits: Floats) -> Floats:
        return probs


@calibrated.register
def _(calibrator: Halved, graph: Graph, scores: Scores) -> str:
    return graph.op("Mul", scores.probs, 0.5)


def test_a_model_that_disagrees_is_refused() -> None:
    with pytest.raises(InputError, match=r"agree.*found a difference of.*nothing was written"):
        to_onnx(Halved())


def test_a_calibrator_without_a_graph_is_refused() -> None:
    with pytest.raises(InputError, match="Unknown"):
        to_onnx(Unknown())


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=r"pip install 'fedcalib\[onnx\]'"):
        to_onnx(Temperature(2.0))
