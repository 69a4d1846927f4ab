"""Source 001, "Federated Calibration and Evaluation of Binary Classifiers": the tree, its noise and its figures.

Formulas are written from the paper's sections, which the tests name, and share no code with the package.
"""

from __future__ import annotations

from fractions import Fraction
from math import exp, sqrt

import numpy as np
import pytest

import fedcalib as fc
from fedcalib import metrics
from fedcalib.errors import InputError
from fedcalib.method import Plan, drive
from fedcalib.privacy.local_reports import Unary
from fedcalib.query import Answer, Query

HEIGHT, CLIENTS = 6, 5000


def scored(n: int = CLIENTS) -> tuple[np.ndarray, np.ndarray, fc.Federation]:
    rng = np.random.default_rng(0)
    y = (rng.random(n) < 0.4).astype(int)
    s = 1 / (1 + np.exp(-rng.normal(1.2 * y - 0.6, 1.0)))
    return s, y, fc.Federation.grouped(fc.Records.of_scores(s, y), np.arange(n))


def noisy_levels(sd: float) -> list[np.ndarray]:
    """Every level of the tree, (2, 2^l), with noise of its own."""
    s, y, _ = scored()
    rng, levels = np.random.default_rng(1), []
    for level in range(1, HEIGHT + 1):
        cells = np.minimum((s * 2**level).astype(int), 2**level - 1)
        counts = np.stack([np.bincount(cells[y == label], minlength=2**level) for label in (0, 1)])
        levels.append(counts + sd * rng.normal(size=counts.shape))
    return levels


def answered(method: fc.Method, levels: list[np.ndarray]):
    def ask(step: int, query: Query) -> Answer:
        values = np.concatenate([level.reshape(-1) for level in levels])
        return Answer.of(query, values, np.full(query.size, 4.0), CLIENTS)

    return drive(method, fc.Schema(2, CLIENTS), ask)


def below(levels: list[np.ndarray], leaf: int) -> np.ndarray:
    """Negatives and positives below a leaf: one cell for each bit of its number."""
    if leaf == 2**HEIGHT:
        return levels[0].sum(axis=1)
    total = np.zeros(2)
    for level in range(1, HEIGHT + 1):
        node = leaf >> (HEIGHT - level)
        total += levels[level - 1][:, node - 1] if node % 2 else 0
    return total


@pytest.mark.parametrize("sd", [0.0, 2.0], ids=["exact", "noisy"])
def test_section_3_rates_at_a_threshold_are_differences_of_prefixes(sd: float) -> None:
    levels = noisy_levels(sd)
    found = answered(fc.ScoreCurves.as_published(HEIGHT), levels)
    for leaf in range(0, 2**HEIGHT, 3):
        negatives, positives = levels[0].sum(axis=1)
        tn, fn = below(levels, leaf)
        tp, fp = positives - fn, negatives - tn
        t = leaf / 2**HEIGHT
        assert found.recall(t).value == pytest.approx(np.clip(tp / positives, 0, 1), abs=1e-9)
        if tp + fp > 1:
            assert found.precision(t).value == pytest.approx(np.clip(tp / (tp + fp), 0, 1), abs=1e-9)
        assert found.accuracy(t).value == pytest.approx(np.clip((tp + tn) / (positives + negatives), 0, 1), abs=1e-9)


def descended(levels: list[np.ndarray], fraction: float) -> int:
    """Section 2.3: go right past every left child whose fraction fits below the quantile."""
    node, gone = 0, 0.0
    for level in levels:
        shares = np.maximum(level.sum(axis=0) / level.sum(), 0)
        left = 2 * node
        node, gone = (left, gone) if gone + shares[left] >= fraction else (left + 1, gone + shares[left])
    return node


@pytest.mark.parametrize("sd", [0.0, 2.0], ids=["exact", "noisy"])
def test_section_4_equation_5_auc_of_equi_depth_buckets(sd: float) -> None:
    levels = noisy_levels(sd)
    found = answered(fc.ScoreCurves.as_published(HEIGHT, buckets=12), levels)
    leaves = sorted({0, 2**HEIGHT, *(descended(levels, i / 12) for i in range(1, 12))})
    n, p = np.diff([below(levels, leaf) for leaf in leaves], axis=0).T
    own = sum(p[i] * (n[:i].sum() + n[i] / 2) for i in range(len(p))) / (p.sum() * n.sum())
    np.testing.assert_allclose(found.table.edges, np.array(leaves) / 2**HEIGHT)
    assert found.auc.value == pytest.approx(own, abs=1e-9)


