"""A calibrator that MLflow serves returns what the calibrator itself returns."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import fedcalib as fc
from fedcalib.errors import InputError, MissingExtra
from fedcalib.export import ServedCalibrator, to_mlflow
from fedcalib.export.served import _load_pyfunc
from fedcalib.files import save_text

CALIBRATORS = {
    "temperature": (fc.artifacts.Temperature(1.7), 3),
    "platt": (fc.artifacts.Platt(0.8, -0.2), 2),
    "bins": (fc.run(fc.FedBin(), fc.Federation.simulated(classes=4), fc.SecAgg()).artifact, 4),
}


@pytest.mark.parametrize("name", CALIBRATORS)
def test_predict_proba_has_a_column_per_class(name: str) -> None:
    calibrator, classes = CALIBRATORS[name]
    probs = np.random.default_rng(0).dirichlet(np.ones(classes), 50)
    assert np.array_equal(calibrator.predict_proba(probs), calibrator(probs))
    if classes == 2:
        found = calibrator.predict_proba(probs[:, 1])
        assert found.shape == (50, 2)
        assert np.array_equal(found[:, 1], calibrator(probs[:, 1]))


@pytest.mark.parametrize("name", CALIBRATORS)
def test_what_is_served_equals_the_calibrator(name: str, tmp_path: Path) -> None:
    """The loader that MLflow calls, without MLflow."""
    calibrator, classes = CALIBRATORS[name]
    logits = np.random.default_rng(1).normal(size=(200, classes))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    save_text(tmp_path / "calibrator.json", calibrator.dumps())
    for takes, fed, expected in (
        ("probs", probs, calibrator(probs)),
        ("logits", logits, calibrator.from_logits(logits)),
    ):
        save_text(tmp_path / "settings.json", json.dumps({"takes": takes}))
        assert np.array_equal(_load_pyfunc(str(tmp_path)).predict(fed), expected)
    if classes == 2:
        column = ServedCalibrator(calibrator).predict(probs[:, 1:])
        assert np.allclose(column[:, 1], calibrator(probs[:, 1]), rtol=0, atol=1e-15)


@pytest.mark.filterwarnings("ignore:.*type hint is inferred as AnyType")  # of MLflow's own classes
@pytest.mark.parametrize("name", CALIBRATORS)
def test_mlflow_loads_and_serves_it(name: str, tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="MLflow is not installed: pip install 'fedcalib[mlflow]'")
    import pandas as pd
    from mlflow import pyfunc

    calibrator, classes = CALIBRATORS[name]
    folder = to_mlflow(calibrator, tmp_path / "model")
    probs = np.random.default_rng(2).dirichlet(np.ones(classes), 100)
    found = pyfunc.load_model(str(folder)).predict(pd.DataFrame(probs))
    assert np.array_equal(found, calibrator.predict_proba(probs))
    assert not [path for path in folder.rglob("*") if path.suffix in (".pkl", ".pickle")]


def test_a_folder_that_exists_is_kept(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist yet"):
        to_mlflow(CALIBRATORS["platt"][0], tmp_path)


@pytest.mark.skipif(find_spec("mlflow") is not None, reason="MLflow is installed")
def test_without_mlflow_the_command_to_install_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingExtra, match=r"pip install 'fedcalib\[mlflow\]'"):
        to_mlflow(CALIBRATORS["platt"][0], tmp_path / "model")
