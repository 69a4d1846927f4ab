"""Central calibrators, fitted on pooled records: scikit-learn, netcal and probmetrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fedcalib as fc
from benchmarks.calibration_speed.contenders import Apply, netcal, quiet, sklearn_temperature
from benchmarks.calibration_speed.data import Data, make
from fedcalib.numeric import log_odds
from fedcalib.types import Floats, Ints

Curve = Callable[[Floats], Floats]


def sigmoid(score: Floats, label: Ints) -> Curve:
    """scikit-learn's sigmoid is a logistic regression on log-odds without a penalty."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=np.inf).fit(log_odds(score)[:, None], label)
    return lambda new: np.asarray(model.predict_proba(log_odds(new)[:, None])[:, 1])


def isotonic(score: Floats, label: Ints) -> Curve:
    """scikit-learn's isotonic regression, at most 1e-4 from 0 and 1, since a single wrong 0 costs everything."""
    from sklearn.isotonic import IsotonicRegression

    model = IsotonicRegression(y_min=1e-4, y_max=1 - 1e-4, out_of_bounds="clip").fit(score, label)
    return lambda new: np.asarray(model.predict(new))


def beta(score: Floats, label: Ints) -> Curve:
    """Beta calibration as a logistic regression on ln p and -ln(1 - p)."""
    from sklearn.linear_model import LogisticRegression

    def features(of: Floats) -> Floats:
        inside = np.clip(of, 1e-12, 1 - 1e-12)
        return np.stack([np.log(inside), -np.log1p(-inside)], axis=1)

    with quiet():
        model = LogisticRegression(C=np.inf, max_iter=1000).fit(features(score), label)
    return lambda new: np.asarray(model.predict_proba(features(new))[:, 1])


BINARY: dict[str, Callable[[Floats, Ints], Curve]] = {
    "central sigmoid": sigmoid,
    "central isotonic": isotonic,
    "central beta": beta,
}


def _data(records: fc.Records) -> Data:
    return Data(np.asarray(records.logits), np.asarray(records.probs), records.labels, records)


def _of(fit: Callable[[Data], Apply]) -> Callable[[fc.Records], Apply]:
    return lambda records: fit(_data(records))


def _named(name: str) -> Callable[[Data], Apply]:
    """One of probmetrics' by its short name."""

    def fit(data: Data) -> Apply:
        import torch
        from probmetrics.calibrators import get_calibrator

        torch.set_num_threads(1)
        model = get_calibrator(name)
        with quiet():
            model.fit(data.probs, data.labels)
        return lambda records: np.asarray(model.predict_proba(np.asarray(records.probs)), dtype=np.float64)

    return fit


def classwise(kind: str) -> Callable[[Data], Apply]:
    """scikit-learn's sigmoid or isotonic, one class against the others, then normalised."""
    one = {"sigmoid": sigmoid, "isotonic": isotonic}[kind]

    def fit(data: Data) -> Apply:
        curves = [one(data.probs[:, k], (data.labels == k).astype(int)) for k in range(data.classes)]

        def apply(records: fc.Records) -> Floats:
            raw = np.stack([curve(np.asarray(records.probs)[:, k]) for k, curve in enumerate(curves)], axis=1)
            return raw / raw.sum(axis=1, keepdims=True)

        return apply

    return fit


MULTICLASS: dict[str, Callable[[fc.Records], Apply]] = {
    "scikit-learn temperature": _of(sklearn_temperature),
    "scikit-learn sigmoid": _of(classwise("sigmoid")),
    "scikit-learn isotonic": _of(classwise("isotonic")),
    "netcal temperature": _of(netcal("TemperatureScaling", "scaling")),
    "probmetrics svs": _of(_named("svs")),
    "probmetrics sms": _of(_named("sms")),
    "probmetrics ts-mix": _of(_named("ts-mix")),
}

# matrix scaling of a hundred classes takes minutes
FOR_HUNDRED = ("scikit-learn temperature", "scikit-learn isotonic", "probmetrics svs", "probmetrics ts-mix")


def _auto(records: fc.Records) -> Callable[[], Any]:
    bounds = np.linspace(0, len(records), 11).astype(int)
    place = fc.InProcess(fc.Federation(records, bounds))
    return lambda: fc.run(fc.Auto(), place, fc.SecAgg())


def speed_tasks() -> Iterator[tuple[str, Callable[[], Any], Callable[[], Any], int]]:
    """What is timed: its name, Auto under secure aggregation, its peer, and how often."""
    for records in (5_000, 100_000):
        data = make(10, records)
        peer = _named("sms")
        yield f"{records:,} x 10, beside probmetrics sms", _auto(_records(data)), lambda p=peer, d=data: p(d), 3
    rng = np.random.default_rng(0)
    odds = rng.normal(-1, 2, 1_000_000)
    score, label = 1 / (1 + np.exp(-odds)), (rng.random(len(odds)) < 1 / (1 + np.exp(-odds / 1.5))).astype(int)
    binary = fc.Records.of_scores(score, label)
    yield "1,000,000 x 2, beside scikit-learn isotonic", _auto(binary), lambda: isotonic(score, label), 3


def _records(data: Data) -> fc.Records:
    return fc.Records.of_logits(data.logits, data.labels)
