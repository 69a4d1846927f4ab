"""The reports of the gallery, from data that ships with the package or is drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import fedcalib as fc
from fedcalib.workflows import calibrate, compare, evaluate, monitor
from fedcalib.workflows.facts import About

DAYS = 366


def hospitals(records: int = 9000, seed: int = 0) -> pa.Table:
    """Four hospitals over the year 2024, a classifier that is too sure, and fewer events from September on."""
    rng = np.random.default_rng(seed)
    day = rng.integers(0, DAYS, records)
    odds = rng.normal(-1.2, 1.3, records)
    sex, age = rng.choice(["F", "M"], records), rng.choice(["18-44", "45-64", "65+"], records)
    truth = odds + 0.25 * (sex == "F") - 0.9 * (day >= 244)
    return pa.table(
        {
            "hospital": rng.choice(["Nord", "Süd", "Ost", "West"], records, p=[0.4, 0.3, 0.2, 0.1]),
            "day": (np.datetime64("2024-01-01") + day).astype("datetime64[D]"),
            "sex": sex,
            "age": age,
            "score": 1 / (1 + np.exp(-1.3 * odds)),
            "label": (rng.random(records) < 1 / (1 + np.exp(-truth))).astype(np.int64),
        }
    )


def _calibration() -> Any:
    columns: Any = {"site": "hospital", "label": "disease", "score": "risk"}
    return calibrate(fc.datasets.load_heart_disease(), fc.PlattScaling(), fc.SecAgg(), split_seed=0, **columns)


def _evaluation() -> Any:
    groups = {"sex": ["F", "M"], "age": ["18-44", "45-64", "65+"]}
    return evaluate(hospitals(), fc.Open(), groups=groups, site="hospital", split_seed=0)


def _monitoring() -> Any:
    return monitor(
        hospitals(),
        fc.DistributedDP(1.0),
        by="month",
        start="2024-01-01",
        until="2024-12-31",
        site="hospital",
        simulate=0,
    )


def _comparison() -> Any:
    methods = {"platt-scaling": fc.PlattScaling(), "fed-bin": fc.FedBin(), "isotonic-buckets": fc.IsotonicBuckets()}
    return compare(hospitals(3000), methods, fc.SecAgg(), repeats=2, simulate=0, site="hospital")


TISSUES = ("fat", "lymph", "stroma", "tumour")


def tissues(records: int = 4000, seed: int = 0) -> pa.Table:
    """Pictures of tissue from five laboratories, and a classifier that is too sure; fat is rare and easy to tell."""
    rng = np.random.default_rng(seed)
    drawn = rng.choice(4, records, p=[0.1, 0.2, 0.3, 0.4])
    logits = rng.normal(0, 1, (records, 4)) + np.array([4.5, 2.5, 2.0, 2.2])[drawn, None] * np.eye(4)[drawn]
    chance = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    truth = (rng.random((records, 1)) > chance.cumsum(axis=1)).sum(axis=1).clip(0, 3)
    stated = np.exp(1.8 * logits) / np.exp(1.8 * logits).sum(axis=1, keepdims=True)
    scores = {f"prob_{name}": stated[:, place] for place, name in enumerate(TISSUES)}
    return pa.table({"laboratory": np.arange(records) % 5, "tissue": np.array(TISSUES)[truth], **scores})


def _classes() -> Any:
    return evaluate(tissues(), fc.SecAgg(), site="laboratory", label="tissue", probs="prob_*", split_seed=0)


REPORTS: dict[str, tuple[Callable[[], Any], About]] = {
    "calibration": (_calibration, About("Heart disease risk (Cleveland)", "1981 to 1987")),
    "evaluation": (_evaluation, About("Sepsis risk 2.1", "2024", "Triage on admission")),
    "monitoring": (_monitoring, About("Sepsis risk 2.1", "2024", "Triage on admission")),
    "comparison": (_comparison, About("Sepsis risk 2.1", "2024")),
    "classes": (_classes, About("Tissue of four kinds, version 3", "2023")),
}
NAMES = tuple(REPORTS)


def write_all(folder: Path) -> dict[str, Path]:
    """Write each report into a folder of its own; return where each page is."""
    written = {}
    for name, (make, about) in REPORTS.items():
        files = make().save(folder / name, about=about)
        written[name] = Path(files.get("report") or files["html"])
    return written
