"""Source 004, the FL-SWAG slides: every rule of aggregation against a short formula of its own."""

from __future__ import annotations

from math import inf
from pathlib import Path

import numpy as np
import pytest

import fedcalib as fc
from fedcalib import metrics
from fedcalib.artifacts.networks import Ensemble, Trained
from fedcalib.data import partition
from fedcalib.errors import InputError
from fedcalib.methods.fed_avg import FedAvg
from fedcalib.methods.fl_swag import FLSWAG
from fedcalib.training import SGD, Adam, LeNet5, LocalTraining, SoftmaxRegression
from fedcalib.training.posterior import Curvature, PosteriorRecipe, Trajectory

NETWORK = SoftmaxRegression(4, 3)


def skewed(clients: int = 5) -> fc.Federation:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(700, 4))
    labels = (x @ rng.normal(size=(4, 3)) + rng.gumbel(size=(700, 3))).argmax(axis=1)
    return fc.Federation.dirichlet(fc.Records.of_logits(np.zeros((700, 3)), labels, inputs=x), clients, 1.0, seed=2)


def sgd(w: np.ndarray, x: np.ndarray, y: np.ndarray, epochs: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Weights after each epoch of plain SGD on softmax regression, rate 0.01, batches of 64."""
    seen = []
    for _ in range(epochs):
        order = rng.permutation(len(y))
        for rows in (order[at : at + 64] for at in range(0, len(y), 64)):
            s = x[rows] @ w[:12].reshape(3, 4).T + w[12:]
            p = np.exp(s - s.max(axis=1, keepdims=True))
            r = (p / p.sum(axis=1, keepdims=True) - np.eye(3)[y[rows]]) / len(rows)
            w = w - 0.01 * np.concatenate([(r.T @ x[rows]).reshape(-1), r.sum(axis=0)])
        seen.append(w)
    return seen


def local(data: fc.Federation, noise: fc.Simulated, epochs: int) -> list[list[np.ndarray]]:
    return [
        sgd(np.zeros(15), r.extra["inputs"], r.labels, epochs, noise.derive("term", k).generator())
        for k, r in enumerate(data.clients())
    ]


def answered(method: fc.Method, data: fc.Federation, noise: fc.Simulated):
    """The artifact of one round over all clients."""

    def ask(step: int, query: fc.query.Query) -> fc.query.Answer:
        return fc.query.Answer.of(query, query.total(data, noise), np.zeros(query.size), len(data))

    return fc.method.drive(method, data.schema, ask)


def test_slides_algorithm_fl_swag_is_the_product_of_the_clients_gaussians() -> None:
    """Sigma_S = (sum Sigma_i^-1)^-1 and mu_S = Sigma_S sum Sigma_i^-1 mu_i, with SWAG's mean and variance."""
    data, noise = skewed(), fc.Simulated(3)
    paths = [np.array(path[5:]) for path in local(data, noise, 20)]
    means, variances = np.mean(paths, axis=1), np.maximum(np.var(paths, axis=1), 1e-6)
    assert (variances > 1e-6).any()
    found = answered(FLSWAG.as_published(NETWORK), data, noise)
    sigma = 1 / (1 / variances).sum(axis=0)
    np.testing.assert_allclose(found.variance, sigma, rtol=1e-9)
    np.testing.assert_allclose(found.mean, sigma * (means / variances).sum(axis=0), atol=1e-9)


def test_slides_algorithm_fl_swag_with_low_rank_covariances() -> None:
    """Sigma_i = diag(v) / 2 + D D^T / (2 (R - 1)), inverted as dense matrices; the sketch costs some digits."""
    data, noise = skewed(), fc.Simulated(4)
    total, pull = np.zeros((15, 15)), np.zeros(15)
    for path in local(data, noise, 20):
        kept = np.array(path[5:])
        running = np.cumsum(kept, axis=0) / np.arange(1, 16)[:, None]
        d = (kept - running)[-3:].T
        v = np.maximum(kept.var(axis=0), 2e-6)
        inverse = np.linalg.inv(np.diag(v) / 2 + d @ d.T / (2 * 2))
        total, pull = total + inverse, pull + inverse @ running[-1]
    found = answered(FLSWAG.as_published(NETWORK, rank=3, clients=5), data, noise)
    np.testing.assert_allclose(found.mean, np.linalg.solve(total, pull), atol=1e-6)
    np.testing.assert_allclose(found.variance, np.diag(np.linalg.inv(total)), rtol=1e-5)


@pytest.mark.parametrize("weighted", [False, True], ids=["FedAvg", "wFedAvg"])
def test_slides_baselines_average_of_weights(weighted: bool) -> None:
    data, noise = skewed(), fc.Simulated(5)
    ends = np.array([path[-1] for path in local(data, noise, 2)])
    training = LocalTraining(2, 64, SGD(0.01))
    largest = int(data.sizes.max()) if weighted else None
    found = answered(FedAvg.as_published(NETWORK, training=training, largest=largest), data, noise)
    expected = np.average(ends, axis=0, weights=data.sizes if weighted else None)
    np.testing.assert_allclose(found.weights, expected, atol=1e-9)


@pytest.mark.parametrize("weighted", [False, True], ids=["BayAvg", "wBayAvg"])
def test_slides_baselines_average_of_predictions(weighted: bool) -> None:
    data, noise = skewed(), fc.Simulated(6)
    ends = [path[-1] for path in local(data, noise, 2)]
    sizes = tuple(map(float, data.sizes)) if weighted else None
    found = Ensemble.of(tuple(Trained(NETWORK, end) for end in ends), sizes).over(data.records).probs
    x, expected = data.records.extra["inputs"], np.zeros((len(data.records), 3))
    for end, size in zip(ends, sizes or (1.0,) * 5, strict=True):
        e = np.exp(x @ end[:12].reshape(3, 4).T + end[12:])
        expected += size * e / e.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected / expected.sum(axis=1, keepdims=True), atol=1e-9)


