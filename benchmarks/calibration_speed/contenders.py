"""Who is timed: a function that fits, and one that gives calibrated probabilities of fresh records."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

import numpy as np

import fedcalib as fc
from benchmarks.calibration_speed.data import Data
from fedcalib.types import Floats

Apply = Callable[[fc.Records], Floats]


@dataclass(frozen=True)
class Contender:
    """A library's way to do one task."""

    task: str
    name: str
    fit: Callable[[Data], Apply]
    times: int = 3
    largest: int = 100  # classes beyond which it takes too long to wait for
    disabled: str = ""  # processor features that numpy is to do without


def ours(method: fc.Method[Any], of_probs: bool = False) -> Callable[[Data], Apply]:
    """Run a method of this package on one client that holds everything, without protection."""

    def fit(data: Data) -> Apply:
        runtime = data.runtime_of_probs if of_probs else data.runtime
        calibrator = fc.run(method, runtime, fc.Open()).artifact
        return lambda records: np.asarray(calibrator.of(records))

    return fit


def netcal(name: str, module: str, **options: Any) -> Callable[[Data], Apply]:
    """Fit one of netcal's on probabilities."""

    def fit(data: Data) -> Apply:
        from importlib import import_module

        model = getattr(import_module(f"netcal.{module}"), name)(**options)
        with quiet():
            model.fit(data.probs, data.labels)

        def apply(records: fc.Records) -> Floats:
            with quiet():
                found = np.asarray(model.transform(np.asarray(records.probs)), dtype=np.float64)
            return found / found.sum(axis=1, keepdims=True)

        return apply

    return fit


def sklearn_temperature(data: Data) -> Apply:
    """scikit-learn's temperature scaling, which works inside CalibratedClassifierCV."""
    from sklearn.calibration import _TemperatureScaling

    model = _TemperatureScaling().fit(data.logits, data.labels)
    return lambda records: np.asarray(model.predict(records.logits))


def sklearn_matrix(data: Data) -> Apply:
    """Multinomial logistic regression on logits is matrix scaling."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1.0, max_iter=500, tol=1e-4)
    with quiet():
        model.fit(data.logits, data.labels)
    return lambda records: np.asarray(model.predict_proba(records.logits))


def torch_uncertainty(name: str, **options: Any) -> Callable[[Data], Apply]:
    """Fit one of torch-uncertainty's on logits."""

    def fit(data: Data) -> Apply:
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        from benchmarks.calibration_speed.torch_uncertainty import calibration

        torch.set_num_threads(1)
        asked = {"num_classes": data.classes} if name in ("VectorScaler", "MatrixScaler") else {}
        scaler = getattr(calibration(), name)(**asked, **options)
        pairs = TensorDataset(torch.tensor(data.logits, dtype=torch.float32), torch.tensor(data.labels))
        with quiet():
            scaler.fit(DataLoader(pairs, batch_size=len(pairs)), progress=False)

        def apply(records: fc.Records) -> Floats:
            with quiet(), torch.no_grad():
                found = scaler(torch.tensor(records.logits, dtype=torch.float32))
            return np.asarray(torch.softmax(found.double(), dim=1))

        return apply

    return fit


def probmetrics(name: str, **options: Any) -> Callable[[Data], Apply]:
    """Fit one of probmetrics' on probabilities."""

    def fit(data: Data) -> Apply:
        import torch
        from probmetrics import calibrators

        torch.set_num_threads(1)
        model = getattr(calibrators, name)(**options)
        with quiet():
            model.fit(data.probs, data.labels)

        def apply(records: fc.Records) -> Floats:
            with quiet():
                return np.asarray(model.predict_proba(np.asarray(records.probs)), dtype=np.float64)

        return apply

    return fit


