"""The app that Flower ships, as a bundle (FAB) of format 1, which Flower Hub takes; built without a network."""

from __future__ import annotations

import tomllib
from hashlib import sha256
from importlib import import_module
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

pytest.importorskip("flwr")

from flwr.cli.build import build_fab_from_disk
from flwr.supercore.fab_format_version import normalize_and_validate_fab_format

ROOT = Path(__file__).resolve().parents[2]
APP = ROOT / "flower-app"


@pytest.fixture(scope="module")
def bundle() -> ZipFile:
    return ZipFile(BytesIO(build_fab_from_disk(APP)))


def test_a_bundle_holds_the_app_and_nothing_else(bundle: ZipFile) -> None:
    names = {"pyproject.toml", "fedcalib_app.py", "README.md", "LICENSE"}
    assert set(bundle.namelist()) == {*names, ".info/CONTENT"}
    listed = dict(line.split(",")[:2] for line in bundle.read(".info/CONTENT").decode().splitlines())
    assert listed == {name: sha256(bundle.read(name)).hexdigest() for name in names}
    assert bundle.read("LICENSE") == (ROOT / "LICENSE").read_bytes()


def test_a_bundle_is_the_same_each_time() -> None:
    assert build_fab_from_disk(APP) == build_fab_from_disk(APP)


def test_its_format_is_one_and_its_flower_is_ours(bundle: ZipFile) -> None:
    config = tomllib.loads(bundle.read("pyproject.toml").decode())
    assert normalize_and_validate_fab_format(config).fab_format_version == 1
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())
    allowed = next(Requirement(one) for one in ours["project"]["optional-dependencies"]["flower"] if "flwr" in one)
    asked = [Requirement(one) for one in config["project"]["dependencies"]]
    assert [(one.name, one.specifier) for one in asked] == [
        ("flwr", allowed.specifier)
    ]  # nothing that runs would be new
    assert config["project"]["version"] == ours["project"]["version"]


def test_flower_hub_would_take_it(capsys: pytest.CaptureFixture[str]) -> None:
    """What `flwr app publish` checks before it sends anything."""
    publish = import_module("flwr.cli.app_cmd.publish")
    config = tomllib.loads((APP / "pyproject.toml").read_text())
    publish._validate_description(config["project"]["description"])
    publish._validate_app_name(config["project"]["name"], "app")
    publish._validate_app_name(APP.name, "folder")
    assert len(config["project"]["description"]) <= 200
    paths = publish._collect_file_paths(APP)
    publish._validate_files(paths)
    assert {path.name for path in paths} == {"pyproject.toml", "fedcalib_app.py", "README.md", "LICENSE"}
    assert "Validation passed" in capsys.readouterr().out
