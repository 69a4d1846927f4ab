"""The one list of names: it is true, it costs nothing to read, and other packages can add to it."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import fedcalib as fc
from fedcalib import errors, registry, wire
from fedcalib.cli.app import run
from fedcalib.errors import InputError, WireError
from fedcalib.method import Method
from fedcalib.privacy import Mechanism, Privacy
from fedcalib.query import Query
from fedcalib.registry import ROWS, Registered
from fedcalib.remote.policy import Policy
from tests.cli.conftest import overconfident
from tests.contract.subjects import METHODS, MODELS, federation
from tests.remote.places import places

KINDS = {"method": Method, "privacy": Privacy, "mechanism": Mechanism, "query": Query}


def test_names_and_words_are_told_apart() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    for kind in KINDS:
        words = [row.word for row in ROWS if row.kind == kind and row.word]
        assert len(set(words)) == len(words)
    assert all(row.kind in ("method", "privacy") for row in ROWS if row.word)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_rows_are_true(row: Registered) -> None:
    found = row.load()
    assert row.module.startswith(".")
    if row.kind == "module":
        return
    if isinstance(found, type):
        assert (found.__name__, found.__module__) == (row.name, f"fedcalib{row.module}")
        assert (row.kind in KINDS and issubclass(found, KINDS[row.kind])) or row.kind not in KINDS
    assert row.wire <= isinstance(found, type)


def module(public: str) -> ModuleType:
    """The public module that "fc" or "fc.query" stands for."""
    return import_module(public.replace("fc", "fedcalib", 1))


@pytest.mark.parametrize("row", [row for row in ROWS if row.public], ids=lambda row: row.name)
def test_public_names_are_where_the_registry_says(row: Registered) -> None:
    place = module(row.public)
    assert getattr(place, row.name) is row.load()
    assert row.name in dir(place)
    assert row.name == "Flow" or row.load().__doc__  # an alias of a generator type has no docstring
    if row.kind != "module" and "__all__" in vars(place):
        assert row.name in place.__all__
    if row.public != "fc":
        assert getattr(fc, row.public.removeprefix("fc.")) is place


PUBLIC = sorted({row.public for row in ROWS if row.public})
LAZY = [public for public in PUBLIC if "exports(__name__)" in inspect.getsource(module(public))]


def stub(public: str) -> Path:
    """The file that tells type checkers what a lazy module holds."""
    return Path(str(module(public).__file__)).with_suffix(".pyi")


def typed(public: str) -> set[tuple[str, str]]:
    """What it says: pairs of a module and a name."""
    nodes = ast.parse(stub(public).read_text(encoding="utf-8")).body
    return {
        (str(node.module), alias.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }


def listed(public: str) -> set[tuple[str, str]]:
    """What the registry says that it holds."""
    rows = [row for row in ROWS if row.public == public]
    return {("fedcalib" if row.kind == "module" else f"fedcalib{row.module}", row.name) for row in rows}


@pytest.mark.parametrize("public", LAZY)
def test_type_checkers_see_what_runs(public: str) -> None:
    assert typed(public) == listed(public), "write it anew with: python -m tests.test_registry"


def test_nothing_else_is_decoded() -> None:
    for name in ("Federation", "run", "metrics", "Popen", "__class__"):
        with pytest.raises(WireError, match="registered type"):
            registry.lookup(name, None)


def test_words_make_methods_and_privacy_models() -> None:
    assert registry.method("fed-bin", {"clip": None}, ["bins=7"]) == fc.FedBin(bins=7)
    assert registry.privacy("distributed", {"epsilon": 2.0, "clip": None}) == fc.DistributedDP(2.0)
    assert registry.takes("user", "clip")
    assert not registry.takes("open", "clip")
    with pytest.raises(InputError, match=r"--method with one of fed-bin, .*found score-curves"):
        registry.method("score-curves", {})  # it gives no calibrator
    assert registry.find("method", "score-curves").build({}) == fc.ScoreCurves()
    assert registry.find("method", "nll-t").name == "NLLT"


ELSEWHERE = {
    "CompareModels",
    "DomainTemperatures",
    "FitAndMeasure",
    "GroupedMetrics",
}  # tested with the columns or methods they need


def test_the_contract_holds_every_method_and_privacy_model() -> None:
    tried = {type(subject).__name__ for subject in (*METHODS, *MODELS)}
    assert tried == set(registry.names("method", "privacy")) - ELSEWHERE


PACKAGE = '''
"""A package of somebody else's."""

from dataclasses import dataclass

import numpy as np

from fedcalib.artifacts.calibrator import Calibrator
from fedcalib.method import Method
from fedcalib.query import Block, RecordQuery, Rows


@dataclass(frozen=True)
class PositiveCount(RecordQuery):
    """How many records are positive; a record adds at most one."""

    @property
    def blocks(self):
        return {"positive": Block((2,), integral=True, one_hot=True)}

    def rows(self, records):
        return Rows(records.labels[:, None], None)


@dataclass(frozen=True)
class Constant(Calibrator):
    """The same probability for everybody."""

    rate: float

    def calibrate(self, probs, logits):
        return np.tile([1 - self.rate, self.rate], (len(probs), 1))


