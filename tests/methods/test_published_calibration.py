"""Source 000, "Private Federated Multiclass Post-hoc Calibration": every method against a short formula of its own.

The formulas are written from the paper's sections, which the tests name, and share no code with the package.
"""

from __future__ import annotations

from itertools import count
from math import comb, exp, inf, log, pi, sqrt
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.special import gammaln

import fedcalib as fc
from fedcalib import metrics
from fedcalib.errors import InputError
from fedcalib.families.affine import TemperatureFamily
from fedcalib.method import drive
from fedcalib.methods import Unweighted, Weighted
from fedcalib.query import Answer, Query

CLASSES, CLIENTS = 4, 30


def skewed(n: int = 2400, seed: int = 0) -> fc.Federation:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, CLASSES)) * 2
    labels = (z / 1.7 + rng.gumbel(size=z.shape)).argmax(axis=1)
    return fc.Federation.dirichlet(fc.Records.of_logits(z, labels), CLIENTS, 0.3, seed=1)


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def histograms(records: fc.Records, bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Positives and negatives by class and bin: one loop over records."""
    pos, neg = np.zeros((2, CLASSES, bins))
    for p, y in zip(softmax(np.asarray(records.logits)), records.labels, strict=True):
        for j in range(CLASSES):
            (pos if y == j else neg)[j, min(int(p[j] * bins), bins - 1)] += 1
    return pos, neg


def applied(table: np.ndarray, probs: np.ndarray, alpha: np.ndarray | float = 1.0) -> np.ndarray:
    """g~_j(p) = alpha_j g_j(p) + (1 - alpha_j) p, divided by its sum over classes."""
    bins = table.shape[1]
    g = np.stack([table[j][np.minimum((probs[:, j] * bins).astype(int), bins - 1)] for j in range(CLASSES)], axis=1)
    mixed = alpha * g + (1 - alpha) * probs
    mass = mixed.sum(axis=1, keepdims=True)
    return np.where(mass > 0, mixed / np.where(mass > 0, mass, 1), probs)


def sampled_run(method: fc.Method, data: fc.Federation, rounds: int, rate: float, seed: int):
    """Run a method on Poisson samples that the test draws itself: the artifact, and who took part in each round."""
    rng, members = np.random.default_rng(seed), []

    def ask(step: int, query: Query) -> Answer:
        chosen = rng.random(len(data)) < rate
        members.append(np.flatnonzero(chosen))
        total = query.total(data.subset(chosen), fc.Simulated(0).derive(step))
        return Answer.of(query, total, np.zeros(query.size), int(chosen.sum()))

    return drive(method, data.schema, ask), members[:rounds]


def summed(data: fc.Federation, members: list[np.ndarray], bins: int) -> tuple[np.ndarray, np.ndarray]:
    parts = [histograms(data.client(int(k)), bins) for chosen in members for k in chosen]
    return sum(p for p, _ in parts), sum(n for _, n in parts)


NEW = np.random.default_rng(9).dirichlet(np.ones(CLASSES) / 2, 500)


def test_section_4_1_algorithm_1_fed_bin_is_the_bare_ratio() -> None:
    data = skewed()
    method = fc.FedBin.as_published()
    assert (method.bins, method.rounds, method.clip) == (128, 12, (10.0, 50.0))
    artifact, members = sampled_run(method, data, 12, 0.1, 0)
    pos, neg = summed(data, members, 128)
    ratio = np.divide(pos, pos + neg, out=np.zeros_like(pos), where=pos + neg > 0)
    np.testing.assert_allclose(artifact(NEW), applied(ratio, NEW), atol=1e-9)


def bbq(pos: np.ndarray, neg: np.ndarray, prior_records, clamp: float) -> np.ndarray:
    """Appendix B.4: the score of each resolution, and the posterior means averaged by it."""
    scores, tables = [], []
    for bins in 2 ** np.arange(1, 8):
        m, n = (cells.reshape(CLASSES, bins, -1).sum(axis=2) for cells in (pos, neg))
        p = np.clip((np.arange(bins) + 0.5) / bins, clamp, 1 - clamp)
        each = prior_records(bins) / bins
        a, b = each * p, each * (1 - p)
        score = gammaln(each) - gammaln(m + n + each) + gammaln(m + a) - gammaln(a) + gammaln(n + b) - gammaln(b)
        scores.append(score.sum(axis=1))
        tables.append(np.repeat((m + a) / (m + n + each), 128 // bins, axis=1))
    weights = np.exp(np.array(scores) - np.max(scores, axis=0))
    return np.einsum("lc,lcb->cb", weights / weights.sum(axis=0), np.array(tables))


@pytest.mark.parametrize(
    ("corrected", "prior_records", "clamp"),
    [(False, lambda bins: 2, 0.0), (True, lambda bins: 2 * bins, 0.005)],
    ids=["printed-2", "corrected-2B"],
)
def test_appendix_b_4_fed_bbq_with_either_prior(corrected: bool, prior_records, clamp: float) -> None:
    data = skewed()
    method = fc.FedBBQ.as_published(corrected=corrected)
    assert (method.finest, method.coarsest, method.rounds) == (7, 1, 12)
    artifact, members = sampled_run(method, data, 12, 0.1, 1)
    table = bbq(*summed(data, members, 128), prior_records, clamp)
    np.testing.assert_allclose(np.array(artifact.table), table, atol=1e-9)
    np.testing.assert_allclose(artifact(NEW), applied(table, NEW), atol=1e-9)


def test_the_two_priors_differ() -> None:
    data = skewed()
    printed, corrected = (sampled_run(fc.FedBBQ.as_published(corrected=c), data, 12, 0.1, 1)[0] for c in (False, True))
    assert np.abs(np.array(printed.table) - np.array(corrected.table)).max() > 0.05


@pytest.mark.parametrize("changed_only", [False, True], ids=["all-weight", "changed-weight"])
def test_section_4_1_weights_by_class_without_privacy(changed_only: bool) -> None:
    """alpha_j = clip(N~_j / N_j, 1), with N_j over all clients and N~_j over those that took part."""
    data = skewed()
    totals = np.bincount(data.records.labels, minlength=CLASSES)
    weighting = Weighted.as_published(tuple(map(float, totals)), changed_only=changed_only)
    artifact, members = sampled_run(fc.FedBBQ.as_published(weighting, rounds=2), data, 2, 0.2, 2)
    pos, neg = summed(data, members, 128)
    alpha = np.minimum(pos.sum(axis=1) / totals, 1)
    assert alpha.min() < 0.9 * alpha.max() < 0.9  # not one share of clients for all classes
    np.testing.assert_allclose(artifact.weights, alpha, atol=1e-12)
    table = bbq(pos, neg, lambda bins: 2, 0.0)
    full, mixed = applied(table, NEW), applied(table, NEW, alpha)
    changed = (full.argmax(axis=1) != NEW.argmax(axis=1))[:, None]
    np.testing.assert_allclose(artifact(NEW), np.where(changed, mixed, full) if changed_only else mixed, atol=1e-9)


def test_weights_by_class_need_a_total_per_class() -> None:
    method = fc.FedBBQ.as_published(Weighted.as_published((10.0, 20.0)))
    with pytest.raises(InputError, match="4 classes, found 2"):
        fc.method.Plan.of(method, fc.Schema(CLASSES, 10))
    with pytest.raises(InputError, match="at least 0"):
        Weighted.as_published((-1.0, 2.0))


def test_appendix_b_5_weights_under_noise_have_no_floor() -> None:
    """alpha_j = N~_j / (sqrt(2/pi) sigma B), between 0 and 1, with sigma the noise of all rounds together."""
    rng, rounds, sigma = np.random.default_rng(4), 3, 6.0
    cells = rng.normal(0.2, sigma, (rounds, CLASSES, 2, 128))
    steps = count()

    def ask(step: int, query: Query) -> Answer:
        assert step == next(steps)
        return Answer.of(query, cells[step].reshape(-1), np.full(query.size, sigma**2), 10)

    method = fc.FedBBQ.as_published(Weighted.as_published(), rounds=rounds)
    artifact = drive(method, fc.Schema(CLASSES, 100), ask)
    noisy = cells.sum(axis=0)[:, 0].sum(axis=1)
    expected = np.clip(noisy / (sqrt(2 / pi) * sigma * sqrt(rounds) * 128), 0, 1)
    assert 0 < expected.max() < 1
    np.testing.assert_allclose(artifact.weights, expected, atol=1e-9)


def test_lemma_b_7_noise_of_binning_with_separate_clips() -> None:
    """Each cell of P has noise C+ sqrt(2cT / (2 rho)), of N the same with C-; a client clips both by themselves."""
    rho = brentq(lambda rho: delta_of(rho, 1.0) - 1e-5, 1e-4, 1.0)
    method, model, who = fc.FedBBQ.as_published(), fc.UserGaussian(1.0, 1e-5, separate=True), fc.Everyone()
    plan = fc.method.Plan.of(method, fc.Schema(CLASSES, 100))
    mechanism = model.mechanism(plan.queries[0], plan, who.cohort(100), who)
    found = {name: sigma / mechanism.scales[name] for name, sigma in mechanism.sigmas.items()}
    noise = sqrt(2 * CLASSES * 12 / (2 * rho))
    assert found == pytest.approx({name: (10 if name[-1] == "+" else 50) * noise for name in found}, rel=1e-6)
    one = fc.Federation.of([skewed(4000).records])
    sent = plan.queries[0].split(mechanism.exact(plan.queries[0], one, fc.Simulated(0)))
    pos, neg = histograms(one.records, 128)
    for j in range(CLASSES):
        np.testing.assert_allclose(sent[f"{j}+"], pos[j] * min(1, 10 / np.linalg.norm(pos[j])), atol=1e-5)
        np.testing.assert_allclose(sent[f"{j}-"], neg[j] * min(1, 50 / np.linalg.norm(neg[j])), atol=1e-5)


def delta_of(rho: float, epsilon: float) -> float:
    """Lemma B.3, minimised over orders on a fine grid."""
    a = 1 + np.exp(np.linspace(-8, 12, 200_001))
    return exp(float(((a - 1) * (a * rho - epsilon) + a * np.log1p(-1 / a) - np.log(a - 1)).min()))


def local_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The root of d NLL / d(1/T), which rises with 1/T; the end of [0.05, 20] where there is none."""

    def gradient(inverse: float) -> float:
        p = softmax(logits * inverse)
        return float(((p * logits).sum(axis=1) - logits[np.arange(len(labels)), labels]).sum())

    if gradient(20.0) <= 0:
        return 0.05
    return 20.0 if gradient(0.05) >= 0 else 1 / brentq(gradient, 0.05, 20.0, xtol=1e-14, rtol=1e-14)


@pytest.mark.parametrize("clip", [inf, 0.5])
def test_section_4_2_algorithm_2_fed_temp(clip: float) -> None:
    """Mean of the clients' own temperatures, each moved by C at most; no ridge, so the start does not matter."""
    data = skewed()
    method = fc.FedTemp.as_published(clip=clip)
    assert (method.rounds, method.ridge, method.rate, method.clip) == (12, 0.0, 1.0, clip)
    artifact, members = sampled_run(method, data, 12, 0.2, 3)
    own = np.array([local_temperature(np.asarray(r.logits), r.labels) if len(r) else np.nan for r in data.clients()])
    t = 1.0
    for chosen in members:
        change = np.where(np.isnan(own[chosen]), 0, own[chosen] - t)
        t += np.clip(change, -clip, clip).sum() / len(chosen)
    assert artifact.temperature == pytest.approx(t, abs=1e-9)


def test_section_4_2_fed_temp_as_an_average_of_inverse_temperatures() -> None:
    data = skewed()
    method = fc.FedTemp(rounds=1, clip=inf, ridge=0.0, inverse=True)
    artifact, (chosen,) = sampled_run(method, data, 1, 1.0, 3)
    own = [local_temperature(np.asarray(r.logits), r.labels) if len(r) else 1.0 for r in data.clients()]
    assert artifact.temperature == pytest.approx(1 / np.mean(1 / np.array(own)[chosen]), rel=1e-9)


def order_preserving(z: np.ndarray, raw) -> np.ndarray:
    """S^-1 U w with w_i = (y_i - y_(i+1)) softplus(raw_i), w_n = 0 (Rahimi et al., theorem 1)."""
    order = np.argsort(-z, axis=1, kind="stable")
    y = np.take_along_axis(z, order, axis=1)
    w = np.hstack([(y[:, :-1] - y[:, 1:]) * np.logaddexp(0, raw(order, y)), np.zeros((len(z), 1))])
    out = np.empty_like(z)
    np.put_along_axis(out, order, w @ np.triu(np.ones((z.shape[1],) * 2)).T, axis=1)
    return out


def vector_map(t: np.ndarray, z: np.ndarray) -> np.ndarray:
    return t[:CLASSES] * z + t[CLASSES:]


def matrix_map(t: np.ndarray, z: np.ndarray) -> np.ndarray:
    return z @ t[: CLASSES**2].reshape(CLASSES, CLASSES).T + t[CLASSES**2 :]


def op_map(t: np.ndarray, z: np.ndarray) -> np.ndarray:
    return order_preserving(z, lambda o, y: t[:CLASSES][o[:, :-1]] * y[:, :-1] + t[CLASSES:][o[:, :-1]])


@pytest.mark.parametrize(
    ("method", "mapped"),
    [(fc.FedVector, vector_map), (fc.FedMatrix, matrix_map), (fc.FedOPVector, op_map)],
    ids=["FedVector", "FedMatrix", "appendix-B-6-FedOPVector"],
)
def test_section_4_2_parametric_scalings(method: type[fc.FedVector], mapped) -> None:
    """A round moves to the mean of local fits, and a local fit has no ridge, no clip and the least log loss."""
    rng = np.random.default_rng(6)
    z = rng.normal(size=(2400, CLASSES)) * 1.5
    labels = (z / 1.3 + rng.gumbel(size=z.shape)).argmax(axis=1)
    data = fc.Federation.iid(fc.Records.of_logits(z, labels), 4, 0)
    published = method.as_published(rounds=1)
    family = published.family()
    start = family.start(CLASSES)
    fits = []
    for held in data.clients():
        x, y = np.asarray(held.logits), held.labels

        def loss(t: np.ndarray, x: np.ndarray = x, y: np.ndarray = y) -> float:
            return -np.log(softmax(mapped(t, x))[np.arange(len(y)), y]).sum()

        fits.append(family.fit(start, x, y, ridge=0.0, steps=50, rng=rng))
        best = minimize(loss, start, method="BFGS", options={"gtol": 1e-4}).fun
        assert loss(fits[-1]) == pytest.approx(best, rel=1e-6)
        assert family.loss(fits[-1], x, y)[0] == pytest.approx(loss(fits[-1]), rel=1e-9)
    artifact = fc.run(published, fc.InProcess(data), fc.Open()).artifact
    expected = softmax(mapped(np.mean(fits, axis=0), np.asarray(data.records.logits)))
    np.testing.assert_allclose(artifact.of(data.records), expected, atol=1e-9)


def test_section_4_2_fed_cal_is_three_epochs_of_local_sgd() -> None:
    """c-64-64-c with ReLU, whose outputs stretch the gaps; torch finds the gradients."""
    torch = pytest.importorskip("torch")
    data = fc.Federation.iid(skewed(180).records, 3, 0)
    published = fc.FedCal.as_published(rounds=1)
    family = published.family()
    assert len(family.start(10)) * 8 / 1024 == pytest.approx(43.08, abs=0.005)  # table 6
    noise = fc.Simulated(5)
    query = next(published.protocol(data.schema))
    mean = np.zeros(len(family.start(CLASSES)))
    for client, held in enumerate(data.clients()):
        rng = noise.derive("term", client).generator()
        w = torch.tensor(family.start(CLASSES), requires_grad=True)
        z, y = torch.tensor(np.asarray(held.logits)), torch.tensor(held.labels)
        for _ in range(3):
            order = rng.permutation(len(y))
            for rows in (order[at : at + 32] for at in range(0, len(y), 32)):
                loss = torch.nn.functional.cross_entropy(network_map(torch, w, z[rows]), y[rows])
                (gradient,) = torch.autograd.grad(loss, w)
                w = (w - 5e-3 * gradient).detach().requires_grad_()
        mean += (w.detach().numpy() - family.start(CLASSES)) / 3
    np.testing.assert_allclose(query.total(data, noise) / 3, mean, atol=1e-9)


def network_map(torch, w, z):
    shapes, at, h = ((64, CLASSES), (64, 64), (CLASSES, 64)), 0, z
    for layer, (out, into) in enumerate(shapes):
        h = h @ w[at : at + out * into].view(out, into).T + w[at + out * into : at + out * into + out]
        at += out * into + out
        h = torch.relu(h) if layer < 2 else h
    y, order = torch.sort(z, dim=1, descending=True, stable=True)
    gaps = (y[:, :-1] - y[:, 1:]) * torch.nn.functional.softplus(h[:, :-1])
    lifted = torch.flip(torch.cumsum(torch.flip(gaps, (1,)), 1), (1,))
    return torch.zeros_like(z).scatter(1, order, torch.nn.functional.pad(lifted, (0, 1)))


def test_lemma_b_7_noise_of_scaling() -> None:
    """The summed update has noise C sqrt(T / (2 rho)), C = 0.5 (appendix A.3.2)."""
    rho = brentq(lambda rho: delta_of(rho, 3.0) - 1e-5, 1e-3, 2.0)
    plan = fc.method.Plan.of(fc.FedTemp.as_published(clip=0.5), fc.Schema(CLASSES, 100))
    who = fc.Everyone()
    mechanism = fc.UserGaussian(3.0, 1e-5).mechanism(plan.queries[0], plan, who.cohort(100), who)
    noise = 0.5 * mechanism.sigmas["change"] / mechanism.scales["change"]
    assert noise == pytest.approx(0.5 * sqrt(12 / (2 * rho)), rel=1e-6)


def test_lemma_b_3_conversion_of_rho() -> None:
    for epsilon, rho in ((1.0, 0.030557), (3.0, 0.224249), (10.0, 1.782696)):
        assert brentq(lambda r, e=epsilon: delta_of(r, e) - 1e-5, 1e-4, 5.0) == pytest.approx(rho, rel=1e-4)
        assert fc.accounting.rho_for(epsilon, 1e-5) == pytest.approx(rho, rel=1e-4)


def test_no_clip_is_refused_under_privacy_and_works_without() -> None:
    data = skewed(600)
    for model in (fc.Open(), fc.SecAgg()):
        found = fc.run(fc.FedTemp(rounds=2, clip=inf), fc.InProcess(data), model).artifact
        wide = fc.run(fc.FedTemp(rounds=2, clip=1e3), fc.InProcess(data), model).artifact
        assert found.temperature == pytest.approx(wide.temperature, rel=1e-3)
    with pytest.raises(InputError, match="finite clip under differential privacy"):
        fc.run(fc.FedTemp(clip=inf), fc.InProcess(data), fc.UserGaussian(1.0, 1e-5))
    with pytest.raises(InputError, match="both"):
        fc.FedTemp(logarithm=True, inverse=True)


@pytest.mark.parametrize("family", [TemperatureFamily(), TemperatureFamily(logarithm=True)])
def test_the_ridge_of_a_temperature_is_toward_the_start_of_the_round(family: TemperatureFamily) -> None:
    records = skewed(300).records
    start = np.array([log(3.0) if family.logarithm else 3.0])
    fitted = family.fit(start, np.asarray(records.logits), records.labels, ridge=1e9, steps=50, rng=None)
    assert family.temperature(fitted) == pytest.approx(3.0, rel=1e-6)


def test_a_class_that_no_record_has_is_never_predicted_as_published() -> None:
    records = skewed(400).records
    held = records.take(np.flatnonzero(records.labels != 2))
    data = fc.Federation.iid(held, 4, 0)
    published = fc.run(fc.FedBin.as_published(rounds=1), fc.InProcess(data), fc.Open()).artifact
    ours = fc.run(fc.FedBin(128, smoothing=0.0, weighting=Unweighted()), fc.InProcess(data), fc.Open()).artifact
    assert (np.array(published.table)[2] == 0).all()
    assert (np.array(ours.table)[2] > 0).all()


@pytest.mark.shared
def test_section_4_1_weights_prevent_the_loss_of_accuracy_after_one_round(shared: Path) -> None:
    """CIFAR-10, LeNet-5, 100 clients, beta = 0.1, T = 1: the unweighted calibrator loses about 3 points."""
    file = np.load(shared / "cifar10_logits" / "cifar10_logits.npz")
    z, y = file["lenet5_logp"].astype(float), file["y"].astype(int)
    changes: dict[str, list[float]] = {"none": [], "all": [], "changed": []}
    for run in range(5):
        order = np.random.default_rng([run, 1]).permutation(len(y))
        fit, test = (fc.Records.of_logits(z[rows], y[rows]) for rows in (order[:5000], order[5000:]))
        data = fc.Federation.dirichlet(fit, 100, 0.1, seed=run)
        totals = tuple(np.bincount(fit.labels, minlength=10).astype(float).tolist())
        weightings = {
            "none": Unweighted(every_class=True),
            "all": Weighted.as_published(totals),
            "changed": Weighted.as_published(totals, changed_only=True),
        }
        for name, weighting in weightings.items():
            method = fc.FedBBQ.as_published(weighting, rounds=1, corrected=True)
            artifact, _ = sampled_run(method, data, 1, 0.1, run + 100)
            after, before = (metrics.accuracy(p, test.labels) for p in (artifact.of(test), test.probs))
            changes[name].append(100 * (after - before))
    assert np.mean(changes["none"]) < -2.5
    assert np.mean(changes["all"]) > -0.2
    assert np.mean(changes["changed"]) > -0.2


def test_appendix_b_1_noise_under_poisson_sampling() -> None:
    """Renyi divergences of the sampled Gaussian at integer orders, over T = 12 rounds at p = 0.1."""

    def divergence(noise: float, order: int) -> float:
        terms = [
            comb(order, k) * 0.9 ** (order - k) * 0.1**k * exp((k * k - k) / (2 * noise**2)) for k in range(order + 1)
        ]
        return log(sum(terms)) / (order - 1)

    def spent(noise: float) -> float:
        return min(12 * divergence(noise, a) + log(1 - 1 / a) - (log(1e-5) + log(a)) / (a - 1) for a in range(2, 30))

    own = brentq(lambda noise: spent(noise) - 1, 1, 20)
    plan = fc.method.Plan.of(fc.FedTemp.as_published(clip=0.5), fc.Schema(CLASSES, 1000))
    who = fc.Poisson(0.1)
    mechanism = fc.UserGaussian(1.0, 1e-5).mechanism(plan.queries[0], plan, who.cohort(1000), who)
    assert mechanism.sigmas["change"] / mechanism.scales["change"] == pytest.approx(own, rel=1e-3)


@pytest.mark.parametrize(
    ("method", "kilobytes"),
    [(fc.FedTemp, 0.008), (fc.FedOPVector, 0.156), (fc.FedCal, 43.08), (fc.FedBBQ, 20.0)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_table_6_messages_of_one_round(method: type[fc.FedTemp], kilobytes: float) -> None:
    plan = fc.method.Plan.of(method.as_published(rounds=1), fc.Schema(10, 100))
    assert 8 * plan.queries[0].size / 1024 == pytest.approx(kilobytes, rel=0.03)


def networks(shared: Path, name: str, run: int) -> tuple[fc.Records, fc.Records]:
    """Half of CIFAR-10's test records to fit, half to test."""
    file = np.load(shared / "cifar10_logits" / "cifar10_logits.npz")
    z, y = file[name].astype(float), file["y"].astype(int)
    order = np.random.default_rng([run, 1]).permutation(len(y))
    return fc.Records.of_logits(z[order[:5000]], y[order[:5000]]), fc.Records.of_logits(
        z[order[5000:]], y[order[5000:]]
    )


@pytest.mark.shared
def test_section_5_weighted_fed_bbq_under_user_privacy_keeps_accuracy_and_not_calibration(shared: Path) -> None:
    """T = 12, p = 0.1, [10, 50], epsilon = 1: accuracy stays, class-wise ECE is above the base model's."""
    changes = []
    for run in range(3):
        fit, test = networks(shared, "resnet20_logits", run)
        data = fc.Federation.dirichlet(fit, 100, 0.1, seed=run)
        artifact = fc.run(
            fc.FedBBQ.as_published(Weighted.as_published()), fc.InProcess(data, fewest_clients=1),
            fc.UserGaussian(1.0, 1e-5, separate=True), participation=fc.Poisson(0.1), randomness=fc.Simulated(run),
        ).artifact  # fmt: skip
        after, before = artifact.of(test), test.probs
        accuracies = [metrics.accuracy(p, test.labels) for p in (after, before)]
        errors = [metrics.classwise_ece(p, test.labels) for p in (after, before)]
        changes.append((100 * (accuracies[0] - accuracies[1]), errors[0] / errors[1]))
    accuracy, error = np.mean(changes, axis=0)
    assert accuracy > -1.0
    assert error > 1.5


@pytest.mark.shared
def test_table_2_fed_op_vector_is_right_centrally_and_overfits_skewed_clients(shared: Path) -> None:
    fit, test = networks(shared, "resnet20_logits", 0)
    one, many = fc.Federation.of([fit]), fc.Federation.dirichlet(fit, 100, 0.1, seed=0)
    central = fc.run(fc.FedOPVector.as_published(rounds=1), fc.InProcess(one, fewest_clients=1), fc.Open()).artifact
    skewed_fit, _ = sampled_run(fc.FedOPVector.as_published(), many, 12, 0.1, 0)
    base, alone, averaged = (
        metrics.classwise_ece(p, test.labels) for p in (test.probs, central.of(test), skewed_fit.of(test))
    )
    assert alone < 0.7 * base < base < averaged