@contextmanager
def quiet() -> Iterator[None]:
    """Let peers talk to nobody."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


NO_AVX512 = "X86_V4 AVX512_ICL AVX512_SPR"  # as numpy names them from 2.4 on
BY_ODDS = fc.FedBBQ(axis=fc.methods.EvenLogOdds(), normaliser=fc.methods.ByOdds())
DEFAULT_TEMPERATURE = fc.OneShotTemperature(points=9, reach=30.0, refinements=2)  # as Auto asks for one

ALL = (
    Contender("BBQ", "fedcalib FedBBQ on log-odds, by odds", ours(BY_ODDS, of_probs=True), times=5),
    Contender(
        "BBQ", "fedcalib FedBBQ on log-odds", ours(fc.FedBBQ(axis=fc.methods.EvenLogOdds()), of_probs=True), times=5
    ),
    Contender("BBQ", "fedcalib FedBBQ, as published", ours(fc.FedBBQ(), of_probs=True), times=5),
    Contender(
        "BBQ",
        "fedcalib temperature, then FedBBQ on log-odds, by odds",
        ours(fc.methods.Pipeline((DEFAULT_TEMPERATURE, BY_ODDS)), of_probs=True),
        times=5,
    ),
    Contender("BBQ", "torch-uncertainty BBQScaler", torch_uncertainty("BBQScaler"), times=1, largest=10),
    Contender("BBQ", "netcal BBQ", netcal("BBQ", "binning"), times=1, largest=10),
    Contender("histogram binning", "fedcalib FedBin", ours(fc.FedBin(15), of_probs=True), times=5),
    Contender("histogram binning", "netcal HistogramBinning", netcal("HistogramBinning", "binning", bins=15)),
    Contender(
        "temperature",
        "fedcalib OneShotTemperature, 9 points and two Newton steps",
        ours(DEFAULT_TEMPERATURE),
        times=5,
    ),
    Contender(
        "temperature",
        "fedcalib OneShotTemperature, 5 points and a Newton step",
        ours(fc.OneShotTemperature(points=5, reach=30.0, refinements=1)),
        times=5,
    ),
    Contender(
        "temperature",
        "fedcalib OneShotTemperature, 9 points and two Newton steps, without AVX-512",
        ours(DEFAULT_TEMPERATURE),
        times=5,
        disabled=NO_AVX512,
    ),
    Contender(
        "temperature",
        "fedcalib OneShotTemperature, 5 points and a Newton step, without AVX-512",
        ours(fc.OneShotTemperature(points=5, reach=30.0, refinements=1)),
        times=5,
        disabled=NO_AVX512,
    ),
    Contender("temperature", "fedcalib FedTemp, one round", ours(fc.FedTemp(rounds=1, clip=10.0, ridge=0.0))),
    Contender("temperature", "netcal TemperatureScaling", netcal("TemperatureScaling", "scaling")),
    Contender("temperature", "scikit-learn temperature", sklearn_temperature),
    Contender("temperature", "probmetrics TemperatureScaling", probmetrics("TemperatureScalingCalibrator")),
    Contender("temperature", "torch-uncertainty TemperatureScaler", torch_uncertainty("TemperatureScaler"), times=1),
    Contender("vector scaling", "fedcalib RidgeVector, 6 rounds", ours(fc.methods.RidgeVector(rounds=6))),
    Contender("vector scaling", "fedcalib FedVector, one round", ours(fc.FedVector(rounds=1, clip=100.0))),
    Contender("vector scaling", "netcal LogisticCalibration", netcal("LogisticCalibration", "scaling"), 1, 10),
    Contender("vector scaling", "torch-uncertainty VectorScaler", torch_uncertainty("VectorScaler"), times=1),
    Contender("matrix scaling", "fedcalib FedMatrix, one round", ours(fc.FedMatrix(rounds=1, clip=100.0)), 3, 10),
    Contender("matrix scaling", "scikit-learn LogisticRegression", sklearn_matrix, times=1, largest=10),
    Contender("matrix scaling", "torch-uncertainty MatrixScaler", torch_uncertainty("MatrixScaler"), 1, 10),
)
