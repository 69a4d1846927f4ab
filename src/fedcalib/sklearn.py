"""A scikit-learn classifier whose probabilities are calibrated across sites. Needs the extra `sklearn`."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from typing import Any, final

import numpy as np
from scipy.sparse import issparse

from fedcalib.errors import InputError, needs
from fedcalib.federation import Federation, held_out_rows
from fedcalib.method import Method
from fedcalib.methods.fed_bin import FedBin
from fedcalib.privacy import Privacy
from fedcalib.privacy.open import Open
from fedcalib.randomness import SIMULATED, Secure, Simulated
from fedcalib.records import Records, softmax
from fedcalib.runtimes import InProcess, run
from fedcalib.types import Array, Floats, Ints, Words

with needs("use fedcalib.sklearn"):
    from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
    from sklearn.exceptions import NotFittedError
    from sklearn.linear_model import LogisticRegression
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

_ALONE = (
    "Without sites every record is a client of its own, so the privacy model protects no hospital or company, and its "
    "cohorts are records. Pass sites= to fit."
)


@final
class FederatedCalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose probabilities are calibrated with any method and privacy model of fedcalib.

    Parameters
    ----------
    estimator
        The classifier. One that is fitted is used as it is, and all records calibrate it. One that is not fitted (by
        default a logistic regression) is trained on a part of the records and calibrated on the rest. It may have
        `decision_function` instead of `predict_proba`. A frame reaches it as a frame.
    method
        The calibration method; by default `FedBin()`. Its options are parameters too, such as `method__bins`.
    privacy
        The privacy model; by default `Open()`. Its options are parameters too, such as `privacy__epsilon`.
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

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name, those of the method and the privacy model included if `deep`."""
        params: dict[str, Any] = super().get_params(deep)
        parts = {name: getattr(self, name) for name in ("method", "privacy") if deep}
        nested = ((name, part, option) for name, part in parts.items() if is_dataclass(part) for option in fields(part))
        return params | {f"{name}__{option.name}": getattr(part, option.name) for name, part, option in nested}

    def set_params(self, **params: Any) -> FederatedCalibratedClassifier:
        """Set parameters by name; `method__bins=5` sets an option of the method."""
        nested = {name for name in params if name.startswith(("method__", "privacy__"))}
        super().set_params(**{name: value for name, value in params.items() if name not in nested})
        for name, default in (("method", FedBin()), ("privacy", Open())):
            stated = {key.partition("__")[2]: params[key] for key in nested if key.startswith(f"{name}__")}
            if stated:
                setattr(self, name, _replaced(name, getattr(self, name) or default, stated))
        return self

    def fit(self, X: Any, y: Any, sites: Any = None, **fit_params: Any) -> FederatedCalibratedClassifier:
        """Fit the calibrator, and the classifier too unless it is fitted already.

        Parameters
        ----------
        X, y
            Features and labels.
        sites
            Name of each record's client; without it every record is a client of its own. The clients are public.
        **fit_params
            Further arguments for the classifier's `fit`, such as `sample_weight`; those with one entry per record are
            split as the records are. They weigh training: in the calibration every record counts once.
        """
        X, y = self._checked(X, reset=True, y=y)
        check_classification_targets(y)
        self.classes_ = self._public_classes(y)
        if len(self.classes_) < 2:
            raise ValueError("Classifier can't train when only one class is present.")
        labels = np.searchsorted(self.classes_, y)
        names, owner = np.unique(np.arange(len(y)) if sites is None else np.asarray(sites), return_inverse=True)
        if len(owner) != len(y):
            raise InputError(f"Expected one site per record, found {len(owner)} sites for {len(y)} records.")
        if sites is None and not isinstance(self.privacy or Open(), Open):
            warnings.warn(_ALONE, stacklevel=2)
        self.estimator_, rows = self._prepared(X, y, labels, _numbers(names, owner, sites is None), fit_params)
        records = Records.of_probs(self._base(_rows(X, rows)), labels[rows])
        federation = Federation.grouped(records, owner[rows], len(names), map(str, names))
        if self.simulate is not None:
            warnings.warn(SIMULATED, stacklevel=2)
        source = Secure() if self.simulate is None else Simulated(self.simulate)
        runtime = InProcess(federation)
        self.result_ = run(self.method or FedBin(), runtime, self.privacy or Open(), randomness=source)
        self.calibrator_ = self.result_.artifact.with_class_names([str(name) for name in self.classes_])
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Calibrated probabilities, shape (n, classes)."""
        check_is_fitted(self, "calibrator_")
        X = self._checked(X, reset=False)
        probs: Floats = self.calibrator_(self._base(X))
        return probs

    def predict(self, X: Any) -> Array:
        """The most probable class of each record, shape (n,)."""
        best = self.predict_proba(X).argmax(axis=1)
        chosen: Array = self.classes_[best]
        return chosen

    def _checked(self, X: Any, *, reset: bool, **labels: Any) -> Any:
        """Features as the classifier takes them, and labels if `y` is among the arguments; a frame stays a frame."""
        if not hasattr(X, "columns"):
            check = {"accept_sparse": "csr", "dtype": None, "ensure_all_finite": False}
            return validate_data(self, X, **labels, **check, reset=reset)
        validate_data(self, X, skip_check_array=True, reset=reset)
        if not labels:
            return X
        y = column_or_1d(labels["y"], warn=True)
        check_consistent_length(X, y)
        return X, y

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
        if not np.isin(getattr(self.estimator, "classes_", classes), classes).all():
            raise InputError("Expected classes= with all classes that the fitted classifier knows, found fewer.")
        if not np.isin(found, classes).all():
            raise InputError(
                "Expected labels among the classes that are stated or that the fitted classifier knows, found others; "
                "state all classes, or fit the classifier on all of them first."
            )
        return classes

    def _prepared(self, X: Any, y: Any, labels: Ints, site: Words, fit_params: Mapping[str, Any]) -> tuple[Any, Ints]:
        """A fitted classifier, and the rows that it was not fitted on."""
        estimator = LogisticRegression(max_iter=1000) if self.estimator is None else self.estimator
        try:
            check_is_fitted(estimator)
        except NotFittedError:
            key = secrets.token_bytes(32) if self.random_state is None else self.random_state
            inputs = Records(np.zeros((len(labels), 2)), labels, False, extra={"inputs": _inputs(X)})
            held = held_out_rows(inputs, self.holdout, key, site)
            trained = np.flatnonzero(~held)
            split = {name: _split(value, trained, len(y)) for name, value in fit_params.items()}
            return clone(estimator).fit(_rows(X, trained), y[trained], **split), np.flatnonzero(held)
        if fit_params:
            raise InputError(
                f"Expected no {', '.join(fit_params)} with a classifier that is fitted already, found some; in the "
                "calibration every record counts once."
            )
        return estimator, np.arange(len(y))

    def _base(self, X: Any) -> Floats:
        """The classifier's own probabilities, with a column for every class of the data."""
        probs = np.zeros((X.shape[0], len(self.classes_)))
        known = np.searchsorted(self.classes_, self.estimator_.classes_)
        probs[:, known] = _probabilities(self.estimator_, X)
        return probs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _probabilities(estimator: Any, X: Any) -> Floats:
    """Probabilities of a classifier, or the softmax of its decision function."""
    if hasattr(estimator, "predict_proba"):
        probs: Floats = estimator.predict_proba(X)
        return probs
    if not hasattr(estimator, "decision_function"):
        raise InputError(
            f"Expected a classifier with predict_proba or decision_function, found {type(estimator).__name__}."
        )
    scores = np.asarray(estimator.decision_function(X), dtype=np.float64)
    return softmax(np.stack([np.zeros_like(scores), scores], axis=1) if scores.ndim == 1 else scores)


