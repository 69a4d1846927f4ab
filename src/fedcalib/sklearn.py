"""A scikit-learn classifier whose probabilities are calibrated across sites. Needs the extra `sklearn`."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.loop import run
from fedcalib.method import Method
from fedcalib.methods.fed_bin import FedBin
from fedcalib.privacy import Privacy
from fedcalib.privacy.open import Open
from fedcalib.randomness import Secure, Simulated
from fedcalib.records import Records
from fedcalib.runtimes import InProcess
from fedcalib.types import Array, Floats


@final
class FederatedCalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose probabilities are calibrated with any method and privacy model of fedcalib.

    Parameters
    ----------
    estimator
        The classifier. One that is fitted is used as it is, and all records calibrate it. One that is not fitted (by
        default a logistic regression) is trained on a part of the records and calibrated on the rest.
    method
        The calibration method; by default `FedBin()`.
    privacy
        The privacy model; by default `Open()`.
    holdout
        Fraction of the records that calibrate an estimator that is not fitted.
    random_state
        Seed of the split and of the noise; without one, noise comes from the operating system.

    Attributes
    ----------
    classes_
        The classes.
    estimator_
        The fitted classifier.
    calibrator_
        The fitted calibrator.
    result_
        The result of the run, with its privacy statement.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from fedcalib.sklearn import FederatedCalibratedClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> sites = [row % 10 for row in range(len(y))]
    >>> model = FederatedCalibratedClassifier(random_state=0).fit(X[:, :5], y, sites=sites)
    >>> model.predict_proba(X[:3, :5]).shape
    (3, 2)
    """

    def __init__(
        self,
        estimator: Any = None,
        method: Method[Any] | None = None,
        privacy: Privacy | None = None,
        holdout: float = 0.5,
        random_state: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.privacy = privacy
        self.holdout = holdout
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sites: Any = None) -> FederatedCalibratedClassifier:
        """Fit the calibrator, and the classifier too unless it is fitted already.

        Parameters
        ----------
        X, y
            Features and labels.
        sites
            Name of each record's client; without it every record is a client of its own.
        """
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=None, ensure_all_finite=False)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("Classifier can't train when only one class is present.")
        names = np.arange(len(y)) if sites is None else np.asarray(sites)
        if len(names) != len(y):
            raise InputError(f"Expected one site per record, found {len(names)} sites for {len(y)} records.")
        self.estimator_, rows = self._prepared(X, y, labels)
        records = Records.of_probs(self._base(X[rows]), labels[rows])
        source = Secure() if self.random_state is None else Simulated(self.random_state)
        runtime = InProcess(Federation.by_site(records, names[rows]))
        self.result_ = run(self.method or FedBin(), runtime, self.privacy or Open(), randomness=source)
        self.calibrator_ = self.result_.artifact
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Calibrated probabilities, shape (n, classes)."""
        check_is_fitted(self, "calibrator_")
        X = validate_data(self, X, accept_sparse="csr", dtype=None, ensure_all_finite=False, reset=False)
        probs: Floats = self.calibrator_(self._base(X))
        return probs

    def predict(self, X: Any) -> Array:
        """The most probable class of each record, shape (n,)."""
        best = self.predict_proba(X).argmax(axis=1)
        chosen: Array = self.classes_[best]
        return chosen

    def _prepared(self, X: Any, y: Any, labels: Any) -> tuple[Any, Array]:
        """A fitted classifier, and the rows that it was not fitted on."""
        estimator = LogisticRegression(max_iter=1000) if self.estimator is None else self.estimator
        try:
            check_is_fitted(estimator)
        except NotFittedError:
            counts = np.bincount(labels)
            strata = labels if counts.min() >= 2 else None
            train, rest = train_test_split(
                np.arange(len(y)), test_size=self.holdout, random_state=self.random_state or 0, stratify=strata
            )
            return clone(estimator).fit(X[train], y[train]), rest
        if not np.isin(self.classes_, estimator.classes_).all():
            raise InputError(
                "Expected labels that the fitted classifier knows, found others; fit it on all classes first."
            ) from None
        return estimator, np.arange(len(y))

    def _base(self, X: Any) -> Floats:
        """The classifier's own probabilities, with a column for every class of the data."""
        probs = np.zeros((X.shape[0], len(self.classes_)))
        known = np.searchsorted(self.classes_, self.estimator_.classes_)
        probs[:, known] = self.estimator_.predict_proba(X)
        return probs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
