"""The seven kinds of corruption that the stored logits lack, on CIFAR-10 pictures and a network trained here.

Run with `python -m benchmarks.domain_shift.pictures --cifar10 DIRECTORY`. A CNN is trained on four fifths of the
pictures until it is too sure of itself, as published networks are; a tenth is corrupted and shown to it. Writes
pictures.csv, one line a setting and published method, pictures_open.csv, what each criterion reaches without privacy,
and pictures_clipping.csv, where the loss is cut under snow. A rerun goes on where it stopped.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import numpy as np

import fedcalib as fc
from benchmarks.base_models.run import parts
from benchmarks.domain_shift import contenders as c
from benchmarks.domain_shift.clipping import CUTS
from benchmarks.domain_shift.corruptions import CORRUPTIONS
from benchmarks.domain_shift.data import SEVERITIES
from benchmarks.domain_shift.pool import Pool, Trials
from benchmarks.domain_shift.run import CEILING, COLUMNS, HERE, PUBLISHED, WIDER, Setting
from benchmarks.domain_shift.without_privacy import COLUMNS as OPEN_COLUMNS
from benchmarks.domain_shift.without_privacy import errors
from benchmarks.progress import Sheet
from fedcalib import datasets
from fedcalib.artifacts.networks import Trained
from fedcalib.training import Adam, ConvNet, LocalTraining
from fedcalib.types import Array

TRIALS = 100
ASKED = (  # some of the sweep's settings, with both ends of each panel
    *(Setting("sources", sources, 10, 1.0) for sources in (10, 50, 100, 150, 200, 250)),
    *(Setting("samples", 50, samples, 1.0) for samples in (5, 20, 35, 50)),
    *(Setting("epsilon", 50, 30, epsilon) for epsilon in (0.2, 0.6, 1.0, 1.4, 2.0)),
)
METHODS = {**PUBLISHED, **WIDER, **CEILING}  # ours have results on ten other kinds, in results.csv
EPOCHS = 8
CUT_COLUMNS = ("corruption", "severity", "method", "ece", "ece_sd")


def trained(records: fc.Records) -> Trained:
    """A CNN after so many epochs, each kept so that a rerun goes on."""
    network, kept = ConvNet(32, 3, width=32), HERE / "out"
    kept.mkdir(exist_ok=True)
    paths = [kept / f"epoch-{epoch}.npy" for epoch in range(1, EPOCHS + 1)]
    weights = network.start(0)
    for epoch, path in enumerate(paths):
        if not path.exists():
            rng = np.random.default_rng(epoch)
            training = LocalTraining(1, 64, Adam(0.001))
            np.save(path, training.train(network, weights, records.extra["inputs"], records.labels, rng).weights)
        weights = np.load(path)
    return Trained(network, weights)


def spoiled(held: fc.Records, kind: str, severity: int) -> Array:
    """The held-out pictures under one corruption, as bytes."""
    pictures = held.extra["inputs"]
    if kind == "clean":
        return pictures
    rng = np.random.default_rng(crc32(f"{kind} {severity}".encode()))
    found = [CORRUPTIONS[kind](batch / 255.0, severity, rng) for batch in np.array_split(pictures, 12)]
    return np.rint(255 * np.concatenate(found)).astype(np.uint8)


def pool(model: Trained, held: fc.Records, kind: str, severity: int) -> Pool:
    """The network's logits of corrupted pictures; computed once."""
    path = HERE / "out" / f"{kind}-{severity}.npy"
    if not path.exists():
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


def cuts(sheet: Sheet, shown: Pool, kind: str, severity: int) -> None:
    """Figure 52: where the loss of a record is cut, 50 sources of 30 samples, epsilon 1."""
    methods: dict[str, c.Contender] = {f"NLL-T cut at {cut:g}": c.NLLTGolden(worst=cut) for cut in CUTS}
    drawn = Trials(shown, 50, 30, TRIALS, np.random.default_rng(52))
    for name, method in {**methods, "Acc-T": c.AccTGolden()}.items():
        ece, _ = method.measures(drawn, 1.0)
        if not sheet.has(kind, severity, name):
            cells = (f"{ece.mean():.6f}", f"{ece.std(ddof=1):.6f}")
            sheet.add(dict(zip(CUT_COLUMNS, (kind, severity, name, *cells), strict=True)))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cifar10", required=True, type=Path, help="the directory of CIFAR-10")
    told = options.parse_args()
    import torch

    torch.set_num_threads(1)
    fit, test, _ = parts(datasets.cifar10(told.cifar10).records(), "iid", seed=0)
    model, held = trained(fit.records), test.records
    private = Sheet(HERE / "pictures.csv", COLUMNS[:7])
    without = Sheet(HERE / "pictures_open.csv", ("severity", "corruption"))
    criteria(without, pool(model, held, "clean", 0), "clean", 0)
    for severity, kind in ((severity, kind) for severity in reversed(SEVERITIES) for kind in CORRUPTIONS):
        shown = pool(model, held, kind, severity)
        criteria(without, shown, kind, severity)
        for setting in ASKED:
            sweep(private, shown, kind, severity, setting)
        if kind == "snow":  # the published figure's
            cuts(Sheet(HERE / "pictures_clipping.csv", CUT_COLUMNS[:3]), shown, kind, severity)


if __name__ == "__main__":
    main()