def test_section_2_2_distributed_noise_has_scale_height_over_epsilon() -> None:
    who = fc.Everyone()
    plan = Plan.of(fc.ScoreCurves.as_published(10), fc.Schema(2, CLIENTS))
    mechanism = fc.DistributedDP(1.0).mechanism(plan.queries[0], plan, who.cohort(CLIENTS), who)
    widths = [mechanism.widths[name] / mechanism.scales[name] for name in mechanism.widths]
    np.testing.assert_allclose(widths, 10.0, rtol=1e-6)


def test_section_2_3_clients_dealt_to_levels_have_all_of_epsilon_each() -> None:
    s, y, data = scored()
    method, who = fc.ScoreCurves.as_published(HEIGHT, batches=True), fc.Disjoint(HEIGHT)
    plan = Plan.of(method, data.schema)
    assert [query.size for query in plan.queries] == [2 * 2**level for level in range(1, HEIGHT + 1)]
    mechanism = fc.DistributedDP(1.0).mechanism(plan.queries[3], plan, who.cohort(CLIENTS), who)
    assert mechanism.widths["leaves"] / mechanism.scales["leaves"] == pytest.approx(1.0, rel=1e-6)
    result = fc.run(method, fc.InProcess(data), fc.DistributedDP(1.0), participation=who, randomness=fc.Simulated(0))
    assert result.privacy.epsilon == 1.0
    assert result.artifact.auc.value == pytest.approx(metrics.roc_auc(s, y), abs=0.03)
    assert result.artifact.table.totals.sum() == pytest.approx(CLIENTS, rel=0.05)


def test_section_2_3_local_reports_are_optimal_unary_encodings_of_one_level() -> None:
    """p = 1/2 and q = 1 / (e^epsilon + 1), with all of epsilon on a level that each client draws."""
    who = fc.Everyone()
    plan = Plan.of(fc.ScoreCurves.as_published(8), fc.Schema(2, CLIENTS))
    forced, free = (
        fc.LocalDP(5.0, unary=unary).mechanism(plan.queries[0], plan, who.cohort(CLIENTS), who)
        for unary in (True, False)
    )
    assert {type(coder.encoder) for coder in forced.coders.values()} == {Unary}
    assert {type(coder.encoder) for coder in free.coders.values()} != {Unary}
    for coder in forced.coders.values():
        assert coder.encoder.epsilon == pytest.approx(5.0)
        np.testing.assert_allclose(coder.encoder.probabilities(coder.symbols.count), (0.5, 1 / (exp(5) + 1)), rtol=1e-6)
    np.testing.assert_allclose(list(forced.chances.values()), 1 / 8)


def test_section_2_3_estimates_from_unary_encodings_have_the_published_variance() -> None:
    """Unbiased, with variance 4 n e^eps / (e^eps - 1)^2 plus the count, which the usual formula leaves out."""
    encoder, counts = Unary(5.0), np.array([1000, 500, 0, 8500, 0])  # the last are clients with nothing to report
    p, q = encoder.probabilities(4)
    reported = np.array([encoder.total(counts, fc.Simulated(seed)) for seed in range(1500)])
    estimates = (reported - counts.sum() * q) / (p - q)
    sd = np.sqrt(counts.sum() * 4 * exp(5) / (exp(5) - 1) ** 2 + counts[:4])
    np.testing.assert_allclose(estimates.std(axis=0), sd, rtol=0.08)
    assert (np.abs(estimates.mean(axis=0) - counts[:4]) < 4 * sd / sqrt(1500)).all()


def test_section_2_2_polya_shares_sum_to_discrete_laplace_noise() -> None:
    a, shares = 0.1, 50
    total = sum(fc.Simulated(3).derive(i).polya(Fraction(1, shares), 1 / a, 20_000) for i in range(shares))
    assert np.var(total) == pytest.approx(2 * exp(-a) / (1 - exp(-a)) ** 2, rel=0.05)
    assert (total == 0).mean() == pytest.approx((1 - exp(-a)) / (1 + exp(-a)), rel=0.1)


