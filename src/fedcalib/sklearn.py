"""A scikit-learn classifier whose probabilities are calibrated across sites. Needs the extra `sklearn`."""

from __future__ import annotations

import secrets
import warnings
from hashlib import blake2b
from itertools import pairwise
from typing import Any, final

import numpy as np
from scipy.sparse import issparse

from fedcalib.errors import InputError, needs
from fedcalib.federation import Federation, held_out_rows
from fedcalib.loop import run
from fedcalib.method import Method
from fedcalib.methods.fed_bin import FedBin
from fedcalib.privacy import Privacy
from fedcalib.privacy.open import Open
from fedcalib.randomness import SIMULATED, Secure, Simulated
from fedcalib.records import Records
from fedcalib.runtimes import InProcess
from fedcalib.types import Array, Floats, Ints, Words

with needs("use fedcalib.sklearn"):
    from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
    from sklearn.exceptions import NotFittedError
    from sklearn.linear_model import LogisticRegression
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data


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
        Probability that a record calibrates an estimator that is not fitted, instead of training it. The epsilon of a
        privacy model covers the records that calibrate: an estimator is trained without privacy.
    random_state
        Seed of that split, which follows from each record itself; drawn at random if left out. Noise never depends on
        it.
    classes
        All classes, which are public. A privacy model with an epsilon needs them for an estimator that is not fitted;
        otherwise they are those of the fitted estimator, or those that occur.
    simulate
        Seed of simulated noise, for trials: "simulation: not private". Without it, noise comes from the operating
        system.

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
        *,
        classes: Any = None,
        simulate: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.privacy = privacy
        self.holdout = holdout
        self.random_state = random_state
        self.classes = classes
        self.simulate = simulate

    def fit(self, X: Any, y: Any, sites: Any = None) -> FederatedCalibratedClassifier:
        """Fit the calibrator, and the classifier too unless it is fitted already.

        Parameters
        ----------
        X, y
            Features and labels.
        sites
            Name of each record's client; without it every record is a client of its own. The clients are public.
        """
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=None, ensure_all_finite=False)
        check_classification_targets(y)
        self.classes_ = self._public_classes(y)
        if len(self.classes_) < 2:
            raise ValueError("Classifier can't train when only one class is present.")
        labels = np.searchsorted(self.classes_, y)
        names, owner = np.unique(np.arange(len(y)) if sites is None else np.asarray(sites), return_inverse=True)
        if len(owner) != len(y):
            raise InputError(f"Expected one site per record, found {len(owner)} sites for {len(y)} records.")
        self.estimator_, rows = self._prepared(X, y, labels, _numbers(names, owner, sites is None))
        records = Records.of_probs(self._base(X[rows]), labels[rows])
        federation = Federation.grouped(records, owner[rows], len(names), map(str, names))
        if self.simulate is not None:
            warnings.warn(SIMULATED, stacklevel=2)
        source = Secure() if self.simulate is None else Simulated(self.simulate)
        runtime = InProcess(federation)
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

    def _public_classes(self, y: Any) -> Array:
        """The classes, in order: those stated or those of the fitted classifier, and without an epsilon those of y."""
        found = np.unique(y)
        known = self.classes if self.classes is not None else getattr(self.estimator, "classes_", None)
        if known is None:
            if (self.privacy or Open()).budget is not None:
                raise InputError(
                    "Expected classes= with a privacy model that has an epsilon and a classifier that is not fitted, "
                    "found none: which classes occur is a fact about the records. State all classes."
                )
            return found
        classes = np.unique(np.asarray(known))
        if not np.isin(found, classes).all():
            raise InputError(
                "Expected labels among the classes that are stated or that the fitted classifier knows, found others; "
                "state all classes, or fit the classifier on all of them first."
            )
        return classes

    def _prepared(self, X: Any, y: Any, labels: Ints, site: Words) -> tuple[Any, Ints]:
        """A fitted classifier, and the rows that it was not fitted on."""
        estimator = LogisticRegression(max_iter=1000) if self.estimator is None else self.estimator
        try:
            check_is_fitted(estimator)
        except NotFittedError:
            key = secrets.token_bytes(32) if self.random_state is None else self.random_state
            inputs = Records(np.zeros((len(labels), 2)), labels, False, extra={"inputs": _inputs(X)})
            held = held_out_rows(inputs, self.holdout, key, site)
            return clone(estimator).fit(X[np.flatnonzero(~held)], y[~held]), np.flatnonzero(held)
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


def _numbers(names: Array, owner: Ints, anonymous: bool) -> Words:
    """A number for each record's site that does not depend on other sites, shape (n,)."""
    if anonymous:
        return np.zeros(len(owner), dtype=np.uint64)
    hashes = [blake2b(str(name).encode(), digest_size=8).digest() for name in names]
    return np.array([int.from_bytes(one, "big") for one in hashes], dtype=np.uint64)[owner]


def _inputs(X: Any) -> Array:
    """The features, or a hash of each row of a sparse matrix."""
    if not issparse(X):
        features: Array = X
        return features
    rows = X.sorted_indices()
    cells = [
        rows.indices[start:end].astype(np.int64).tobytes() + rows.data[start:end].tobytes()
        for start, end in pairwise(rows.indptr)
    ]
    return np.frombuffer(b"".join(blake2b(row, digest_size=16).digest() for row in cells), np.uint64).reshape(-1, 2)
