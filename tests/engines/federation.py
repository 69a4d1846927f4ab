"""Three sites for any engine: their files, and the work that a server does with each transport."""

from __future__ import annotations

import json
from pathlib import Path

import fedcalib as fc
from fedcalib import wire
from fedcalib.deploy import certificates
from fedcalib.deploy.engines import write_settings
from fedcalib.errors import InputError, RefusedError
from fedcalib.remote.runtime import Remote
from fedcalib.remote.site import read_directory
from fedcalib.remote.sites import Transport
from tests.contract.subjects import METHODS, SCHEMAS

TRAINED = {"FedAvg", "FedCal", "FLSWAG"}  # sites draw batches, each for itself
NAMES = ("north", "south", "west")
POLICY = """
privacy_models = ["DistributedDP", "SourceLaplace", "SecAgg"]
epsilon_a_query = 1.0
epsilon_a_run = 1.0
exact_runs_per_year = 1000
fewest_records = 0
most_work = 1000000000000
"""


def write_sites(folder: Path) -> Path:
    """Keys, records, policies and settings of three sites; returns the folder with one folder per site."""
    certificates.make(folder / "keys", NAMES, ["localhost"])
    for seed, name in enumerate(NAMES):
        write_records(folder / f"{name}.csv", seed)
        (folder / f"{name}.toml").write_text(POLICY)
        own = folder / "keys" / name
        places = {
            "data-path": folder / f"{name}.csv",
            "identity": own / "identity.json",
            "directory": own / "directory.json",
            "policy": folder / f"{name}.toml",
            "state": folder / "state" / name,
        }
        write_settings(folder / "sites" / name, {key: str(path) for key, path in places.items()})
    return folder / "sites"


def write_records(path: Path, seed: int) -> None:
    records = fc.Federation.simulated(classes=2, clients=1, records=300, seed=seed).records
    lines = [f"{a!r},{b!r},{label}" for (a, b), label in zip(records.given.tolist(), records.labels, strict=True)]
    path.write_text("logit_0,logit_1,label\n" + "\n".join(lines) + "\n")


def in_process(folder: Path) -> fc.InProcess:
    return fc.InProcess(fc.read([str(folder / f"{name}.csv") for name in NAMES]))


def methods() -> list[fc.Method]:
    """Every registered method for two classes that sites serve under secure aggregation, one per kind."""
    found: dict[str, fc.Method] = {}
    for method in METHODS:
        try:
            fc.loop.Agreement.of(method, fc.SecAgg(), fc.Everyone(), fc.Schema(2, len(NAMES)))
        except (InputError, RefusedError):
            continue
        found.setdefault(type(method).__name__, method)
    assert SCHEMAS[0].classes == 2
    return list(found.values())


def answers(runtime: fc.loop.Runtime) -> dict[str, str]:
    """What every method returns, as text; where it fails, the kind of error."""
    found = {}
    for method in methods():
        try:
            artifact = fc.run(method, runtime, fc.SecAgg()).artifact
            found[type(method).__name__] = wire.dumps(artifact)
        except fc.errors.FedcalibError as error:
            found[type(method).__name__] = type(error).__name__ + str(error)[:300]
    return found


def check_answers(found: dict[str, str], folder: Path) -> None:
    """The same answers as in process, to the last bit; where sites draw numbers to train, the same kind of answer."""
    once, again = (answers(in_process(folder)) for _ in range(2))
    assert found.keys() == once.keys()
    drawn = {name for name in once if once[name] != again[name]}
    assert drawn <= TRAINED, drawn
    for name, text in found.items():
        if name in TRAINED:
            assert wire.parse(text)["type"] == wire.parse(once[name])["type"], name
        else:
            assert text == once[name], name
    assert len(found) - len(TRAINED & found.keys()) > 30


def work(transport: Transport, folder: Path) -> None:
    """Everything that the tests look at, over one transport."""
    remote = Remote(transport, read_directory(folder / "keys" / "directory.json"), sites=len(NAMES), timeout=60)
    found: dict[str, object] = {"answers": answers(remote)}
    private = fc.run(fc.FedBin(), remote, fc.DistributedDP(epsilon=0.5))
    found["epsilon"] = private.privacy.epsilon
    try:
        fc.run(fc.FedBin(bins=7), remote, fc.DistributedDP(epsilon=5.0))
    except fc.errors.FedcalibError as error:
        found["refused"] = str(error)
    (folder / "found.json").write_text(json.dumps(found))
