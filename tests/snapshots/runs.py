"""Runs in Python: every method of the contract under every privacy model, and a few in other places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, final

import numpy as np

import fedcalib as fc
from fedcalib import wire
from fedcalib.errors import FedcalibError
from fedcalib.loop import Runtime
from fedcalib.methods.compose import FitAndMeasure
from tests.contract.subjects import METHODS, MODELS
from tests.remote.places import remote
from tests.snapshots import data
from tests.snapshots.condensing import condensed, parted, transcript

MORE: list[fc.Method] = [  # methods that the contract's data does not serve
    fc.CompareModels(buckets=6),
    fc.methods.DomainTemperatures(3),
    FitAndMeasure(fc.FedBin(bins=4)),
]
ELSEWHERE: list[fc.Method] = [
    fc.FedBin(bins=4),
    fc.OneShotTemperature(points=5),
    fc.FederatedMetrics(bins=3),
    fc.PlattScaling(cells=4),
    fc.QuantileBinning(tree=fc.methods.ScoreTree(4, 2)),
]


def numbered(subjects: Iterable[object]) -> list[tuple[str, Any]]:
    """Name subjects by their types, and by a number from the second of a type on."""
    seen: Counter[str] = Counter()
    found = []
    for subject in subjects:
        name = type(subject).__name__
        seen[name] += 1
        found.append((name if seen[name] == 1 else f"{name}-{seen[name]}", subject))
    return found


@final
@dataclass(frozen=True)
class Run:
    """One method under all models, on two classes and on four."""

    method: fc.Method
    place: Callable[[fc.Federation], Runtime] = fc.InProcess
    participation: fc.cohort.Participation | None = None
    needs: tuple[str, ...] = ()
    fragile: bool = False

    def record(self) -> tuple[Any, dict[str, str]]:
        """Run, and give figures and words."""
        found = {
            f"{classes} classes": {name: self._outcome(classes, privacy) for name, privacy in numbered(MODELS)}
            for classes in (2, 4)
        }
        figures, words = parted({"method": wire.encode(self.method), "runs": found})
        return condensed(figures), words

    def _outcome(self, classes: int, privacy: fc.privacy.Privacy) -> dict[str, Any]:
        with TemporaryDirectory() as folder:
            try:
                result, again = (self._run(classes, privacy, Path(folder) / "run.jsonl") for _ in range(2))
            except FedcalibError as refusal:
                return {"refused": type(refusal).__name__}
        found = {
            "spending": asdict(result.privacy),
            "bytes": result.bytes_per_client,
            "replayed": wire.dumps(again.artifact) == wire.dumps(result.artifact),
        }
        if privacy.private and self.place is not fc.InProcess:  # sites draw noise of their own, by no seed
            return found
        told = {"artifact": wire.encode(result.artifact), "transcript": transcript(result.transcript.lines)}
        return {**found, **told, **_calibrated(result.artifact, classes)}

    def _run(self, classes: int, privacy: fc.privacy.Privacy, file: Path) -> fc.Result[Any]:
        """Run; where the file exists, from what it recorded."""
        runtime = self.place(_federation(classes))
        return fc.run(
            self.method, runtime, privacy, participation=self.participation, randomness=fc.Simulated(7), transcript=file
        )


def _calibrated(artifact: object, classes: int) -> dict[str, Any]:
    """What a calibrator makes of some probabilities."""
    if not isinstance(artifact, fc.Calibrator):
        return {}
    probs = np.random.default_rng(0).dirichlet(np.ones(classes), 20)
    return {"calibrated": np.asarray(artifact(probs)).reshape(-1).tolist()}


@cache
def _federation(classes: int) -> fc.Federation:
    return data.federation(classes)


def cases() -> dict[str, Run]:
    """All runs, by the names of their files."""
    known = {f"run-{name}": Run(method) for name, method in numbered([*METHODS, *MORE])}
    behind = {f"remote-{name}": Run(method, remote) for name, method in numbered(ELSEWHERE)}
    drawn = {
        "sampled-FedBin": Run(fc.FedBin(bins=4, rounds=2), participation=fc.Poisson(0.7)),
        "disjoint-FedBin": Run(fc.FedBin(bins=4, rounds=2), participation=fc.Disjoint(2)),
        "sampled-FedTemp": Run(fc.FedTemp(rounds=2), participation=fc.Poisson(0.7)),
    }
    return {**known, **behind, **drawn}
