"""Calibrators as MLflow models: `to_mlflow` writes one, and MLflow loads it through `_load_pyfunc`.

A model is the calibrator's own JSON file. Nothing is pickled, and whoever serves it needs this package and NumPy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, TypeAlias, final

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.artifacts.saving import load
from fedcalib.errors import InputError, needs
from fedcalib.files import save_text
from fedcalib.types import Array, Floats

Fed: TypeAlias = Literal["probs", "logits"]
_CALIBRATOR: Final = "calibrator.json"
_SETTINGS: Final = "settings.json"


@final
@dataclass(frozen=True)
class ServedCalibrator:
    """A calibrator as MLflow serves it: `predict` takes a frame or an array and returns probabilities.

    Parameters
    ----------
    calibrator
        What is applied.
    takes
        "probs" or "logits": one column per class in order, or a single column for class 1.

    Examples
    --------
    >>> import fedcalib as fc
    >>> from fedcalib.export import ServedCalibrator
    >>> ServedCalibrator(fc.artifacts.Temperature(2.0)).predict([[0.1, 0.9]]).round(2)
    array([[0.25, 0.75]])
    """

    calibrator: Calibrator
    takes: Fed = "probs"

    def predict(self, model_input: Array, params: Mapping[str, Any] | None = None) -> Floats:
        """Calibrated probabilities of all classes, shape (n, classes)."""
        values = np.asarray(model_input, dtype=np.float64)
        column = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
        if self.takes == "probs":
            return self.calibrator.predict_proba(column)
        found = self.calibrator.from_logits(column)
        return np.stack([1 - found, found], axis=1) if found.ndim == 1 else found


def to_mlflow(calibrator: Calibrator, folder: Path | str, takes: Fed = "probs") -> Path:
    """Write a calibrator as an MLflow model of the kind pyfunc, which `mlflow.pyfunc.load_model` loads.

    Parameters
    ----------
    calibrator
        What is to be served.
    folder
        A folder that does not exist yet.
    takes
        What the model will be fed: "probs" or "logits".

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    MissingExtra
        If MLflow is not installed.
    InputError
        If the folder exists.
    """
    folder = Path(folder)
    if folder.exists():
        raise InputError(f"Expected a folder that does not exist yet for the model, found {folder}; name another.")
    with needs("export an MLflow model"):
        from mlflow import pyfunc
    from fedcalib import __version__

    with TemporaryDirectory() as place:
        data = Path(place) / "served"
        save_text(data / _CALIBRATOR, calibrator.dumps())
        save_text(data / _SETTINGS, json.dumps({"takes": takes}))
        needed = [f"fedcalib=={__version__}"]
        pyfunc.save_model(str(folder), loader_module=__name__, data_path=str(data), pip_requirements=needed)
    return folder


def _load_pyfunc(path: str) -> ServedCalibrator:
    """What MLflow calls to load a model."""
    found = Path(path)
    settings = json.loads((found / _SETTINGS).read_text(encoding="utf-8"))
    return ServedCalibrator(load(found / _CALIBRATOR), settings["takes"])
