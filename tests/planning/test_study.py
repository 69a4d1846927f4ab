from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import fedcalib as fc
from fedcalib.errors import InputError
from fedcalib.metrics.reliability import binary_ece
from fedcalib.planning import MODELS, Study, figure
from fedcalib.planning.simulation import ScoreModel

TREE = fc.methods.ScoreTree(4, 4)


def measured_errors(privacy: fc.privacy.Privacy, clients: int, runs: int) -> dict[str, np.ndarray]:
    """Run the real thing on drawn clients, and take the truth away."""
    model = ScoreModel()
    off: dict[str, list[float]] = {"auc": [], "accuracy": [], "recall": [], "ece": []}
    for seed in range(runs):
        scores, labels = model.draw(clients, np.random.default_rng(1000 + seed))
        federation = fc.Federation(fc.Records.of_scores(scores, labels), np.arange(clients + 1))
        found = fc.run(fc.ScoreCurves(TREE), fc.InProcess(federation), privacy, randomness=fc.Simulated(seed)).artifact
        for name, value in zip(off, (found.auc, found.accuracy(0.5), found.recall(0.5), found.ece()), strict=True):
            off[name].append(value.value - figure(name).truth(model))
    return {name: np.array(values) for name, values in off.items()}


@pytest.mark.parametrize(("clients", "epsilon"), [(1000, 1.0), (4000, 5.0)])
@pytest.mark.parametrize("privacy", list(MODELS))
def test_predictions_are_close_to_what_is_measured(privacy: str, clients: int, epsilon: float) -> None:
    """A small part of the grid; the rest is in the benchmark."""
    for name, off in measured_errors(MODELS[privacy](epsilon), clients, 100).items():
        forecast = Study(name, privacy, tree=TREE).forecast(clients, epsilon)
        if not forecast.enough:
            assert np.isnan(off).mean() > 0.01
            continue
        known = off[~np.isnan(off)]
        assert 1 / 1.4 < forecast.error / np.sqrt(np.mean(known**2)) < 1.4, name


def test_the_score_model_is_what_it_says() -> None:
    model = ScoreModel(0.2, 0.8, 1.5)
    scores, labels = model.draw(200_000, np.random.default_rng(0))
    assert labels.mean() == pytest.approx(0.2, abs=0.005)
    assert roc_auc_score(labels, scores) == pytest.approx(0.8, abs=0.005)
    assert figure("auc").truth(model) == pytest.approx(0.8, abs=1e-4)
    assert figure("ece").truth(model) == pytest.approx(binary_ece(scores, labels), abs=0.003)
    assert figure("accuracy").truth(model) == pytest.approx(((scores >= 0.5) == labels).mean(), abs=0.005)
    calibrated = ScoreModel(0.2, 0.8, 1.0)
    assert figure("ece").truth(calibrated) < 1e-4


def test_solves_for_clients_and_for_epsilon() -> None:
    study = Study("auc", "distributed")
    clients = study.clients_for(0.02, 1.0)
    assert clients.error == pytest.approx(0.02, rel=0.25)
    assert study.forecast(4 * clients.clients, 1.0).error < 0.014
    epsilon = study.epsilon_for(0.02, 2 * clients.clients)
    assert 0.01 < epsilon.epsilon < 1.0
    assert epsilon.error == pytest.approx(0.02, rel=0.3)


def test_more_clients_and_more_epsilon_help() -> None:
    study = Study("recall", "local", tree=fc.methods.ScoreTree(4, 3))
    errors = [study.forecast(clients, 2.0).error for clients in (10_000, 100_000, 1_000_000)]
    assert errors[0] > errors[1] > errors[2]
    assert study.forecast(10_000, 5.0).error < errors[0]


def test_says_when_there_is_not_enough_data() -> None:
    assert not Study("auc", "local").forecast(100, 0.1).enough
    assert Study("auc", "distributed").epsilon_for(0.0001, 1000).error > 0.0001


def test_refuses_nonsense() -> None:
    with pytest.raises(InputError, match="metric among"):
        Study("f1")
    with pytest.raises(InputError, match="privacy model among"):
        Study("auc", "none")
    with pytest.raises(InputError, match="epsilon above 0"):
        Study("auc").forecast(1000, -1.0)
    with pytest.raises(InputError, match="no epsilon"):
        Study("auc", "secagg").epsilon_for(0.01, 1000)
    with pytest.raises(InputError, match="target error above 0"):
        Study("auc").clients_for(0.0, 1.0)
    with pytest.raises(InputError, match="positive rate"):
        ScoreModel(positive_rate=0.0)


@pytest.mark.parametrize("privacy", [fc.SecAgg(), fc.DistributedDP(1.0), fc.LocalDP(5.0)])
def test_the_planner_reads_figures_as_an_evaluation_does(privacy: fc.privacy.Privacy) -> None:
    scores, labels = ScoreModel().draw(5000, np.random.default_rng(3))
    federation = fc.Federation(fc.Records.of_scores(scores, labels), np.arange(5001))
    found = fc.run(fc.ScoreCurves(TREE), fc.InProcess(federation), privacy, randomness=fc.Simulated(1)).artifact
    expected = {"auc": found.auc, "accuracy": found.accuracy(0.5), "precision": found.precision(0.5)}
    expected |= {"recall": found.recall(0.5), "ece": found.ece()}
    for name, measured in expected.items():
        assert figure(name).values(found.table, found.table.counts[None])[0] == pytest.approx(measured.value, abs=1e-9)