@dataclass(frozen=True)
class BaseRate(Method):
    """Predict the base rate."""

    least: float = 0.0

    def protocol(self, schema):
        answer = yield PositiveCount()
        negative, positive = np.maximum(answer.values["positive"], 0.5)
        return Constant(float(max(self.least, positive / (negative + positive))))
'''

LISTED = """
from fedcalib.registry import Registered

ROWS = (
    Registered("BaseRate", "base_rate.methods", "method", word="base-rate"),
    Registered("PositiveCount", "base_rate.methods", "query"),
    Registered("Constant", "base_rate.methods", "artifact"),
)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Another distribution, as pip would install it."""
    site = tmp_path / "site-packages"
    (site / "base_rate").mkdir(parents=True)
    (site / "base_rate" / "__init__.py").write_text(LISTED)
    (site / "base_rate" / "methods.py").write_text(PACKAGE)
    about = site / "base_rate-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: base-rate\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[fedcalib.methods]\nbase_rate = base_rate:ROWS\n")
    monkeypatch.syspath_prepend(str(site))
    registry.installed.cache_clear()
    yield site
    registry.installed.cache_clear()
    for name in ("base_rate", "base_rate.methods"):
        sys.modules.pop(name, None)


def test_another_packages_method_is_listed_and_run(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDCALIB_STATE", str(tmp_path / "state"))
    assert run(["methods", "--format", "json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)["methods"]}
    assert listed["base-rate"]["summary"] == "Predict the base rate."
    assert listed["base-rate"]["options"] == {"least": 0.0}
    overconfident(900, 5, 0).to_csv("scores.csv", index=False)
    words = [
        "--method",
        "base-rate",
        "--privacy",
        "distributed",
        "--epsilon",
        "5",
        "--simulate-seed",
        "1",
        "--out",
        "out",
    ]
    assert run(["calibrate", "scores.csv", *words]) == 0
    calibrator = fc.load("out/calibrator.json")
    assert type(calibrator).__name__ == "Constant"
    assert 0 < calibrator.rate < 1


def test_what_is_known_here_needs_no_look_at_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise AssertionError

    monkeypatch.setattr(registry, "installed", broken)
    assert registry.method("fed-bin", {}) == fc.FedBin()
    assert registry.takes("user", "clip")
    assert wire.loads(wire.dumps(fc.FedBin())) == fc.FedBin()
    with pytest.raises(WireError):  # and what a message names is no reason to look
        registry.lookup("PositiveCount")


def test_a_site_decodes_another_packages_types_only_if_its_policy_names_them(package: Path, tmp_path: Path) -> None:
    data, method = federation(2, records=500), registry.method("base-rate", {})
    cautious = places(data, Policy(), tmp_path / "cautious")
    with pytest.raises(errors.TooFewClients):
        fc.run(method, cautious.runtime(), fc.DistributedDP(1.0))
    reasons = [line["reason"] for line in cautious.sites["site-00"].journal.log.lines() if "reason" in line]
    assert reasons
    assert all("Expected a registered type, found 'PositiveCount'" in reason for reason in reasons)
    (tmp_path / "policy.toml").write_text('allow_types = ["PositiveCount"]\n')
    willing = places(data, Policy.read(tmp_path / "policy.toml"), tmp_path / "willing")
    result = fc.run(method, willing.runtime(), fc.DistributedDP(1.0))
    assert 0.2 < result.artifact.rate < 0.8


def test_its_lists_hold_for_other_packages_too(package: Path, tmp_path: Path) -> None:
    method = registry.method("base-rate", {})
    strict = Policy(queries=("ScoreTree",), allow_types=("PositiveCount",))
    with pytest.raises(errors.TooFewClients, match="does not allow such a query"):
        fc.run(method, places(federation(2), strict, tmp_path / "strict").runtime(), fc.DistributedDP(1.0))


@pytest.mark.parametrize(
    "listed",
    [
        "ROWS = 1 / 0",
        "ROWS = ['BaseRate']",
        LISTED.replace('"BaseRate"', '"FedBin"'),
        LISTED.replace('"base-rate"', '"fed-bin"'),
    ],
)
def test_a_broken_package_is_named(package: Path, listed: str) -> None:
    (package / "base_rate" / "__init__.py").write_text(listed)
    with pytest.raises(InputError, match=r"base_rate|fedcalib\.methods"):
        registry.choices("method")
    assert registry.method("fed-bin", {}) == fc.FedBin()


def rewrite(public: str) -> None:
    """Write a stub anew."""
    lines = [f"from {home} import {name} as {name}" for home, name in sorted(listed(public))]
    version = ["", "__version__: str"] if public == "fc" else []
    stub(public).write_text("\n".join([*lines, *version, ""]), encoding="utf-8")
    for words in (["check", "--fix"], ["format"]):
        subprocess.run([sys.executable, "-m", "ruff", *words, "-q", stub(public)], check=True)


if __name__ == "__main__":
    for each in LAZY:
        rewrite(each)