def test_calibration_paper_appendix_b_2_fed_avg_adds_the_mean_change_of_each_round() -> None:
    data, weights = skewed(), np.zeros(15)
    method = FedAvg.as_published(NETWORK, rounds=3)
    assert (method.rate, method.clip, method.training) == (1.0, inf, LocalTraining(1, 64, SGD(0.01)))

    def ask(step: int, query: fc.query.Query) -> fc.query.Answer:
        nonlocal weights
        noise = fc.Simulated(step)
        ends = [
            sgd(weights, r.extra["inputs"], r.labels, 1, noise.derive("term", k).generator())[-1]
            for k, r in enumerate(data.clients())
        ]
        weights = np.mean(ends, axis=0)
        return fc.query.Answer.of(query, query.total(data, noise), np.zeros(query.size), len(data))

    np.testing.assert_allclose(fc.method.drive(method, data.schema, ask).weights, weights, atol=1e-9)
    with pytest.raises(InputError, match="finite clip under differential privacy"):
        fc.run(method, fc.InProcess(data), fc.UserGaussian(1.0, 1e-5))


RECIPES = {
    "SWAG": Trajectory(LocalTraining(5, 64, SGD(0.05)), 15),
    "SWAG-published": Trajectory(LocalTraining(5, 64, SGD(0.05)), 15, shrink=0.0, weighted=False),
    "SWAG-low-rank": Trajectory(LocalTraining(5, 64, SGD(0.05)), 15, rank=3),
    "Fisher-after-training": Curvature(LocalTraining(20, 64, SGD(0.05))),
    "Curvature": Curvature(),
}


