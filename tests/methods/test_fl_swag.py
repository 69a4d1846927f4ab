"""FL-SWAG: the product of clients' beliefs is what pooled records would believe, and no dead weight decides it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import fedcalib as fc
from fedcalib import wire
from fedcalib.artifacts.gaussians import WeightPosterior
from fedcalib.errors import InputError
from fedcalib.methods.fed_avg import FedAvg
from fedcalib.methods.fl_swag import FLSWAG
from fedcalib.queries.training import LocalPosterior
from fedcalib.training import SGD, LocalTraining, SoftmaxRegression
from fedcalib.training.posterior import Curvature, LocalGaussian, Trajectory, from_sketch, probes, product, woodbury
from tests.memory import PRINT_PEAK

NETWORK = SoftmaxRegression(4, 3)


def data(n: int = 600, seed: int = 0) -> fc.Records:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    truth = np.random.default_rng(5).normal(size=(4, 3))
    labels = (x @ truth + rng.gumbel(size=(n, 3))).argmax(axis=1)
    return fc.Records.of_logits(np.zeros((n, 3)), labels, inputs=x)


def laplace(records: fc.Records, prior: float) -> tuple[np.ndarray, np.ndarray]:
    """The mode and the diagonal Gauss-Newton precision of pooled records, by scipy."""
    from scipy.optimize import minimize

    x, y = records.extra["inputs"], records.labels

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        logits = x @ w[:12].reshape(3, 4).T + w[12:]
        logits = logits - logits.max(axis=1, keepdims=True)
        log_mass = np.log(np.exp(logits).sum(axis=1))
        residual = np.exp(logits - log_mass[:, None])
        residual[np.arange(len(y)), y] -= 1
        value = (log_mass - logits[np.arange(len(y)), y]).sum() + prior / 2 * w @ w
        return value, np.concatenate([(residual.T @ x).reshape(-1), residual.sum(axis=0)]) + prior * w

    w = minimize(loss, np.zeros(15), jac=True, method="BFGS", options={"gtol": 1e-10}).x
    logits = x @ w[:12].reshape(3, 4).T + w[12:]
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    spread = p * (1 - p)
    return w, np.concatenate([(spread.T @ x**2).reshape(-1), spread.sum(axis=0)]) + prior


@pytest.mark.filterwarnings("ignore:Desired error")
@pytest.mark.parametrize(("clients", "prior", "rounds"), [(4, 40.0, 120), (25, 40.0, 120), (4, 5.0, 700)])
def test_curvatures_multiply_to_the_pooled_laplace_approximation(clients: int, prior: float, rounds: int) -> None:
    """Adding the same to all classes' weights changes no score, so a weak prior alone settles it, in more rounds."""
    records = data()
    mode, precision = laplace(records, prior)
    method = FLSWAG(NETWORK, Curvature(), prior=prior, rounds=rounds, step=0.6)
    found = fc.run(method, fc.InProcess(fc.Federation.iid(records, clients, 1)), fc.Open()).artifact
    np.testing.assert_allclose(found.mean, mode, atol=1e-6)
    np.testing.assert_allclose(found.precision, precision, rtol=1e-6)


def test_secure_sums_tell_the_same() -> None:
    method = FLSWAG(NETWORK, Curvature(), prior=2.0, rounds=3, step=0.5, most=1e4)
    runtime = fc.InProcess(fc.Federation.iid(data(), 5, 1))
    exact = fc.run(method, runtime, fc.Open()).artifact
    secure = fc.run(method, runtime, fc.SecAgg(bits=40)).artifact
    np.testing.assert_allclose(secure.mean, exact.mean, atol=1e-6)
    np.testing.assert_allclose(secure.variance, exact.variance, rtol=1e-6)


