"""The scikit-learn adapter keeps scikit-learn's conventions, and calibrates."""

from __future__ import annotations

import numpy as np
import pytest
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