def test_section_2_3_buckets_are_equally_deep() -> None:
    _, _, data = scored(20_000)
    method = fc.ScoreCurves(fc.methods.ScoreTree(2, 16), buckets=20, recount=0.7)
    table = fc.run(method, fc.InProcess(data), fc.SecAgg()).artifact.table
    assert (table.counts.sum(axis=0) / 20_000 * 20).max() < 1.05
    assert (np.diff(table.edges) * 20).max() <= 1.0


@pytest.mark.parametrize("buckets", [8, 16])
def test_section_5_calibration_takes_the_share_of_positives_in_each_bucket(buckets: int) -> None:
    s, y, data = scored()
    method = fc.QuantileBinning(buckets, fc.methods.ScoreTree(2, 10), recount=0.5, smoothing=0.0)
    calibrator = fc.run(method, fc.InProcess(data), fc.SecAgg()).artifact
    place = np.searchsorted(calibrator.edges, s, side="right")
    shares = np.bincount(place, y) / np.bincount(place)
    assert len(shares) == len(calibrator.values) >= buckets
    np.testing.assert_allclose(calibrator(s), shares[place], atol=1e-9)


def test_raw_trees_are_binary_and_batches_are_raw() -> None:
    with pytest.raises(InputError, match="binary tree"):
        fc.ScoreCurves(fc.methods.ScoreTree(4, 5), raw=True)
    with pytest.raises(InputError, match="raw for batches"):
        fc.ScoreCurves(batches=True)


def test_metrics_by_their_definitions() -> None:
    """Class-wise ECE of the calibration paper's definition 3.3, and ECE, log loss and Brier score, bin by bin."""
    rng = np.random.default_rng(0)
    probs, labels = rng.dirichlet(np.ones(7) / 2, 3000), rng.integers(7, size=3000)

    def error(p: np.ndarray, hit: np.ndarray) -> float:
        cells = np.minimum((p * 15).astype(int), 14)
        return sum((cells == m).mean() * abs(p[cells == m].mean() - hit[cells == m].mean()) for m in set(cells))

    classwise = np.mean([error(probs[:, j], labels == j) for j in range(7)])
    assert metrics.classwise_ece(probs, labels) == pytest.approx(classwise, abs=1e-9)
    assert metrics.ece(probs, labels) == pytest.approx(error(probs.max(1), probs.argmax(1) == labels), abs=1e-9)
    assert metrics.nll(probs, labels) == pytest.approx(-np.log(probs[np.arange(3000), labels]).mean(), abs=1e-9)
    assert metrics.brier(probs, labels) == pytest.approx(((probs - np.eye(7)[labels]) ** 2).sum(1).mean(), abs=1e-9)


@pytest.mark.parametrize(
    ("model", "slope"),
    [(fc.SecAgg(), -1 / 3), (fc.DistributedDP(1.0), -1 / 3), (fc.LocalDP(5.0), -1 / 4)],
    ids=["theorem-7-exact", "theorem-7-distributed", "theorem-8-local"],
)
def test_table_1_error_of_histogram_calibration_falls_with_the_clients(model: fc.privacy.Privacy, slope: float) -> None:
    """The mean distance of the calibrated score from the true probability, at four sizes, against the paper's rates."""

    def drawn(n: int, seed: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=n)
        p = 1 / (1 + np.exp(-1.3 * x - 0.2))
        return 1 / (1 + np.exp(-2.4 * x)), (rng.random(n) < p).astype(int), p

    sizes, errors = (1000, 4000, 16_000, 64_000), []
    for size in sizes:
        found = []
        for run in range(5):
            s, y, _ = drawn(size, [run, size])
            new, _, truth = drawn(50_000, [run, 7])
            data = fc.Federation.grouped(fc.Records.of_scores(s, y), np.arange(size))
            method = fc.QuantileBinning(tree=fc.planning.suited_tree(model))
            calibrator = fc.run(method, fc.InProcess(data), model, randomness=fc.Simulated(run)).artifact
            found.append(np.abs(calibrator(new) - truth).mean())
        errors.append(np.median(found))
    fitted = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert fitted == pytest.approx(slope, abs=0.12)
