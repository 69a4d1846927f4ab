from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedcalib
from fedcalib.cli.app import run


@dataclass(frozen=True)
class Said:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Shell = Callable[..., Said]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with a state directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDCALIB_STATE", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def shell(home: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    """Run a command in this process."""

    def call(*argv: object) -> Said:
        capsys.readouterr()
        code = run([str(word) for word in argv])
        captured = capsys.readouterr()
        return Said(code, captured.out, captured.err)

    return call


@pytest.fixture
def process(home: Path) -> Shell:
    """Run a command in a process of its own, perhaps after some code."""

    def call(*argv: object, before: str = "") -> Said:
        code = f"{before}\nimport sys; sys.argv[0] = 'fedcalib'\nfrom fedcalib.cli import main\nmain()"
        source = str(Path(fedcalib.__file__).parents[1])
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, argv)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": source},
        )
        return Said(done.returncode, done.stdout, done.stderr)

    return call


def overconfident(n: int, sites: int, seed: int) -> pd.DataFrame:
    """Scores that are too sure of themselves, so that there is something to calibrate."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    label = (rng.random(n) < 1 / (1 + np.exp(-z))).astype(int)
    site = rng.choice([f"site-{k}" for k in range(sites)], n)
    return pd.DataFrame(
        {"site": site, "score": 1 / (1 + np.exp(-2.5 * z)), "label": label, "patient": np.arange(n) // 2}
    )


@pytest.fixture
def scores(home: Path) -> Path:
    (home / "scores.csv").write_text(_scores())
    return home / "scores.csv"


@cache
def _scores() -> str:
    return overconfident(3847, 5, 0).to_csv(index=False)


def counts(text: str) -> set[int]:
    """Give the whole numbers that a text tells, with or without commas; digits of fractions are none."""
    return {int(found.replace(",", "")) for found in re.findall(r"(?<![\w.-])\d[\d,]*(?!\.?\w)", text)}