def test_equal_variances_give_federated_averaging() -> None:
    """With every variance lifted to the floor, the product's mean is the plain mean of the clients' means."""
    federation = fc.Federation.dirichlet(data(), 5, 0.5, 0)
    offsets = np.random.default_rng(0).normal(size=(5, 15))
    found = product([LocalGaussian.around(offset, np.full(15, 7.0)) for offset in offsets])
    np.testing.assert_allclose(found.offset, offsets.mean(axis=0))
    np.testing.assert_allclose(found.precision, 5 * 7.0)
    recipe = Trajectory(
        LocalTraining(3, 16, SGD(0.1)), collected=4, floor=1e-12, shrink=0.0, weighted=False
    )  # no weight counts as dead here
    method = FLSWAG(NETWORK, recipe, prior=0.0, most=1e-3)  # every precision is cut to the same
    posterior = fc.run(method, fc.InProcess(federation), fc.Open(), randomness=fc.Simulated(1)).artifact
    query = LocalPosterior(NETWORK, np.zeros(15), recipe, 0.0, 1e-3, 10.0)
    answer = fc.query.Answer.of(query, query.total(federation, fc.Simulated(1)), np.zeros(query.size), 5)
    assert (answer["precision"] == 5).all()
    assert posterior.precision == pytest.approx(5e-3)
    steps = FedAvg(NETWORK, 1, LocalTraining(3, 16, SGD(0.1)), clip=1e3)
    averaged = fc.run(steps, fc.InProcess(federation), fc.Open(), randomness=fc.Simulated(1)).artifact
    assert np.corrcoef(averaged.weights, posterior.mean)[0, 1] > 0.95  # the same place, but SWAG averages on


def test_the_mean_is_federated_averaging_of_the_same_local_means() -> None:
    federation = fc.Federation.dirichlet(data(), 5, 0.5, 0)
    recipe = Trajectory(LocalTraining(3, 16, SGD(0.1)), collected=4, floor=1e-12, shrink=0.0, weighted=False)
    query = LocalPosterior(NETWORK, np.zeros(15), recipe, 0.0, 1e-3, 10.0)
    total = query.split(query.total(federation, fc.Simulated(1)))
    np.testing.assert_allclose(total["pull"] / total["precision"], total["offset"] / 5, atol=1e-12)


def believed(federation: fc.Federation, recipe: Trajectory | Curvature, start: np.ndarray) -> list[LocalGaussian]:
    """What each client believes, whatever the others do."""
    return [
        recipe.find(
            NETWORK, start, held.extra["inputs"], held.labels, prior=0.0, most=1e30, rng=np.random.default_rng(0)
        )
        for held in federation.clients()
    ]


@pytest.mark.parametrize(
    "recipe",
    [
        Trajectory(LocalTraining(20, 16, SGD(0.2)), 10, shrink=0.0, weighted=False),
        Curvature(LocalTraining(20, 16, SGD(0.2))),
    ],
)
def test_one_dead_weight_on_one_client_does_not_decide_the_mean(recipe: Trajectory | Curvature) -> None:
    records = data(900)
    owner, x = np.arange(900) % 3, records.extra["inputs"].copy()
    x[owner == 0, 2] = 0.0  # the first client never sees this feature, so its weights never move
    federation = fc.Federation.grouped(fc.Records.of_logits(records.given, records.labels, inputs=x), owner)
    start, dead = np.full(15, 5.0), [2, 6, 10]
    first, *living = believed(federation, recipe, start)
    assert (first.offset[dead] == 0).all()
    found, others = product([first, *living]), product(living)
    np.testing.assert_allclose(found.offset[dead], others.offset[dead])
    assert np.abs(found.offset[dead]).min() > 0.1
    clamped = LocalGaussian.around(first.offset, np.where(first.precision == 0, 1e30, first.precision))
    naive = product([clamped, *living])  # the trap: a variance at the clamp has the last word
    np.testing.assert_allclose(naive.offset[dead], 0, atol=1e-9)


def test_shrinking_takes_variances_to_the_clients_median() -> None:
    records, training = data(320), LocalTraining(5, 16, SGD(0.2))
    plain, half, whole, weighted = (
        believed(fc.Federation.of([records]), Trajectory(training, 6, shrink=by, weighted=yes), np.zeros(15))[0]
        for by, yes in ((0.0, False), (0.5, False), (1.0, False), (0.5, True))
    )
    middle = np.median(1 / plain.precision)
    np.testing.assert_allclose(1 / half.precision, (1 / plain.precision + middle) / 2)
    np.testing.assert_allclose(whole.precision, 1 / middle)
    np.testing.assert_allclose(weighted.precision, half.precision * 320 / 16)
    np.testing.assert_allclose(weighted.offset, plain.offset)