def _replaced(name: str, part: Any, stated: Mapping[str, Any]) -> Any:
    """A method or privacy model with other options."""
    known = [option.name for option in fields(part)]
    unknown = sorted(set(stated) - set(known))
    if unknown:
        raise ValueError(f"Invalid parameter {name}__{unknown[0]} of {type(part).__name__}. Valid ones: {known}.")
    return replace(part, **stated)


def _rows(X: Any, rows: Ints) -> Any:
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def _split(value: Any, rows: Ints, records: int) -> Any:
    """The part of an argument that belongs to some records, if it has one entry per record."""
    if np.ndim(value) == 0 or len(value) != records:
        return value
    return _rows(value, rows) if hasattr(value, "iloc") else np.asarray(value)[rows]


def _numbers(names: Array, owner: Ints, anonymous: bool) -> Words:
    """A number for each record's site that does not depend on other sites, shape (n,)."""
    if anonymous:
        return np.zeros(len(owner), dtype=np.uint64)
    hashes = [blake2b(str(name).encode(), digest_size=8).digest() for name in names]
    return np.array([int.from_bytes(one, "big") for one in hashes], dtype=np.uint64)[owner]


def _is_numeric(frame: Any) -> bool:
    try:
        return np.asarray(frame[:1]).dtype.kind in "fiub"
    except TypeError:  # types that have nothing in common
        return False


def _inputs(X: Any) -> Array:
    """The features, or a text per row of a frame of several types, or a hash of each row of a sparse matrix."""
    if hasattr(X, "columns") and not _is_numeric(X):
        rows = X.to_numpy(dtype=object).tolist() if hasattr(X, "iloc") else X.rows()
        return np.array([repr(tuple(row)) for row in rows], dtype=object)
    if not issparse(X):
        return np.asarray(X)
    matrix = X.sorted_indices()
    cells = [
        matrix.indices[start:end].astype(np.int64).tobytes() + matrix.data[start:end].tobytes()
        for start, end in pairwise(matrix.indptr)
    ]
    return np.frombuffer(b"".join(blake2b(row, digest_size=16).digest() for row in cells), np.uint64).reshape(-1, 2)