@pytest.mark.parametrize("clients", [10, 30])
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_weights_that_no_record_moves_end_at_the_prior_mean(recipe: PosteriorRecipe, clients: int) -> None:
    """They ended at up to `clients` times the common start."""
    rng, network = np.random.default_rng(0), SoftmaxRegression(5, 3)
    x = rng.normal(size=(3000, 5))
    x[:, 4] = 0.0
    labels = (x[:, :4] @ rng.normal(size=(4, 3)) + rng.gumbel(size=(3000, 3))).argmax(axis=1)
    start = rng.normal(size=18)
    data = fc.Federation.iid(fc.Records.of_logits(np.zeros((3000, 3)), labels, inputs=x), clients, 0)
    width = 100 if recipe == RECIPES["SWAG-low-rank"] else 0
    method = FLSWAG(network, recipe, prior=1.0, width=width, initial=Trained(network, start))
    for model in (fc.Open(), fc.SecAgg(bits=40)):
        found = fc.run(method, fc.InProcess(data), model, randomness=fc.Simulated(1)).artifact
        np.testing.assert_allclose(found.mean[[4, 9, 14]] / start[[4, 9, 14]], 0, atol=1e-3)
        assert np.abs(found.mean).max() < 3 * np.abs(start).max()


def pictures(shared: Path, records: int, test: int) -> tuple[fc.Records, fc.Records]:
    file, rng = np.load(shared / "mnist_writers" / "mnist.npz"), np.random.default_rng(0)
    parts = []
    for name, size in (("train", records), ("test", test)):
        rows = rng.permutation(len(file[f"y_{name}"]))[:size]
        x, y = file[f"x_{name}"][rows].reshape(-1, 28, 28).astype(np.uint8), file[f"y_{name}"][rows].astype(int)
        parts.append(fc.Records.of_logits(np.zeros((len(y), 10)), y, inputs=x))
    return parts[0], parts[1]


def quality(scored: fc.Records) -> tuple[float, float]:
    return metrics.accuracy(scored.probs, scored.labels), metrics.nll(scored.probs, scored.labels)


@pytest.mark.shared
def test_slides_variant_1_without_a_prior_samples_are_as_accurate_as_their_mean(shared: Path) -> None:
    """A pretrained LeNet-5 had weights of variance 1e6: sampled accuracy 12.7% where its mean had 90.5%."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    records, test = pictures(shared, 2300, 1000)
    network, rng = LeNet5(), np.random.default_rng(0)
    public, rest = records.take(slice(0, 1500)), records.take(slice(1500, 2300))
    training = LocalTraining(4, 64, Adam(1e-3))
    pretrained = training.train(network, network.start(0), public.extra["inputs"], public.labels, rng).weights
    recipe = Trajectory(LocalTraining(3, 32, SGD(0.02)), 3, shrink=0.0, weighted=False)
    method = FLSWAG(network, recipe, prior=0.0, initial=Trained(network, np.array(pretrained)), samples=5)
    data = partition.favourite_class(rest, 10, 0)
    found = fc.run(method, fc.InProcess(data), fc.Open(), randomness=fc.Simulated(0)).artifact
    mean, sampled = (quality(each.over(test))[0] for each in (found.point, found))
    assert mean > 0.8
    assert abs(mean - sampled) <= 0.01


@pytest.mark.shared
def test_diagonal_newton_steps_are_shortened_and_say_so(shared: Path) -> None:
    """MNIST, ten clients of Dirichlet(0.3): one undamped default step gave a log loss of 7.5, twenty of them 14.9."""
    records, test = pictures(shared, 6000, 2000)
    data, network = fc.Federation.dirichlet(records, 10, 0.3, seed=0), SoftmaxRegression(784, 10)

    def scored(method: fc.Method):
        artifact = fc.run(method, fc.InProcess(data), fc.Open(), randomness=fc.Simulated(0)).artifact
        return artifact, *quality(artifact.over(test))

    _, averaged_accuracy, averaged_loss = scored(FedAvg(network))
    one, _, loss = scored(FLSWAG(network))
    assert "Not converged" in one.warnings[0]
    assert loss < 2.0
    many, accuracy, loss = scored(FLSWAG(network, rounds=20))
    assert accuracy > averaged_accuracy - 0.01
    assert loss < averaged_loss
    assert np.isfinite(many.mean).all()
