"""What happens at the edges: absent classes, lone records, ties, certain probabilities, numbers that are none."""

from __future__ import annotations

import numpy as np
import pytest

import fedcalib as fc
from fedcalib.artifacts.steps import Steps
from fedcalib.errors import InputError, TooFewClients
from fedcalib.flows.tables import LabelHistograms
from tests.contract.subjects import federation

CALIBRATE: list[fc.Method] = [
    fc.FedBin(),
    fc.FedBBQ(),
    fc.FedBin(weighting=fc.methods.Doubting()),
    fc.FedTemp(rounds=2),
    fc.FedVector(rounds=2),
    fc.FedOPVector(rounds=2),
    fc.OneShotTemperature(),
    fc.methods.ResidualBinning(),
    fc.methods.ClassShifts(),
    fc.methods.RidgeVector(rounds=3),
    fc.Auto(),
]
EACH = pytest.mark.parametrize("method", CALIBRATE, ids=lambda method: type(method).__name__)


def calibrator(
    method: fc.Method, clients: list[fc.Records], privacy: fc.privacy.Privacy | None = None
) -> fc.Calibrator:
    data = fc.Federation.of(clients)
    place = fc.InProcess(data, fewest_clients=1, fewest_records=0)
    return fc.run(method, place, privacy or fc.SecAgg(), randomness=fc.Simulated(0)).artifact


def check(artifact: fc.Calibrator, classes: int) -> None:
    rng = np.random.default_rng(0)
    asked = np.concatenate([rng.dirichlet(np.ones(classes), 30), np.eye(classes), np.full((1, classes), 1 / classes)])
    out = artifact(asked)
    assert np.isfinite(out).all()
    np.testing.assert_allclose(out.sum(axis=1), 1.0)


@EACH
def test_a_class_that_nobody_has(method: fc.Method) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (300, 4))
    labels = rng.integers(3, size=300)  # never class 3
    artifact = calibrator(method, [fc.Records.of_logits(logits[k::5], labels[k::5]) for k in range(5)])
    check(artifact, 4)


@EACH
def test_clients_of_one_class_each(method: fc.Method) -> None:
    rng = np.random.default_rng(1)
    clients = [fc.Records.of_logits(rng.normal(0, 2, (30, 3)) + 4 * np.eye(3)[k], np.full(30, k)) for k in range(3)]
    check(calibrator(method, clients), 3)


@EACH
def test_clients_of_a_single_record_and_of_none(method: fc.Method) -> None:
    rng = np.random.default_rng(2)
    lone = [fc.Records.of_logits(rng.normal(size=(1, 3)), [k % 3]) for k in range(12)]
    check(calibrator(method, [*lone, fc.Records.empty(3)]), 3)
    check(calibrator(method, [fc.Records.empty(3)] * 3, fc.Open()), 3)


@EACH
def test_certain_probabilities_and_ties(method: fc.Method) -> None:
    certain = fc.Records.of_probs(np.eye(3)[[0, 1, 2, 0, 1, 2]], [0, 1, 2, 1, 2, 0])
    tied = fc.Records.of_probs(np.full((12, 3), 1 / 3), np.arange(12) % 3)
    artifact = calibrator(method, [certain, tied, certain])
    check(artifact, 3)


@EACH
def test_numbers_that_are_none_are_refused_at_the_door(method: fc.Method) -> None:
    for bad in (np.nan, np.inf):
        with pytest.raises(InputError, match="finite"):
            fc.Records.of_logits(np.array([[0.0, bad]]), [0])
    artifact = calibrator(method, [federation(3).records])
    with pytest.raises(InputError):
        artifact(np.array([[np.nan, 0.5, 0.5]]))
    with pytest.raises(InputError):
        artifact.from_logits(np.array([[np.nan, 0.5, 0.5]]))


def test_an_all_zero_row_keeps_the_base_model() -> None:
    steps = Steps.of_table(3, np.zeros((3, 4)))
    probs = np.random.default_rng(0).dirichlet(np.ones(3), 20)
    np.testing.assert_array_equal(steps(probs), probs)


def test_values_outside_the_unit_interval_are_cut() -> None:
    steps = Steps.of_table(3, np.array([[-1.0, 2.0], [0.5, np.nan], [0.0, 1.0]]))
    assert np.array(steps.table).tolist() == [[0.0, 1.0], [0.5, 0.0], [0.0, 1.0]]


def test_signed_counts_are_cut_only_before_ratios() -> None:
    noisy = LabelHistograms(np.array([[-3.0, 5.0]]), np.array([[4.0, -1.0]]), 1.0, 1.0)
    assert noisy.merged(1).positives.tolist() == [[2.0]]
    assert noisy.merged(1).negatives.tolist() == [[3.0]]


@pytest.mark.parametrize("method", [fc.FedBin(), fc.FedBBQ()], ids=lambda method: type(method).__name__)
def test_the_steps_of_a_class_that_nobody_has_are_the_base_model_s(method: fc.Method) -> None:
    rng = np.random.default_rng(3)
    records = fc.Records.of_logits(rng.normal(0, 2, (300, 4)), rng.integers(3, size=300))  # never class 3
    steps = calibrator(method, [records])
    assert isinstance(steps, Steps)
    table = np.array(steps.table)
    middles = steps.axis.middles(table.shape[1])
    assert table[3].tolist() == middles.tolist()
    assert not np.allclose(table[0], middles)


def test_cells_that_noise_may_have_made_keep_the_base_model() -> None:
    counts = LabelHistograms(np.array([[5.0, 50.0]]), np.array([[3.0, 10.0]]), 8.0, 1.0)  # three deviations are 12
    steps = Steps.of_table(2, np.array([[0.6, 0.8]]))
    assert fc.methods.Doubting(3.0).apply(steps, counts) == Steps.of_table(2, np.array([[0.25, 0.8]]))
    assert fc.methods.Unweighted().apply(steps, counts) == steps
    with pytest.raises(InputError, match="deviations"):
        fc.methods.Doubting(-1.0)


def test_doubt_saves_the_top_class_from_noise() -> None:
    """A whole client is hidden among thirty: nearly every cell is noise, and the printed ratios lose most classes."""
    data = federation(4, clients=30, records=900)
    privacy = fc.UserGaussian(1.0, 1e-5, clip=10.0)
    base = data.records.probs.argmax(axis=1)

    def kept(weighting: fc.methods.Unweighted | fc.methods.Doubting) -> float:
        method = fc.FedBin(weighting=weighting)
        artifact = fc.run(method, fc.InProcess(data), privacy, randomness=fc.Simulated(4)).artifact
        return float((artifact.over(data.records).probs.argmax(axis=1) == base).mean())

    assert kept(fc.methods.Unweighted()) < 0.7
    assert kept(fc.methods.Doubting()) > 0.9


def test_small_cohorts_are_refused_before_anything_is_read() -> None:
    two = fc.Federation.of([federation(3).records] * 2)
    for method in (fc.FedBBQ(), fc.Auto()):
        with pytest.raises(TooFewClients):
            fc.run(method, fc.InProcess(two), fc.SecAgg())


def test_ties_go_to_the_lowest_class_on_both_sides() -> None:
    guarded = fc.artifacts.KeepTop(fc.run(fc.FedBin(), fc.InProcess(federation(3)), fc.Open()).artifact)
    tied = np.array([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]])
    assert guarded(tied).argmax(axis=1).tolist() == [0, 1]
