"""The scikit-learn adapter keeps scikit-learn's conventions, and calibrates."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
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
    two, sites = y < 2, np.arange(300) % 5
    model = FederatedCalibratedClassifier(privacy=fc.DistributedDP(1.0), classes=[0, 1, 2])
    assert model.fit(X[two][:300], y[two][:300], sites=sites).predict_proba(X[:5]).shape == (5, 3)
    fitted = GaussianNB().fit(X, y)
    model = FederatedCalibratedClassifier(fitted, privacy=fc.DistributedDP(1.0))
    model.fit(X[two][:300], y[two][:300], sites=sites)
    assert model.classes_.tolist() == [0, 1, 2]
    with pytest.raises(InputError, match="found others"):
        FederatedCalibratedClassifier(classes=[0, 1]).fit(X, y)


def patients(n: int = 600) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": rng.normal(60, 10, n), "sex": rng.choice(["f", "m"], n), "seen": pd.Timestamp("2024-01-01")}
    )
    risk = 1 / (1 + np.exp(-(frame.age - 60) / 5 - (frame.sex == "m")))
    return frame, pd.Series(np.where(rng.random(n) < risk, "ill", "well"), name="state")


@pytest.mark.parametrize("fitted", [False, True])
def test_a_pipeline_finds_its_columns_by_name(fitted: bool) -> None:
    X, y = patients()
    columns = make_column_transformer((StandardScaler(), ["age"]), (OneHotEncoder(), ["sex"]))
    base = make_pipeline(columns, LogisticRegression())
    base = base.fit(X[:200], y[:200]) if fitted else base
    model = FederatedCalibratedClassifier(base, random_state=0).fit(X[200:], y[200:], sites=np.arange(400) % 4)
    assert model.feature_names_in_.tolist() == ["age", "sex", "seen"]
    assert model.predict_proba(X[:3]).shape == (3, 2)
    assert set(model.predict(X)) == {"ill", "well"}
    assert model.calibrator_.class_names == ("ill", "well")
    with pytest.raises(ValueError, match="feature names"):
        model.predict_proba(X[["age", "sex"]])


def test_polars_frames_reach_the_pipeline() -> None:
    polars = pytest.importorskip("polars")
    X, y = patients()
    base = make_pipeline(make_column_transformer((StandardScaler(), ["age"])), LogisticRegression())
    frame = polars.from_pandas(X)
    model = FederatedCalibratedClassifier(base, random_state=0).fit(frame, y, sites=np.arange(600) % 4)
    assert model.predict_proba(frame[:3]).shape == (3, 2)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_decision_function_is_enough(classes: int) -> None:
    X, y = data()
    X, y = X[y < classes][:1500], y[y < classes][:1500]
    model = FederatedCalibratedClassifier(LinearSVC(), random_state=0).fit(X, y, sites=np.arange(1500) % 5)
    probs = model.predict_proba(X)
    assert probs.shape == (1500, classes)
    assert probs.sum(axis=1) == pytest.approx(1)
    assert (model.predict(X) == y).mean() > 0.6
    with pytest.raises(InputError, match="predict_proba or decision_function, found Silent"):
        FederatedCalibratedClassifier(Silent(), random_state=0).fit(X, y)


class Silent(LogisticRegression):
    """A classifier without scores."""

    predict_proba = property()
    decision_function = property()


def test_weights_reach_the_training() -> None:
    X, y = data()
    X, y, weights = X[:600], y[:600], np.random.default_rng(0).random(600)
    told = {"random_state": 0, "classes": [0, 1, 2]}
    plain = FederatedCalibratedClassifier(**told).fit(X, y)
    weighted = FederatedCalibratedClassifier(**told).fit(X, y, sample_weight=weights)
    assert not np.allclose(plain.estimator_.coef_, weighted.estimator_.coef_)
    ones = FederatedCalibratedClassifier(**told).fit(X, y, sample_weight=pd.Series(np.ones(600)))
    np.testing.assert_allclose(plain.estimator_.coef_, ones.estimator_.coef_)
    with pytest.raises(InputError, match="no sample_weight with a classifier that is fitted"):
        FederatedCalibratedClassifier(plain.estimator_).fit(X, y, sample_weight=weights)


def test_options_of_the_method_and_the_privacy_model_are_parameters() -> None:
    X, y = data()
    model = FederatedCalibratedClassifier(GaussianNB(), fc.FedBin(), fc.DistributedDP(1.0), random_state=0)
    assert model.get_params()["method__bins"] == fc.FedBin().bins
    assert model.set_params(privacy__epsilon=2.0, method__bins=5).privacy == fc.DistributedDP(2.0)
    assert model.method == fc.FedBin(bins=5)
    search = GridSearchCV(FederatedCalibratedClassifier(GaussianNB(), random_state=0), {"method__bins": [5, 10]}, cv=2)
    assert search.fit(X[:400], y[:400]).best_params_["method__bins"] in (5, 10)
    with pytest.raises(ValueError, match="method__bin of FedBin"):
        model.set_params(method__bin=5)


def test_records_as_clients_are_warned_of() -> None:
    X, y = data()
    with pytest.warns(UserWarning, match="every record is a client"):
        FederatedCalibratedClassifier(privacy=fc.SecAgg(), random_state=0).fit(X[:300], y[:300])


def test_classes_that_the_classifier_knows_must_be_stated() -> None:
    X, y = data()
    two = y < 2
    with pytest.raises(InputError, match="all classes that the fitted classifier knows"):
        FederatedCalibratedClassifier(GaussianNB().fit(X, y), classes=[0, 1]).fit(X[two], y[two])
    model = FederatedCalibratedClassifier(GaussianNB().fit(X, y)).fit(X[two], y[two])
    assert model.predict_proba(X[:5]).shape == (5, 3)
