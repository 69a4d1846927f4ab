"""What federated training is compared with: samplers at the right temperature, averages with the right weights."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.baselines import alone, averaged_predictions, averaged_weights
from benchmarks.langevin import Langevin

import fedcalib as fc
from fedcalib import wire
from fedcalib.artifacts.networks import Ensemble, Trained
from fedcalib.errors import InputError
from fedcalib.training import SGD, LocalTraining, SoftmaxRegression

NETWORK = SoftmaxRegression(3, 2)
ROOT = Path(__file__).resolve().parents[2]


def data(n: int = 200, seed: int = 0) -> fc.Records:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    labels = (x @ np.array([1.0, -1.0, 0.5]) + rng.logistic(size=n) > 0).astype(int)
    return fc.Records.of_logits(np.zeros((n, 2)), labels, inputs=x)


@pytest.mark.parametrize(
    "sampler",
    [
        Langevin(rate=2e-3, burn_in=200, kept=1500, thinning=1, batch=200, prior=20.0),
        Langevin(
            rate=4e-4, burn_in=200, kept=1500, thinning=1, batch=200, prior=20.0, preconditioned=True, damping=0.1
        ),
    ],
    ids=["SGLD", "pSGLD"],
)
def test_langevin_draws_have_the_posterior_spread(sampler: Langevin) -> None:
    """At temperature one, draws spread as the curvature says; without the factor N it would be 14 times as far."""
    records = data()
    drawn = np.stack([each.weights for each in sampler.sample(NETWORK, NETWORK.start(0), records, 0).members])
    x = np.concatenate([records.extra["inputs"], np.ones((200, 1))], axis=1)
    probs = Trained(NETWORK, drawn.mean(axis=0)).over(records).probs
    order = [0, 1, 2, 6, 3, 4, 5, 7]  # each class's weights with its shift
    blocks = [[(probs[:, a] * ((a == b) - probs[:, b])) @ (x[:, :, None] * x[:, None, :]).reshape(200, -1)
               for b in range(2)] for a in range(2)]  # fmt: skip
    hessian = np.block([[block.reshape(4, 4) for block in row] for row in blocks]) + 20.0 * np.eye(8)
    expected = np.diag(np.linalg.inv(hessian))
    np.testing.assert_allclose(drawn.var(axis=0)[order], expected, rtol=0.5)


def test_weighted_averages_divide_by_the_total_size() -> None:
    federation = fc.Federation.dirichlet(data(), 3, 1.0, 0)
    models = alone(NETWORK, federation, LocalTraining(2, 16, SGD(0.1)), weights=NETWORK.start(0), seed=0)
    sizes = tuple(float(size) for size in federation.sizes)
    stacked = np.stack([model.weights for model in models])
    np.testing.assert_allclose(averaged_weights(models).weights, stacked.mean(axis=0))
    by_size = (stacked * federation.sizes[:, None]).sum(axis=0) / federation.sizes.sum()
    np.testing.assert_allclose(averaged_weights(models, sizes).weights, by_size)
    holdout = data(50, seed=1)
    probs = np.stack([model.over(holdout).probs for model in models])
    np.testing.assert_allclose(averaged_predictions(models).over(holdout).probs, probs.mean(axis=0))
    weighted = np.average(probs, axis=0, weights=federation.sizes)
    np.testing.assert_allclose(averaged_predictions(models, sizes).over(holdout).probs, weighted)


def test_a_prior_is_a_decay_by_its_share_of_the_records() -> None:
    federation = fc.Federation.of([data()])
    plain, decayed = LocalTraining(3, 16, SGD(0.1)), LocalTraining(3, 16, SGD(0.1), decay=8.0 / len(data()))
    one = alone(NETWORK, federation, plain, weights=NETWORK.start(0), seed=0, prior=8.0)[0]
    other = alone(NETWORK, federation, decayed, weights=NETWORK.start(0), seed=0)[0]
    np.testing.assert_array_equal(one.weights, other.weights)


def test_ensembles_survive_the_wire_and_refuse_wrong_shares() -> None:
    ensemble = Ensemble.of((Trained(NETWORK, np.ones(8)), Trained(NETWORK, np.zeros(8))))
    again = wire.loads(wire.dumps(ensemble))
    np.testing.assert_array_equal(again.over(data()).probs, ensemble.over(data()).probs)
    with pytest.raises(InputError, match="with sum 1"):
        Ensemble(ensemble.members, (0.5, 0.6))


def test_the_example_runs_and_repair_helps(tmp_path: Path) -> None:
    """Real digits under heavy skew, from raw inputs to calibrated probabilities."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "train_repair_calibrate.py"), str(tmp_path)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = {line.split()[0]: [float(word) for word in line.split() if word[0].isdigit()]
               for line in done.stdout.splitlines()[:3]}  # fmt: skip
    assert figures["repaired"][0] > figures["trained"][0] + 0.1
    assert figures["repaired"][2] < figures["trained"][2] / 2
    # its noise is real: of 3,000 runs one in a hundred ended above the repaired log loss, none above 0.28
    assert figures["calibrated"][2] < figures["trained"][2] / 2
    assert figures["calibrated"][0] == figures["repaired"][0]  # a temperature moves no top class
    assert "epsilon = 6" in done.stdout  # the calibration and two measurements, on one ledger
    assert (tmp_path / "who-holds-what.png").exists()
    report = (tmp_path / "report.html").read_text()
    assert "repaired and calibrated" in report
    assert "epsilon = 6 for all that was asked" in report
