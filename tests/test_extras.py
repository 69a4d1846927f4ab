"""Without an optional package there is one sentence with the command that installs it, and nothing about a bug."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fedcalib import errors

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

IMPORTS = {
    "sklearn": ("from fedcalib.sklearn import FederatedCalibratedClassifier", "sklearn"),
    "cryptography": ("import fedcalib as fc; fc.Flower", "flower"),
    "dp_accounting": ("from fedcalib.audit.evidence import _composed; _composed(1.0, 0.5, 1)", "audit"),
    "duckdb": ("import fedcalib as fc; fc.data.open_query('duckdb:', 'SELECT 1').names", "databases"),
    "adbc_driver_postgresql": (
        "import fedcalib as fc; fc.data.open_query('postgresql:///x', 'SELECT 1').names",
        "databases",
    ),
    "python_calamine": ("import fedcalib as fc; open('a.xlsx', 'w').write('x'); fc.read('a.xlsx')", "excel"),
}

COMMANDS = {
    "certs": ("cryptography", "flower", ("certs", "keys", "north")),
    "workbook": ("python_calamine", "excel", ("evaluate", "a.xlsx", "--privacy", "open")),
}


def without(package: str, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python as if a package were not installed."""
    hidden = f"import sys; sys.modules[{package!r}] = None; {code}"
    return subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, cwd=folder, check=False)


@pytest.mark.parametrize("package", IMPORTS)
def test_python_says_what_to_install(package: str, tmp_path: Path) -> None:
    code, extra = IMPORTS[package]
    last = without(package, code, tmp_path).stderr.splitlines()[-1]
    assert last.startswith("fedcalib.errors.MissingExtra: ")
    assert last.endswith(f"pip install 'fedcalib[{extra}]'")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_line_says_what_to_install(command: str, tmp_path: Path) -> None:
    package, extra, words = COMMANDS[command]
    (tmp_path / "a.xlsx").write_text("x")
    done = without(package, f"from fedcalib.cli.app import run; sys.exit(run({words!r}))", tmp_path)
    assert done.returncode == 2
    assert re.fullmatch(rf"Error: .*pip install 'fedcalib\[{extra}\]'\S*\n", done.stderr)
    assert "bug" not in done.stderr


def test_the_flights_ask_for_their_data_before_they_begin(tmp_path: Path) -> None:
    code = """
import importlib.metadata as metadata, sys
def absent(name): raise metadata.PackageNotFoundError(name)
metadata.distribution = absent
from fedcalib.cli.app import run
sys.exit(run(["demo", "flights"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("pip install 'fedcalib[demo]'\n") and done.stderr.count("\n") == 1


def test_every_extra_that_is_named_exists() -> None:
    assert set(errors._EXTRAS.values()) <= PROJECT["optional-dependencies"].keys()


def test_a_missing_extra_is_an_import_error_too() -> None:
    with pytest.raises(ImportError), errors.needs("try"):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    with pytest.raises(ModuleNotFoundError, match="unknown"), errors.needs("try"):
        raise ModuleNotFoundError("unknown", name="unknown")
