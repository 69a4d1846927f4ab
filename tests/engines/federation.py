"""Three sites for any engine: their files, and the work that a server does with each transport."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from scipy.stats import ks_2samp

import fedcalib as fc
from fedcalib import registry, wire
from fedcalib.deploy import certificates
from fedcalib.deploy.engines import write_settings
from fedcalib.errors import InputError, RefusedError
from fedcalib.loop import Runtime, Step, Total
from fedcalib.remote.journal import DiskJournal
from fedcalib.remote.runtime import Remote
from fedcalib.remote.site import read_directory
from fedcalib.remote.sites import Transport
from fedcalib.types import Floats
from tests.contract.subjects import METHODS

TRAINED = {"FedAvg", "FedCal", "FLSWAG"}  # sites draw batches, each for itself
CUT_PER_SITE = {"RidgeVector", "RidgeOPVector"}  # their curvature is cut to the grid once per sum, so once per site
GROUPS = ("sex", "domain")
FURTHER = (  # methods about columns that a site states beside scores and labels
    fc.methods.FitAndMeasure(fc.PlattScaling()),
    fc.CompareModels("rival"),
    fc.methods.DomainTemperatures(domains=2),
    fc.methods.GroupedMetrics("sex", ("F", "M")),
)
CLASSES = (2, 4)
NAMES = ("north", "south", "west")
POLICY = """
privacy_models = ["DistributedDP", "SourceLaplace", "SecAgg"]
epsilon_a_query = 1.0
epsilon_a_run = 1.0
exact_runs_per_year = 1000
fewest_records = 0
most_work = 1000000000000
"""
LAW = fc.FedBin(bins=1000)  # a query with two thousand cells, each with noise of its own
EPSILON = 0.5


def write_sites(folder: Path, classes: int = 2) -> Path:
    """Keys, records, policies and settings of three sites; returns the folder with one folder per site."""
    certificates.make(folder / "keys", NAMES, ["localhost"])
    for seed, name in enumerate(NAMES):
        write_records(folder / f"{name}.csv", seed, classes)
        (folder / f"{name}.toml").write_text(POLICY)
        own = folder / "keys" / name
        places = {
            "data-path": folder / f"{name}.csv",
            "identity": own / "identity.json",
            "directory": own / "directory.json",
            "policy": folder / f"{name}.toml",
            "state": folder / "state" / name,
        }
        columns = {"groups": ",".join(GROUPS), "rival": "rival"}
        write_settings(folder / "sites" / name, columns | {key: str(path) for key, path in places.items()})
    return folder / "sites"


def write_records(path: Path, seed: int, classes: int) -> None:
    records = fc.Federation.simulated(classes=classes, clients=1, records=300, seed=seed).records
    rows = zip(records.given.tolist(), records.labels, strict=True)
    drawn = np.random.default_rng(seed)
    lines = [
        f"{','.join(map(repr, row))},{label},{drawn.random():.3f},{drawn.choice(['F', 'M'])},{drawn.integers(3)}"
        for row, label in rows
    ]
    head = ",".join([*(f"logit_{index}" for index in range(classes)), "label", "rival", *GROUPS])
    path.write_text(f"{head}\n" + "\n".join(lines) + "\n")


def pooled(folder: Path) -> fc.Federation:
    return fc.read([str(folder / f"{name}.csv") for name in NAMES], rival="rival", groups=GROUPS)


def in_process(folder: Path) -> fc.InProcess:
    return fc.InProcess(pooled(folder))


@dataclass(frozen=True)
class SiteBySite(Runtime):
    """Sites in this process, each of which sums its own records; the in-process runtime sums those of all at once."""

    federation: fc.Federation

    @property
    def schema(self) -> fc.Schema:
        return self.federation.schema

    def total(self, step: Step) -> Total:
        shares = [
            step.mechanism.gather(step.query, self.federation.subset([number]), step.randomness)
            for number in range(len(self.federation))
        ]
        return Total(np.sum(shares, axis=0), len(shares))


@cache
def methods(classes: int) -> tuple[fc.Method, ...]:
    """Every registered method that sites serve under secure aggregation, one per kind; with more classes the rest."""
    found: dict[str, fc.Method] = {}
    before = {type(one).__name__ for one in methods(2)} if classes > 2 else set()
    for method in [*METHODS, *FURTHER]:
        kind = type(method).__name__
        if kind in before | found.keys():
            continue
        try:
            fc.loop.Agreement.of(method, fc.SecAgg(), fc.Everyone(), fc.Schema(classes, len(NAMES)))
        except (InputError, RefusedError):
            continue
        found[kind] = method
    return tuple(found.values())


def answers(runtime: Runtime, classes: int) -> dict[str, str]:
    """What every method returns, as text; where it fails, the kind of error."""
    found = {}
    for method in methods(classes):
        try:
            artifact = fc.run(method, runtime, fc.SecAgg()).artifact
            found[type(method).__name__] = wire.dumps(artifact)
        except fc.errors.FedcalibError as error:
            found[type(method).__name__] = type(error).__name__ + str(error)[:300]
    return found


def check_answers(found: dict[str, str], folder: Path, classes: int) -> None:
    """The same answers as in process, to the last bit; where sites draw numbers to train, the same kind of answer."""
    once, apart = answers(in_process(folder), classes), answers(SiteBySite(pooled(folder)), classes)
    assert found.keys() == once.keys()
    for name, text in found.items():
        if name in TRAINED:
            assert wire.parse(text)["type"] == wire.parse(once[name])["type"], name
        else:
            assert text == apart[name], name
            assert text == once[name] or name in CUT_PER_SITE, name


def value(result: fc.Result) -> Floats:
    """The last answer of a run, as the server read it."""
    return np.asarray(wire.decode(result.transcript.lines[-1]["value"], registry.lookup))


def noise(runtime: Runtime) -> list[float]:
    """What a run under distributed noise adds to each cell."""
    exact, private = (fc.run(LAW, runtime, model) for model in (fc.SecAgg(), fc.DistributedDP(epsilon=EPSILON)))
    return (value(private) - value(exact)).tolist()


def same_law(one: Floats, other: Floats) -> float:
    """A p-value: of the numbers, and of their size, in which a wrong scale is seen best."""
    return min(ks_2samp(one, other).pvalue, ks_2samp(np.abs(one), np.abs(other)).pvalue)


def check_law(found: list[float], folder: Path) -> None:
    """The noise has the law of the in-process one; that of half as much epsilon again would be noticed."""
    exact = value(fc.run(LAW, in_process(folder), fc.SecAgg()))

    def simulated(epsilon: float) -> Floats:
        runs = [
            fc.run(LAW, in_process(folder), fc.DistributedDP(epsilon=epsilon), randomness=fc.Simulated(seed))
            for seed in range(3)
        ]
        return np.concatenate([value(run) - exact for run in runs])

    added = np.asarray(found)
    assert len(added) >= 2000
    assert np.array_equal(added, np.round(added))
    assert same_law(added, simulated(EPSILON)) > 1e-6
    assert same_law(added, simulated(EPSILON * 1.5)) < 1e-6


def work(transport: Transport, folder: Path, classes: int = 2) -> None:
    """Everything that the tests look at, over one transport."""
    remote = Remote(transport, read_directory(folder / "keys" / "directory.json"), sites=len(NAMES), timeout=60)
    found: dict[str, object] = {"answers": answers(remote, classes)}
    if classes == 2:
        found["noise"] = noise(remote)
        found["refused"] = [_refused(remote, method, model) for method, model in REFUSED]
    (folder / "found.json").write_text(json.dumps(found))


REFUSED = (
    (fc.FedBin(bins=7), fc.DistributedDP(epsilon=5.0)),
    (fc.FedBin(bins=7), fc.LocalDP(epsilon=0.5)),
    (fc.FedBin(bins=7), fc.Open()),
)
WHY = ("allows a smaller epsilon only", *("does not allow this privacy model here",) * 2)


def _refused(remote: Remote, method: fc.Method, model: fc.privacy.Privacy) -> str:
    try:
        fc.run(method, remote, model)
    except fc.errors.FedcalibError as error:
        return str(error)
    return ""


def check_work(folder: Path, classes: int = 2) -> None:
    """What `work` has found: answers, the law of the noise, refusals, and ledgers that say what was answered."""
    found = json.loads((folder / "found.json").read_text())
    check_answers(found["answers"], folder, classes)
    if classes == 2:
        check_law(found["noise"], folder)
        for text, why in zip(found["refused"], WHY, strict=True):
            assert all(f"Site '{name}' {why}" in text for name in NAMES), text
    for name in NAMES:
        journal = DiskJournal(folder / "state" / name)
        assert float(journal.spent_in_a_year()) == (EPSILON if classes == 2 else 0.0)
        journal.log.verify()
