"""The page of the FL-SWAG benchmark says what its files show."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.fl_swag import report, settings
from benchmarks.fl_swag.hmc import Posterior, disagreement, hmc

import fedcalib as fc
from fedcalib.training import SoftmaxRegression


def test_the_page_is_what_the_files_show() -> None:
    assert (report.HERE / "annex.md").read_text() == report.annex(), "run python -m benchmarks.fl_swag.report"
    page = (report.HERE / "README.md").read_text()
    assert all(f"<!-- {name} -->\n\n{part()}\n" in page for name, part in report.SHORT.items())


def test_the_setting_with_the_best_averages_is_chosen() -> None:
    for data in ("mnist", "fashion-mnist"):
        how = settings.chosen(data)
        found: dict[settings.Key, list[float]] = {}
        for row in settings.TABLE.rows:
            if row["data"] == data and row["method"] in settings.AVERAGES:
                found.setdefault(settings.key(row), []).append(float(row["held_out_accuracy"]))
        assert max(found, key=lambda each: np.mean(found[each])) == (how.rate, how.prior, how.epochs)
        assert len(found) == len(settings.SETTINGS) * len(settings.EPOCHS)


def test_all_settings_are_trained_as_each_would_be_alone() -> None:
    rng = np.random.default_rng(0)
    weights, x, y = rng.normal(size=(5, 3, 4)), rng.normal(size=(20, 5)), rng.integers(0, 4, 20)
    x[:, -1] = 1.0
    found = settings.slope(weights, x, y)
    network = SoftmaxRegression(4, 4)
    for at in range(3):
        one = np.concatenate([weights[:-1, at].T.reshape(-1), weights[-1, at]])
        gradient = network.session(one).gradient(x[:, :-1], y)
        np.testing.assert_allclose(found[:-1, at].T.reshape(-1), gradient[:16], atol=1e-12)
        np.testing.assert_allclose(found[-1, at], gradient[16:], atol=1e-12)


def test_the_potential_is_the_networks() -> None:
    pytest.importorskip("torch")
    from benchmarks.fl_swag.breast_cancer import NETWORK, SIZES, dealt

    train, _, _ = dealt()
    weights = np.stack([NETWORK.start(seed) for seed in range(3)]).astype(np.float64)
    values, slopes = Posterior(SIZES, train, 2.0).potential(weights)
    for each, value, slope in zip(weights, values, slopes, strict=True):
        session, (inputs, labels) = NETWORK.session(each), (train.extra["inputs"], train.labels)
        own = len(train) * session.gradient(inputs, labels) + 2.0 * each
        np.testing.assert_allclose(slope, own, atol=1e-3)
        logits = session.logits(inputs).astype(np.float64)
        loss = np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(labels)), labels]
        assert value == pytest.approx(loss.sum() + each @ each, rel=1e-5)


def test_draws_without_records_are_the_priors() -> None:
    nothing = fc.Records.of_logits(np.zeros((0, 2)), np.zeros(0, dtype=np.int64), inputs=np.zeros((0, 3)))
    draws, _, taken = hmc(Posterior((3, 2), nothing, 4.0), np.zeros((4, 8)), 300, step=0.3, leaps=5, seed=0)
    assert taken > 0.8
    assert draws.std() == pytest.approx(0.5, abs=0.03)


def test_chains_that_tell_the_same_agree() -> None:
    rng = np.random.default_rng(0)
    same = rng.normal(size=(2, 500))
    assert disagreement(same) < 1.02
    assert disagreement(same + np.array([[0.0], [3.0]])) > 1.5
