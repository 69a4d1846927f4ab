"""Three real data sets, scored: flights as they come, census and New York flights by models of our own.

Census is scored by LightGBM and by XGBoost, New York flights by logistic regression, each model trained on one half
and scoring the other, both ways round, so that no record is scored by a model that has seen it. Scores are kept in
a cache folder, outside of the repository.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
CACHE = Path(os.environ.get("FEDCALIB_BENCH_CACHE", Path.home() / ".cache" / "fedcalib-bench"))


def flights() -> tuple[np.ndarray, np.ndarray]:
    """1.52 million flights with the scores of a gradient boosting model of the spring before."""
    frame = pd.read_parquet(SHARED / "flights_scored" / "flights_scored.parquet", columns=["score", "label"])
    return frame["score"].to_numpy(np.float64), frame["label"].to_numpy(np.int64)


def census_lightgbm() -> tuple[np.ndarray, np.ndarray]:
    """299 thousand people, scored by LightGBM."""
    from lightgbm import LGBMClassifier

    return _crossed("census_lightgbm", _census, lambda: LGBMClassifier(n_estimators=120, verbose=-1, n_jobs=1))


def census_xgboost() -> tuple[np.ndarray, np.ndarray]:
    """The same people, scored by XGBoost."""
    from xgboost import XGBClassifier

    return _crossed("census_xgboost", _census, lambda: XGBClassifier(n_estimators=120, max_depth=6, n_jobs=1))


def nycflights_logit() -> tuple[np.ndarray, np.ndarray]:
    """327 thousand flights from New York, scored by logistic regression."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return _crossed(
        "nycflights_logit", _nycflights, lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    )


SETS: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
    "flights": flights,
    "census_lightgbm": census_lightgbm,
    "census_xgboost": census_xgboost,
    "nycflights_logit": nycflights_logit,
}


def _census() -> tuple[np.ndarray, np.ndarray]:
    frame = pd.read_parquet(SHARED / "census_income_kdd" / "census_income.parquet")
    features = frame.drop(columns=["label", "split", "instance_weight"])
    coded = features.apply(lambda column: column if column.dtype.kind in "if" else column.astype("category").cat.codes)
    return coded.to_numpy(np.float32), frame["label"].to_numpy(np.int64)


def _nycflights() -> tuple[np.ndarray, np.ndarray]:
    frame = pd.read_parquet(SHARED / "nycflights13" / "nycflights13.parquet")
    frame = frame[frame["label_late15"] >= 0]
    hour = frame["sched_dep_time"] // 100
    parts = [pd.get_dummies(frame[name].astype(str), prefix=name) for name in ("carrier", "origin", "month")]
    parts += [pd.get_dummies(hour.astype(str), prefix="hour"), frame[["distance", "day"]]]
    return pd.concat(parts, axis=1).to_numpy(np.float32), frame["label_late15"].to_numpy(np.int64)


def _crossed(name: str, load: Callable[[], tuple[np.ndarray, np.ndarray]], model: Callable[[], Any]) -> Any:
    kept = CACHE / f"{name}.npz"
    if not kept.exists():
        features, labels = load()
        half = np.random.default_rng(0).random(len(labels)) < 0.5
        scores = np.empty(len(labels))
        for part in (half, ~half):
            scores[part] = model().fit(features[~part], labels[~part]).predict_proba(features[part])[:, 1]
        CACHE.mkdir(parents=True, exist_ok=True)
        np.savez(kept, scores=scores, labels=labels)
    held = np.load(kept)
    return held["scores"], held["labels"]
