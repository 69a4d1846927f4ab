"""Scores of classifiers: synthetic families, on which constants were chosen, and real sets, on which none was.

Real sets are read from `../shared/data`. A classifier is trained on a third of a set once, its scores of the other
records are kept in a temporary folder, and runs differ in how these are divided into records to fit and to test.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import fedcalib as fc
from fedcalib.numeric import log_odds, sigmoid
from fedcalib.types import Floats, Ints

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
KEPT = Path(tempfile.gettempdir()) / "fedcalib-auto"
MOST = 60_000  # records of a set that are fitted and tested
CLASSIFIERS = ("logistic", "trees", "bayes")
SETS = ("flights", *(f"{name}-{kind}" for name in ("adult", "census", "heart", "nycflights") for kind in CLASSIFIERS))
NETWORKS = ("resnet20", "resnet32", "resnet44", "resnet56", "lenet5", "wideresnet164", "vgg16")
HUNDRED = ("lenet5-100", "wideresnet164-100", "densenetbc100-100")


@dataclass(frozen=True, eq=False)
class Scored:
    """Scores, labels and sites of records that the classifier was not trained on."""

    score: Floats
    label: Ints
    site: Ints

    def halves(self, seed: int, most: int = MOST) -> tuple[fc.Federation, fc.Records]:
        """Records to fit, at their sites, and records to test."""
        order = np.random.default_rng(seed).permutation(len(self.label))[: 2 * most]
        fit, test = np.array_split(order, 2)
        return self.federation(fit), fc.Records.of_scores(self.score[test], self.label[test])

    def federation(self, rows: Ints) -> fc.Federation:
        rows = rows[np.argsort(self.site[rows], kind="stable")]
        sizes = np.unique(self.site[rows], return_counts=True)[1]
        records = fc.Records.of_scores(self.score[rows], self.label[rows])
        return fc.Federation(records, np.concatenate([[0], np.cumsum(sizes)]))


def dealt(federation: fc.Federation, clients: int, seed: int) -> fc.Federation:
    """The same records with so many clients, most of them from one site: they are dealt in the sites' order."""
    records = federation.records
    bounds = np.sort(np.random.default_rng(seed).integers(0, len(records) + 1, clients - 1))
    return fc.Federation(records, np.concatenate([[0], bounds, [len(records)]]))


@lru_cache(maxsize=1)
def real(name: str) -> Scored:
    """One of `SETS`, from the temporary folder if it was made before."""
    path = KEPT / f"{name}.npz"
    if not path.exists():
        found = _flights() if name == "flights" else _trained(*name.split("-"))
        KEPT.mkdir(exist_ok=True)
        np.savez(path, score=found.score, label=found.label, site=found.site)
    with np.load(path) as stored:
        return Scored(stored["score"], stored["label"], stored["site"])


def _flights() -> Scored:
    from pyarrow import parquet

    table = parquet.read_table(SHARED / "flights_scored" / "flights_scored.parquet")
    origin = table["origin"].combine_chunks().indices.to_numpy()
    return Scored(table["score"].to_numpy().astype(float), table["label"].to_numpy().astype(int), origin.astype(int))


def _trained(name: str, kind: str) -> Scored:
    """Train on a third, at random, of the set (of 20,000 at most); score the rest."""
    features, label, site = {"adult": _adult, "census": _census, "heart": _heart, "nycflights": _nycflights}[name]()
    order = np.random.default_rng(0).permutation(len(label))
    train, rest = np.split(order, [min(len(order) // 3, 20_000)])
    model = _classifier(kind).fit(features[train], label[train])
    return Scored(model.predict_proba(features[rest])[:, 1].astype(float), label[rest], site[rest])


def _classifier(kind: str) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if kind == "logistic":
        return make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    return HistGradientBoostingClassifier(random_state=0) if kind == "trees" else GaussianNB()


def _table(frame: Any, label: str, site: str, dropped: tuple[str, ...] = ()) -> tuple[Floats, Ints, Ints]:
    import pandas as pd

    features = frame.drop(columns=[label, *dropped])
    texts = [name for name in features if not pd.api.types.is_numeric_dtype(features[name])]
    coded = pd.get_dummies(features, columns=texts, dtype=float)
    coded = coded.fillna(coded.median())
    return coded.to_numpy(float), frame[label].to_numpy().astype(int), pd.factorize(frame[site])[0].astype(int)


def _adult() -> tuple[Floats, Ints, Ints]:
    import pandas as pd

    return _table(pd.read_parquet(SHARED / "adult" / "adult.parquet"), "label", "occupation", ("split", "fnlwgt"))


def _census() -> tuple[Floats, Ints, Ints]:
    import pandas as pd

    frame = pd.read_parquet(SHARED / "census_income_kdd" / "census_income.parquet")
    frame = frame.sample(140_000, random_state=0).reset_index(drop=True)
    return _table(frame, "label", "major_industry", ("split", "instance_weight"))


def _heart() -> tuple[Floats, Ints, Ints]:
    import pandas as pd

    return _table(pd.read_csv(SHARED / "heart_disease_4sites" / "heart_disease.csv"), "label", "site", ("num",))


def _nycflights() -> tuple[Floats, Ints, Ints]:
    import pandas as pd

    frame = pd.read_parquet(SHARED / "nycflights13" / "nycflights13.parquet")
    frame = frame[frame.label_late15 >= 0].sample(140_000, random_state=0).reset_index(drop=True)
    return _table(frame, "label_late15", "carrier", ("dep_delay", "arr_delay", "cancelled", "dest"))


Shape = Callable[[Floats], Floats]  # from true log-odds to those that are given

SHAPES: dict[str, Shape] = {
    "calibrated": lambda z: z,
    "over-confident": lambda z: 2 * z,
    "shifted": lambda z: z + 0.7,
    "lopsided": lambda z: np.where(z > 0, 2.5 * z, 0.8 * z) - 0.3,
    "ten values": lambda z: log_odds((np.floor(sigmoid(3 * z) * 10).clip(0, 9) + 0.5) / 10),
    "ends": lambda z: np.where(np.abs(z) > 2.5, np.sign(z) * 40.0, 1.3 * z),
    "waved": lambda z: z + 0.8 * np.sin(1.5 * z),
    "extreme": lambda z: 10 * z + 3,
    "very over-confident": lambda z: 4 * z,
}


def synthetic(shape: str, records: int, seed: int) -> Scored:
    """A family of scores whose true probabilities are known, at twenty sites."""
    rng = np.random.default_rng(seed)
    true = rng.normal(-0.8, 1.6, records)
    label = (rng.random(records) < sigmoid(true)).astype(int)
    given = SHAPES[shape](true)
    score = np.where(np.abs(given) > 36, (given > 0).astype(float), sigmoid(given))
    return Scored(score, label, rng.integers(20, size=records))


@lru_cache(maxsize=1)
def network(name: str) -> fc.Records:
    """The test records of a CIFAR-10 network, as logits, or of a CIFAR-100 one (`HUNDRED`), as log-probabilities."""
    if name in HUNDRED:
        with np.load(SHARED / "cifar100_probs" / "cifar100_logp.npz") as stored:
            key = next(key for key in stored if key.startswith(name.removesuffix("-100")))
            return fc.Records.of_logits(stored[key].astype(float), stored["y"].astype(int))
    with np.load(SHARED / "cifar10_logits" / "cifar10_logits.npz") as stored:
        key = next(key for key in stored if key.startswith(name))
        return fc.Records.of_logits(stored[key].astype(float), stored["y"].astype(int))