def test_weighted_low_rank_covariance_shrinks_with_the_records() -> None:
    recipe = Trajectory(LocalTraining(5, 16, SGD(0.2)), 6, rank=3, shrink=0.0, weighted=False)
    federation = fc.Federation.of([data(320)])
    plain = believed(federation, recipe, np.zeros(15))[0]
    weighted = believed(federation, replace(recipe, weighted=True), np.zeros(15))[0]
    np.testing.assert_allclose(dense(weighted), dense(plain) * 320 / 16, rtol=1e-6, atol=1e-6)


def test_the_prior_counts_once() -> None:
    """Clients without records believe the prior; however many there are, nothing changes."""
    records = data(200)
    few = fc.Federation.of([records.take(slice(0, 100)), records.take(slice(100, 200))])
    many = fc.Federation.of([few.client(0), few.client(1), *[records.take(slice(0, 0))] * 20])
    method = FLSWAG(NETWORK, Curvature(), prior=50.0)
    one, two = (fc.run(method, fc.InProcess(each), fc.Open()).artifact for each in (few, many))
    np.testing.assert_allclose(one.mean, two.mean, atol=1e-9)
    np.testing.assert_allclose(one.precision, two.precision, rtol=1e-9)


def dense(gaussian: LocalGaussian) -> np.ndarray:
    return np.diag(gaussian.precision) - gaussian.factors @ gaussian.factors.T


def low_rank(rng: np.random.Generator, size: int = 12, rank: int = 3) -> LocalGaussian:
    precision = rng.uniform(1, 3, size)
    return LocalGaussian.around(rng.normal(size=size), precision, woodbury(precision, rng.normal(size=(size, rank))))


def test_woodbury_inverts_the_swag_covariance() -> None:
    rng = np.random.default_rng(0)
    variance, deviations = rng.uniform(0.5, 2, 10), rng.normal(size=(10, 4))
    covariance = np.diag(variance) / 2 + deviations @ deviations.T / (2 * 3)
    factors = woodbury(2 / variance, deviations)
    np.testing.assert_allclose(np.diag(2 / variance) - factors @ factors.T, np.linalg.inv(covariance), atol=1e-10)


def test_the_low_rank_product_is_the_dense_one() -> None:
    rng = np.random.default_rng(1)
    parts = [low_rank(rng) for _ in range(3)]
    found = product(parts)
    precision = sum(dense(part) for part in parts)
    mean = np.linalg.solve(precision, sum(dense(part) @ part.offset for part in parts))
    np.testing.assert_allclose(found.offset, mean, atol=1e-10)
    posterior = WeightPosterior(SoftmaxRegression(5, 2), found.offset, found.precision, found.factors, np.zeros(12))
    np.testing.assert_allclose(posterior.variance, np.diag(np.linalg.inv(precision)), rtol=1e-9)
    drawn = posterior.sample(40_000, np.random.default_rng(0))
    np.testing.assert_allclose(np.cov(drawn.T), np.linalg.inv(precision), atol=0.01)


def test_a_product_of_equal_variances_is_the_plain_mean_with_the_variance_divided() -> None:
    means, variance = np.random.default_rng(2).normal(size=(4, 9)), 0.3
    found = product([LocalGaussian.around(mean, np.full(9, 1 / variance)) for mean in means])
    np.testing.assert_allclose(found.offset, means.mean(axis=0))
    np.testing.assert_allclose(1 / found.precision, variance / 4)


def test_a_sketch_through_a_sum_is_exact_when_it_is_wide_enough() -> None:
    rng = np.random.default_rng(2)
    parts = [low_rank(rng, 40, 3) for _ in range(4)]
    directions = probes(40, 12, seed=3)
    summed = sum(part.factors @ (part.factors.T @ directions) for part in parts)
    factors = from_sketch(summed, directions)
    whole = product(parts).factors
    np.testing.assert_allclose(factors @ factors.T, whole @ whole.T, atol=1e-7)


def test_narrow_sketches_never_take_away_too_much_precision() -> None:
    rng = np.random.default_rng(4)
    parts = [low_rank(rng, 40, 3) for _ in range(4)]
    directions = probes(40, 5, seed=3)
    factors = from_sketch(sum(part.factors @ (part.factors.T @ directions) for part in parts), directions)
    assert np.linalg.eigvalsh(np.diag(product(parts).precision) - factors @ factors.T).min() > 0


