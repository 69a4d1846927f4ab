"""The scikit-learn adapter keeps scikit-learn's conventions, and calibrates."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.datasets import make_classification
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.estimator_checks import parametrize_with_checks

import fedcalib as fc
from fedcalib import metrics
from fedcalib.errors import InputError
from fedcalib.sklearn import FederatedCalibratedClassifier


@parametrize_with_checks([FederatedCalibratedClassifier(random_state=0)])
def test_conventions(estimator: object, check: object) -> None:
    check(estimator)


def data(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return make_classification(6000, 20, n_informative=4, n_redundant=10, n_classes=3, random_state=seed)


@pytest.mark.parametrize("privacy", [fc.Open(), fc.SecAgg(), fc.DistributedDP(4.0)], ids=repr)
def test_it_calibrates_an_over_confident_model(privacy: fc.privacy.Privacy) -> None:
    X, y = data()
    fitted, rest, y_fitted, y_rest = train_test_split(X, y, test_size=0.7, random_state=0)
    calibrating, testing, y_calibrating, y_testing = train_test_split(rest, y_rest, test_size=0.4, random_state=0)
    base = GaussianNB().fit(fitted, y_fitted)
    model = FederatedCalibratedClassifier(base, privacy=privacy, random_state=1)
    model.fit(calibrating, y_calibrating, sites=np.arange(len(calibrating)) % 20)
    before = metrics.ece(base.predict_proba(testing), y_testing)
    after = metrics.ece(model.predict_proba(testing), y_testing)
    assert after < before / 2
    assert model.estimator_ is base


def test_it_composes_with_model_selection() -> None:
    X, y = data()
    scores = cross_val_score(
        FederatedCalibratedClassifier(GaussianNB(), fc.OneShotTemperature(), random_state=0), X[:600], y[:600], cv=3
    )
    assert scores.min() > 0.5


def test_sites_must_match() -> None:
    X, y = data()
    with pytest.raises(InputError, match="one site per record"):
        FederatedCalibratedClassifier().fit(X, y, sites=[1, 2])


def outcome(**options: object) -> tuple[np.ndarray, fc.Result[object]]:
    X, y = data()
    model = FederatedCalibratedClassifier(privacy=fc.DistributedDP(1.0), classes=[0, 1, 2], **options)
    model.fit(X[:600], y[:600], sites=np.arange(600) % 5)
    return model.predict_proba(X[:20]), model.result_


def test_a_random_state_leaves_the_noise_alone() -> None:
    (first, result), (second, _) = outcome(random_state=0), outcome(random_state=0)
    assert not np.array_equal(first, second)
    assert not result.privacy.simulation
    assert "not private" not in result.privacy.statement


def test_simulated_noise_is_asked_for_and_warned_of() -> None:
    found = []
    for _ in range(2):
        with pytest.warns(UserWarning, match="simulation: not private"):
            found.append(outcome(random_state=0, simulate=0))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1].privacy.simulation


@pytest.mark.parametrize("sparse", [False, True])
def test_removing_a_record_moves_no_other_between_training_and_calibration(sparse: bool) -> None:
    class Remembering(GaussianNB):
        def fit(self, X: object, y: object) -> Remembering:
            dense = X.toarray() if sparse else X
            self.seen_ = sorted(map(tuple, dense.tolist()))
            return super().fit(dense, y)

        def predict_proba(self, X: object) -> np.ndarray:
            return super().predict_proba(X.toarray() if sparse else X)

    X, y = data()
    X = np.maximum(X[:300].round(1), 0)
    given = csr_matrix(X) if sparse else X

    def trained(rows: np.ndarray) -> list[tuple[float, ...]]:
        model = FederatedCalibratedClassifier(Remembering(), random_state=3).fit(given[rows], y[:300][rows])
        return model.estimator_.seen_

    everything, less = trained(np.arange(300)), trained(np.arange(1, 300))
    gone = Counter(everything) - Counter(less)
    assert not Counter(less) - Counter(everything)
    assert gone.total() <= 1
    assert 100 < len(everything) < 200


def test_classes_are_public_under_an_epsilon() -> None:
    X, y = data()
    with pytest.raises(InputError, match="classes="):
        FederatedCalibratedClassifier(privacy=fc.DistributedDP(1.0)).fit(X[:300], y[:300])
    two = y < 2
    model = FederatedCalibratedClassifier(privacy=fc.DistributedDP(1.0), classes=[0, 1, 2])
    assert model.fit(X[two][:300], y[two][:300]).predict_proba(X[:5]).shape == (5, 3)
    fitted = GaussianNB().fit(X, y)
    model = FederatedCalibratedClassifier(fitted, privacy=fc.DistributedDP(1.0)).fit(X[two][:300], y[two][:300])
    assert model.classes_.tolist() == [0, 1, 2]
    with pytest.raises(InputError, match="found others"):
        FederatedCalibratedClassifier(classes=[0, 1]).fit(X, y)
