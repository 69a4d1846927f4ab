"""Commands in a directory of their own, with the documents that they print and the files that they write."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from hashlib import sha256
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, final
from unittest import mock

from fedcalib.cli.app import run
from tests.snapshots import data
from tests.snapshots.condensing import condensed, nameless, parted, transcript

PRIVATE = {
    "open": "--privacy open",
    "secagg": "--privacy secagg",
    "distributed": "--privacy distributed --epsilon 8",
    "local": "--privacy local --epsilon 8",
    "user": "--privacy user --epsilon 8 --delta 1e-5 --clip 20",
    "laplace": "--privacy laplace --epsilon 8",
}
PAID = "--privacy distributed --ledger budget.db --account patients"
_PICTURES = (".html", ".svg", ".db")
_UNSEEN = ("lock", "secret", "split-key")  # what keeps others out, and chance that nothing here depends on


@final
@dataclass(frozen=True)
class Commands:
    """Commands that are run one after another in one directory."""

    lines: tuple[str, ...]
    needs: tuple[str, ...] = ()
    fragile: bool = False  # a run is named, and its noise seeded, by what was fitted before, to the last digit

    def record(self) -> tuple[Any, dict[str, str]]:
        """Run, and give figures and words."""
        with TemporaryDirectory() as folder, chdir(folder):
            home = Path(folder).resolve()
            data.write_files(home)
            seen = _contents(home)
            ran = []
            for index, line in enumerate(self.lines, 1):
                said = _said(line, home)
                now = _contents(home)
                new = {path: item for path, item in now.items() if seen.get(path) != item}
                seen = now
                files = {nameless(path, index): _read(home / path) for path in sorted(new)}
                ran.append({"command": line, **said, "files": files})
        figures, words = parted(ran)
        return condensed(figures), words


def _said(line: str, home: Path) -> dict[str, Any]:
    """Run one command in this process."""
    out, err = StringIO(), StringIO()
    with (
        mock.patch.dict(os.environ, {"FEDCALIB_STATE": str(home / "state")}),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        code = run(shlex.split(line))
    texts = [stream.getvalue().replace(str(home), "<home>") for stream in (out, err)]
    document = json.loads(texts[0]) if texts[0].startswith("{") else {"warnings": _lines(texts[0])}
    return {"code": code, "document": document, "aside": {"warnings": _aside(texts[1], timed="seconds" in texts[0])}}


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _aside(text: str, timed: bool) -> str:
    """What was told on the side, without times; a table of times is left out, as its columns are as wide as they."""
    told = [line for line in _lines(text) if not timed or line.startswith(("Warning: ", "Error: "))]
    return re.sub(r"[0-9a-f]{64}", "<hash>", re.sub(r"\d{4}-\d\d-\d\dT[\d:]{8}", "<time>", "\n".join(told)))


def _contents(home: Path) -> dict[str, str]:
    return {
        path.relative_to(home).as_posix(): sha256(path.read_bytes()).hexdigest()
        for path in home.rglob("*")
        if path.is_file() and path.stem not in _UNSEEN and path.suffix != ".lock"
    }


def _read(path: Path) -> Any:
    """What a file holds, as data."""
    if path.suffix == ".json":
        return json.loads(path.read_text())
    if path.suffix == ".jsonl":
        return transcript([json.loads(line) for line in path.read_text().splitlines()])
    if path.suffix == ".csv":
        return _columns(path)
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.read_table(path).to_pydict()
    if path.suffix in _PICTURES:
        return "written"
    content = path.read_bytes()
    return {"bytes": len(content), "sha256": sha256(content).hexdigest()[:16]}


def _columns(path: Path) -> dict[str, list[Any]]:
    """The columns of a table, as numbers where they are numbers."""
    with path.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    return {name: list(map(_number, column)) for name, column in zip(head, zip(*rows, strict=True), strict=True)}


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _calibrations() -> dict[str, Commands]:
    fit = "calibrate {} --method {} {} --out out --simulate-seed 1 --format json"
    every = {
        f"calibrate-{word}": Commands((fit.format("scores.csv", "fed-bin", flags),)) for word, flags in PRIVATE.items()
    }
    methods = {
        f"calibrate-{method}": Commands((fit.format("classes.csv", method, PRIVATE["distributed"]),))
        for method in ("auto", "one-shot-temperature", "fed-temp", "class-shifts", "fed-bbq", "acc-t")
    }
    binary = {
        f"calibrate-{method}": Commands(
            (fit.format("scores.csv", method.removesuffix("-disjoint"), PRIVATE["secagg"] + more),)
        )
        for method, more in {
            "platt-scaling": " --test test.csv",
            "quantile-binning": " --holdout 0",
            "isotonic-buckets": " --unit patient",
            "beta-scaling": " --holdout 0.5",
            "fed-bin-disjoint": " --participation disjoint --rounds 2",
            "fed-vector": " --rounds 3 --participation 0.8",
        }.items()
    }
    files = {
        "calibrate-files": Commands((fit.format("'hospital-*.csv'", "auto", PRIVATE["secagg"]),)),
        "calibrate-again": Commands(2 * (fit.format("scores.csv", "fed-bin", PRIVATE["laplace"]),)),
        "calibrate-dry-run": Commands(
            tuple(
                f"calibrate scores.csv --method fed-bin {flags} --rounds 2 --dry-run --simulate-seed 1 --format json"
                for flags in PRIVATE.values()
            )
        ),
        "calibrate-mistakes": Commands(
            (
                "calibrate absent.csv --method fed-bin --privacy open --out out --format json",
                "calibrate scores.csv --method magic --privacy open --out out --format json",
                "calibrate scores.csv --method fed-bin --privacy distributed --out out --format json",
                "calibrate classes.csv --method platt-scaling --privacy open --out out --format json",
                "calibrate scores.csv --method fed-bin --privacy open --out out --set bend=2 --format json",
            )
        ),
        "calibrate-text": Commands(
            ("calibrate scores.csv --method fed-bin --privacy secagg --out out --simulate-seed 1",)
        ),
    }
    return {**every, **methods, **binary, **files}


def _evaluations() -> dict[str, Commands]:
    measure = "evaluate {} {} --simulate-seed 1 --format json"
    every = {f"evaluate-{word}": Commands((measure.format("scores.csv", flags),)) for word, flags in PRIVATE.items()}
    curves = {
        f"evaluate-curves-{word}": Commands((measure.format("scores.csv", f"{PRIVATE[word]} --out out"),))
        for word in ("open", "secagg", "distributed", "local")
    }
    more = {
        "evaluate-calibrator": Commands(
            (
                "calibrate classes.csv --method one-shot-temperature --privacy secagg --out out --simulate-seed 1 "
                "--format json",
                measure.format("classes.csv", "--privacy secagg --calibrator out/calibrator.json"),
                measure.format("classes.csv", "--privacy open"),
            )
        ),
        "evaluate-per-client": Commands(
            (
                measure.format("scores.csv", "--privacy secagg --per-client --out out"),
                measure.format("scores.csv", "--privacy user --epsilon 40 --delta 1e-5 --clip 200 --per-client"),
                measure.format("scores.csv", "--privacy laplace --epsilon 4 --per-client"),
            )
        ),
        "evaluate-by-week": Commands(
            (
                measure.format(
                    "scores.csv", "--by week --from 30 --until 57 --privacy distributed --epsilon 4 --out out"
                ),
                measure.format("scores.csv", "--by week --rounds 2 --privacy secagg"),
            )
        ),
        "evaluate-dry-run": Commands((measure.format("scores.csv", "--privacy laplace --epsilon 4 --dry-run"),)),
        "evaluate-release": Commands(("evaluate scores.csv --privacy secagg --format json",)),
    }
    return {**every, **curves, **more}


def _others() -> dict[str, Commands]:
    compare = "compare {} --repeats 2 --simulate-seed 4 --format json"
    monitor = "monitor scores.csv --by week --from 30 --until 57 --simulate-seed 1 --format json"
    fit = "calibrate scores.csv --method {} --privacy open --out out --simulate-seed 1 --format json"
    return {
        "compare-open": Commands(
            (
                compare.format(
                    "scores.csv --methods fed-bin,platt-scaling,one-shot-temperature --privacy open --out out"
                ),
            )
        ),
        "compare-private": Commands(
            (
                compare.format("scores.csv --methods fed-bin,platt-scaling --privacy distributed --epsilon 2"),
                compare.format(
                    "classes.csv --methods platt-scaling,fed-bin,one-shot-temperature --split client --holdout 0.4 "
                    "--privacy user --epsilon 2 --delta 1e-5"
                ),
            )
        ),
        "monitor-open": Commands((f"{monitor} --privacy open --out out",)),
        "monitor-private": Commands(
            (
                f"{monitor} --privacy distributed --epsilon 4 --recalibrate --out out",
                f"{monitor} --privacy user --epsilon 5 --delta 1e-5 --clip 50 --dry-run",
            ),
            fragile=True,
        ),
        "plan": Commands(
            (
                "plan --metric accuracy --records 1000 --epsilon 1 --plot plan.svg --format json",
                "plan --metric auc --records 2000 --privacy secagg --format json",
                "plan --metric auc --format json",
            )
        ),
        "apply": Commands(
            (
                fit.format("platt-scaling"),
                "apply out/calibrator.json scores.csv -o applied.csv --format json",
                "apply out/calibrator.json test.csv -o applied.parquet --format json",
            )
        ),
        "export": Commands(
            (
                fit.format("platt-scaling"),
                "export out/calibrator.json --to onnx --takes score -o score.onnx --format json",
                fit.format("fed-bin"),
                "export out/calibrator.json --to onnx -o probs.onnx --format json",
            ),
            needs=("onnx", "onnxruntime"),
        ),
        "train": Commands(
            (
                "train points.npz --rounds 2 --rate 0.3 --repair --out model --simulate-seed 1 --format json",
                "train points.npz --clients 8 --beta 0.5 --rounds 2 --classes 3 --privacy user --epsilon 20 "
                "--delta 1e-5 --update-clip 2 --out other --simulate-seed 1 --format json",
                "evaluate model/scored.parquet --privacy secagg --simulate-seed 1 --format json",
            )
        ),
        "ledger": Commands(
            (
                "ledger limit budget.db patients --epsilon 1 --format json",
                f"evaluate scores.csv {PAID} --epsilon 0.7 --simulate-seed 1 --format json",
                f"evaluate scores.csv {PAID} --epsilon 0.7 --simulate-seed 1 --format json",
                f"evaluate scores.csv {PAID} --epsilon 0.4 --simulate-seed 1 --format json",
                f"evaluate test.csv {PAID} --epsilon 0.4 --format json",
                "ledger show budget.db --entries --format json",
                "ledger verify budget.db --format json",
            )
        ),
        "methods": Commands(("methods --format json",)),
        "audit": Commands(
            (
                "audit --privacy laplace --epsilon 2 --twin --draws 2000 --simulate-seed 1 --format json",
                "audit --privacy user --epsilon 2 --delta 1e-5 --draws 2000 --simulate-seed 1 --format json",
            )
        ),
    }


def cases() -> dict[str, Commands]:
    """All commands, by the names of their files."""
    return {**_calibrations(), **_evaluations(), **_others()}
