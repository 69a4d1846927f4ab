"""The seven kinds of corruption that the stored logits lack, on CIFAR-10 pictures and a network trained here.

Run with `python -m benchmarks.domain_shift.pictures --cifar10 DIRECTORY`, after benchmarks.base_models.cifar, whose CNN
of even clients is shown pictures that it was not trained on. Writes pictures.csv, one line a setting and published
method, and pictures_open.csv, what each criterion reaches without privacy. A rerun goes on where it stopped.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import numpy as np

import fedcalib as fc
from benchmarks.base_models.run import HERE as MODELS
from benchmarks.base_models.run import parts
from benchmarks.domain_shift.corruptions import CORRUPTIONS
from benchmarks.domain_shift.data import SEVERITIES
from benchmarks.domain_shift.pool import Pool, Trials
from benchmarks.domain_shift.run import CEILING, COLUMNS, HERE, PUBLISHED, SETTINGS, WIDER, Setting
from benchmarks.domain_shift.without_privacy import COLUMNS as OPEN_COLUMNS
from benchmarks.domain_shift.without_privacy import errors
from benchmarks.progress import Sheet
from fedcalib import datasets
from fedcalib.types import Array

TRIALS = 200
METHODS = {**PUBLISHED, **WIDER, **CEILING}  # ours have results on ten other kinds, in results.csv
NETWORK = MODELS / "out" / "cifar-1-iid-0.json"


def spoiled(held: fc.Records, kind: str, severity: int) -> Array:
    """The held-out pictures under one corruption, as bytes."""
    pictures = held.extra["inputs"]
    if kind == "clean":
        return pictures
    rng = np.random.default_rng(crc32(f"{kind} {severity}".encode()))
    found = [CORRUPTIONS[kind](batch / 255.0, severity, rng) for batch in np.array_split(pictures, 12)]
    return np.rint(255 * np.concatenate(found)).astype(np.uint8)


def pool(held: fc.Records, kind: str, severity: int) -> Pool:
    """The network's logits of corrupted pictures; computed once."""
    path = HERE / "out" / f"{kind}-{severity}.npy"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        model = fc.load(NETWORK)
        shown = replace(held, extra={**held.extra, "inputs": spoiled(held, kind, severity)})
        np.save(path, model.over(shown).logits.astype(np.float32))
    return Pool(np.load(path), held.labels)


def sweep(sheet: Sheet, shown: Pool, kind: str, severity: int, setting: Setting) -> None:
    """Every published method on one setting, on the same splits."""
    where = (kind, severity, setting.panel, setting.sources, setting.samples, setting.epsilon)
    if all(sheet.has(*where, name) for name in METHODS):
        return
    seed = crc32(f"{kind} {severity} {setting}".encode())
    drawn = Trials(shown, setting.sources, setting.samples, TRIALS, np.random.default_rng(seed))
    for name, method in METHODS.items():
        ece, brier = method.measures(drawn, setting.epsilon)
        if not sheet.has(*where, name):
            cells = (f"{ece.mean():.6f}", f"{ece.std(ddof=1):.6f}", f"{brier.mean():.6f}")
            sheet.add(dict(zip(COLUMNS, (*where, name, *cells), strict=True)))


def criteria(sheet: Sheet, shown: Pool, kind: str, severity: int) -> None:
    """What each criterion reaches without privacy."""
    if not sheet.has(severity, kind):
        found = errors(shown, TRIALS)
        cells = (f"{found[column].mean():.6f}" for column in OPEN_COLUMNS[4:])
        values = (severity, kind, TRIALS, f"{shown.right.mean():.4f}", *cells)
        sheet.add(dict(zip(OPEN_COLUMNS, values, strict=True)))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cifar10", required=True, type=Path, help="the directory of CIFAR-10")
    told = options.parse_args()
    import torch

    torch.set_num_threads(1)
    _, test, _ = parts(datasets.cifar10(told.cifar10).records(), "iid", seed=0)
    private = Sheet(HERE / "pictures.csv", COLUMNS[:7])
    without = Sheet(HERE / "pictures_open.csv", ("severity", "corruption"))
    criteria(without, pool(test.records, "clean", 0), "clean", 0)
    for severity, kind in ((severity, kind) for severity in reversed(SEVERITIES) for kind in CORRUPTIONS):
        shown = pool(test.records, kind, severity)
        criteria(without, shown, kind, severity)
        for setting in SETTINGS:
            sweep(private, shown, kind, severity, setting)


if __name__ == "__main__":
    main()
