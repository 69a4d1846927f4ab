from __future__ import annotations

import numpy as np
import pytest

import fedcalib as fc
from fedcalib.artifacts.scaling import Beta, Platt
from fedcalib.errors import InputError
from fedcalib.methods.platt import Cells, OddsCells, PlattScaling, fit_platt
from fedcalib.metrics.binning import EvenLogOdds
from fedcalib.metrics.ranking import roc_auc
from fedcalib.randomness import Simulated
from tests.methods.platt_reference import FOUND, drawn


def overconfident(n: int, seed: int, slope: float = 0.5, intercept: float = -0.4) -> tuple[np.ndarray, np.ndarray]:
    """Scores whose true log-odds are slope times theirs, plus intercept."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(0, 1.5, n)
    truth = 1 / (1 + np.exp(-(slope * odds + intercept)))
    return 1 / (1 + np.exp(-odds)), (rng.random(n) < truth).astype(int)


def federation(n: int, seed: int, clients: int = 20) -> fc.Federation:
    scores, labels = overconfident(n, seed)
    return fc.Federation.iid(fc.Records.of_scores(scores, labels), clients, seed)


@pytest.mark.parametrize("privacy", [fc.Open(), fc.SecAgg(), fc.DistributedDP(1.0)])
def test_finds_the_line_under_every_model(privacy: fc.privacy.Privacy) -> None:
    result = fc.run(PlattScaling(), fc.InProcess(federation(100_000, 1)), privacy, randomness=Simulated(2))
    assert result.artifact.slope == pytest.approx(0.5, abs=0.03)
    assert result.artifact.intercept == pytest.approx(-0.4, abs=0.03)


def test_ranking_and_auc_stay() -> None:
    scores, labels = overconfident(5_000, 3)
    assert roc_auc(Platt(0.4, -2.0)(scores), labels) == pytest.approx(roc_auc(scores, labels), abs=1e-9)
    assert roc_auc(Beta(0.4, 0.9, -1.0)(scores), labels) == pytest.approx(roc_auc(scores, labels), abs=1e-9)


def test_beta_of_equal_weights_is_platt() -> None:
    scores = np.array([0.0, 1e-6, 0.2, 0.5, 0.9, 1.0])
    np.testing.assert_allclose(Beta(0.7, 0.7, 0.3)(scores), Platt(0.7, 0.3)(scores), atol=1e-12)


@pytest.mark.parametrize("privacy", [fc.Open(), fc.SecAgg()], ids=repr)
@pytest.mark.parametrize("kind", FOUND)
def test_exact_sums_give_the_maximum_likelihood_fit_of_statsmodels(kind: str, privacy: fc.privacy.Privacy) -> None:
    scores, labels = drawn()[kind]
    runtime = fc.InProcess(fc.Federation.iid(fc.Records.of_scores(scores, labels), 5, 0))
    platt = fc.run(PlattScaling(), runtime, privacy).artifact
    beta = fc.run(fc.methods.BetaScaling(), runtime, privacy).artifact
    np.testing.assert_allclose((platt.intercept, platt.slope), FOUND[kind][0], rtol=0, atol=1e-4)
    np.testing.assert_allclose((beta.intercept, beta.low, beta.high), FOUND[kind][1], rtol=0, atol=1e-4)


def forest(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores in hundredths, of which many are exactly 0 or 1 although their rate is not."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-1.2, 1.8, n)
    labels = (rng.random(n) < 1 / (1 + np.exp(-odds))).astype(int)
    rough = 1 / (1 + np.exp(-1.6 * odds + rng.normal(0, 0.5, n)))
    return np.round(np.clip(1.1 * rough - 0.05, 0, 1), 2), labels


@pytest.mark.parametrize("privacy", [fc.SecAgg(), fc.DistributedDP(1.0), fc.LocalDP(5.0)], ids=repr)
@pytest.mark.parametrize("method", [PlattScaling(), fc.methods.BetaScaling()], ids=repr)
def test_scores_of_zero_and_one_get_the_rates_of_their_records(method: fc.Method, privacy: fc.privacy.Privacy) -> None:
    scores, labels = forest(20_000, 1)
    runtime = fc.InProcess(fc.Federation(fc.Records.of_scores(scores, labels), np.arange(len(scores) + 1)))
    calibrator = fc.run(method, runtime, privacy, randomness=Simulated(1)).artifact
    for end in (0.0, 1.0):
        rate = labels[scores == end].mean()
        assert 0.01 < rate < 0.99
        assert calibrator(np.array([end]))[0] == pytest.approx(rate, abs=0.05)
    assert (np.diff(calibrator(np.linspace(0, 1, 201))) > 0).all()


def test_the_places_of_records_in_their_cells_are_within_the_bound() -> None:
    query = OddsCells(4, EvenLogOdds(2.0))
    records = fc.Records.of_scores(np.array([0.0, 1e-9, 0.5, 0.7, 1.0]), np.array([0, 1, 0, 1, 1]))
    rows = query.rows(records)
    assert rows.cells[:, 1].tolist() == [8, 8, 10, 10, 11]
    np.testing.assert_allclose(rows.values[:, 1], [-0.5, -0.5, -0.5, np.log(7 / 3) - 0.5, 0.5], atol=1e-12)


def test_noise_alone_changes_nothing() -> None:
    rng = np.random.default_rng(5)
    odds = EvenLogOdds(12.0).odds(64)
    fits = [fit_platt(Cells.of(odds, *rng.normal(0, 1000, (2, 64)), np.full(64, 1e6))) for _ in range(50)]
    assert max(abs(fit.slope - 1) for fit in fits) < 0.3
    assert max(abs(fit.intercept) for fit in fits) < 0.3


def test_signed_cells_are_not_biased_by_heavy_noise() -> None:
    # most cells are empty; cutting their noise at zero would invent records at both ends
    rng = np.random.default_rng(6)
    odds = EvenLogOdds(12.0).odds(64)
    held = np.where(np.abs(odds) < 1.2, 50_000.0, 0.0)
    share = 1 / (1 + np.exp(-(1.5 * odds - 0.3)))
    exact = np.stack([held * share, held * (1 - share)])
    fits = [
        fit_platt(Cells.of(odds, *(exact + rng.normal(0, 150, (2, 64))), np.full(64, 150.0**2))) for _ in range(200)
    ]
    assert np.mean([fit.slope for fit in fits]) == pytest.approx(1.5, abs=0.1)
    assert np.mean([fit.intercept for fit in fits]) == pytest.approx(-0.3, abs=0.05)


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_only_stays_finite_and_valid(label: int) -> None:
    records = fc.Records.of_scores(np.linspace(0, 1, 50), np.full(50, label))
    platt = fc.run(PlattScaling(), fc.InProcess(fc.Federation.iid(records, 5, 0)), fc.SecAgg()).artifact
    calibrated = platt(np.linspace(0, 1, 11))
    assert np.isfinite(calibrated).all()
    assert ((calibrated > 0.5) == label)[5]


def test_refuses_what_it_cannot_do() -> None:
    with pytest.raises(InputError, match="2 to 2\\^20 cells"):
        PlattScaling(cells=1)
    with pytest.raises(InputError, match="binary"):
        fc.method.Plan.of(PlattScaling(), fc.Schema(3, 5))
    with pytest.raises(InputError, match="binary"):
        Platt(1.0, 0.0)(np.full((2, 3), 1 / 3))
    with pytest.raises(InputError, match="slope above 0"):
        Platt(-1.0, 0.0)


def test_saves_and_loads(tmp_path) -> None:
    spans = Platt(0.5, -0.25, (-4.0, 6.0)), Beta(0.5, 0.75, -0.25, (-4.0, 6.0))
    for artifact in (Platt(0.5, -0.25), Beta(0.5, 0.75, -0.25), *spans):
        assert fc.load(artifact.save(tmp_path / "it.json")) == artifact