def test_low_rank_swag_runs_under_secure_sums() -> None:
    federation = fc.Federation.iid(data(400), 4, 0)
    recipe = Trajectory(LocalTraining(5, 16, SGD(0.1)), collected=8, rank=3, shrink=0.0, weighted=False)
    method = FLSWAG(NETWORK, recipe, prior=0.1, width=12, most=1e5)
    secure = fc.run(method, fc.InProcess(federation), fc.SecAgg(bits=40), randomness=fc.Simulated(0)).artifact
    assert secure.factors.shape[1] > 0
    query = LocalPosterior(NETWORK, np.zeros(15), recipe, 0.1, 1e5, 10.0, 12)
    scale = np.full(query.size, 2.0**40)
    exact, whole = query.total(federation, fc.Simulated(0)), query.total(federation, fc.Simulated(0), scale)
    np.testing.assert_allclose(whole / scale, exact, atol=4 * 2.0**-40)


def test_scatter_widens_where_clients_disagree() -> None:
    query = LocalPosterior(NETWORK, np.zeros(15), Curvature(LocalTraining(10, 16, SGD(0.1))), 1.0, 1e6, 10.0)
    same = fc.Federation.iid(data(), 6, 3)
    skewed = fc.Federation.dirichlet(data(), 6, 0.1, 3)

    def scatter(federation: fc.Federation) -> float:
        total = query.total(federation, fc.Simulated(0))
        answer = fc.query.Answer.of(query, total, np.zeros(query.size), 6)
        return float(FLSWAG(NETWORK, scatter=True).posterior(query, answer).scatter.mean())

    assert 0 < scatter(same) < scatter(skewed) / 3


def test_large_low_rank_products_stay_small() -> None:
    """100,000 weights, 10 clients, rank 20: below 2 GiB, so nothing of size x size was made."""
    code = (
        "import numpy as np; from fedcalib.training.posterior import LocalGaussian, product, woodbury\n"
        "rng = np.random.default_rng(0); parts = []\n"
        "for _ in range(10):\n"
        "    e, deviations = rng.uniform(1, 2, 100_000), rng.normal(size=(100_000, 20))\n"
        "    parts.append(LocalGaussian.around(rng.normal(size=100_000), e, woodbury(e, deviations)))\n"
        "found = product(parts); assert found.factors.shape == (100_000, 200) and np.isfinite(found.offset).all()\n"
        + PRINT_PEAK
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2 * 1024 * 1024


def test_predictions_average_over_draws_and_the_scale_is_tuned() -> None:
    federation = fc.Federation.iid(data(), 4, 0)
    found = fc.run(FLSWAG(NETWORK, rounds=30, step=0.5), fc.InProcess(federation), fc.Open()).artifact
    held = data(300, seed=9)
    scored = found.over(held)
    np.testing.assert_allclose(scored.probs.sum(axis=1), 1)
    assert (scored.probs.argmax(axis=1) == held.labels).mean() > 0.6
    wide = found.scaled(20.0).over(held)
    assert wide.probs.max(axis=1).mean() < scored.probs.max(axis=1).mean()  # less sure where weights are less sure
    assert found.scaled(20.0).tuned(held).scale < 20.0
    still = found.scaled(0.0).over(held)
    np.testing.assert_allclose(still.probs, found.point.over(held).probs, atol=1e-12)


def test_posteriors_survive_the_wire() -> None:
    found = fc.run(FLSWAG(NETWORK), fc.InProcess(fc.Federation.iid(data(), 4, 0)), fc.Open()).artifact
    again = wire.loads(wire.dumps(found))
    np.testing.assert_array_equal(again.mean, found.mean)
    assert again.network == found.network


def test_wrong_settings_are_explained() -> None:
    with pytest.raises(InputError, match="step above 0 and up to 1"):
        FLSWAG(NETWORK, step=2.0)
    with pytest.raises(InputError, match="fraction from 0 to 1"):
        Trajectory(shrink=1.5)
    with pytest.raises(InputError, match="network for 2 classes"):
        fc.method.Plan.of(FLSWAG(NETWORK), fc.Schema(2, 5))
