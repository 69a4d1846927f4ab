"""From Python in one call: defaults, what results show of themselves, and what wrong arguments are told."""

from __future__ import annotations

import json
import math
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedcalib as fc
from fedcalib.cli.app import run
from fedcalib.errors import InputError
from fedcalib.metrics import Measured
from fedcalib.registry import ROWS
from fedcalib.workflows.result import WorkflowResult
from tests.compatibility.instances import INSTANCES

LONGEST = 700  # characters of a repr
SECRET = 0.123456789  # a score that only one record has
PATIENT = 987654321


@cache
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    odds = rng.normal(size=1500)
    table = pd.DataFrame(
        {
            "hospital": rng.choice(["east", "north", "south", "west"], 1500),
            "died": (rng.random(1500) < 1 / (1 + np.exp(-odds))).astype(int),
            "risk": 1 / (1 + np.exp(-2 * odds)),
            "day": np.arange(1500) // 50,
            "patient": np.arange(1500),
        }
    )
    table.loc[7, "risk"], table.loc[7, "patient"] = SECRET, PATIENT
    return table


COLUMNS: dict[str, Any] = {"site": "hospital", "label": "died", "score": "risk"}


@cache
def results() -> dict[str, Any]:
    methods = [fc.PlattScaling(), fc.FedBin()]
    return {
        "calibrate": fc.calibrate(frame(), **COLUMNS, split_seed=1),
        "evaluate": fc.evaluate(frame(), **COLUMNS, split_seed=1),
        "compare": fc.compare(frame(), methods, repeats=1, **COLUMNS),
        "monitor": fc.monitor(frame(), **COLUMNS),
        "plan": fc.plan("auc", records=1000, epsilon=1.0),
    }


def test_one_call_has_sensible_defaults() -> None:
    done = results()["calibrate"]
    assert done.method == fc.Auto()
    assert done.privacy.model == "SecAgg"
    assert done.counts == {"sites": 4, "records": 1500}
    assert 0.2 < done.after.records / 1500 < 0.4
    assert results()["evaluate"].privacy.model == results()["monitor"].timeline.spending.model == "SecAgg"
    assert results()["evaluate"].sites is None
    assert results()["compare"].to_dict()["privacy"]["model"] == "SecAgg"
    assert {row.method for row in results()["compare"].rows} == {"platt-scaling", "fed-bin"}


def test_a_classifier_that_is_left_as_it_is_says_so_and_nothing_changed(tmp_path: Path) -> None:
    """Two estimates of one figure differ a little, which was called worse."""
    right = frame().assign(risk=1 / (1 + (1 / frame().risk - 1) ** 0.5))  # as calibrated as these records can tell
    done = fc.calibrate(right, fc.methods.ClassShifts(), split_seed=3, **COLUMNS)
    assert isinstance(done.calibrator, fc.artifacts.Identity)
    assert done.headline.startswith("The classifier was left as it is: ") and done.headline in done.warnings
    assert done.summary().count(done.headline) == 1 and "After calibration" not in done.summary()
    assert set(done.verdicts.values()) == {"unchanged"} and done.change["average_precision"] == Measured(0.0, 0.0, 0.0)
    assert done.headline in done.report(tmp_path / "report.html").read_text()


def test_a_comparison_tries_every_method_by_default() -> None:
    found = fc.compare(frame().head(400), repeats=1, **COLUMNS)
    words = {row.word for row in ROWS if row.kind == "method" and row.word}
    assert {row.method for row in found.rows} | set(found.refused) == words


@pytest.mark.parametrize("name", ["calibrate", "evaluate", "compare", "monitor", "plan"])
def test_a_result_shows_itself(name: str) -> None:
    done = results()[name]
    assert isinstance(done, WorkflowResult)
    line, summary = repr(done), done.summary()
    assert "\n" not in line and len(line) < 400 and done.headline in line
    assert summary.startswith(done.headline) and len(summary.splitlines()) >= 4
    assert all(len(sentence) > 1 for sentence in done.sentences)
    document = done.to_dict()
    assert document == json.loads(json.dumps(document, allow_nan=False))
    assert document["command"] == name
    assert isinstance(done.to_frame(), pd.DataFrame) and len(done.to_frame())
    for required in ("statement", "simulation", "epsilon", "model"):
        assert required in document["privacy"]
    assert isinstance(document["warnings"], list)


def test_a_measured_value_is_a_number() -> None:
    auc = results()["evaluate"].metrics.auc
    assert float(auc) == auc.value and f"{auc:.3f}" == f"{auc.value:.3f}" and round(auc, 2) == round(auc.value, 2)
    assert auc.low < auc < auc.high and auc > 0.5 and 0.5 < auc <= 1 and auc >= auc.value
    assert str(auc) == f"{auc}" == f"{auc.value:.4f} ({auc.low:.4f} to {auc.high:.4f})"
    assert np.asarray([auc, auc], dtype=float).tolist() == [auc.value] * 2
    assert math.isnan(Measured(math.nan)) and str(Measured(0.5)) == "0.5000"
    assert sorted([Measured(0.7), Measured(0.2)])[0].value == 0.2
    assert Measured(0.5, 0.4, 0.6) == Measured(0.5, 0.4, 0.6) != Measured(0.5, 0.3, 0.6)


def parts(value: Any, seen: set[int]) -> Iterator[Any]:
    """Everything of this package that a value holds, and the value itself."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if type(value).__module__.startswith("fedcalib"):
        yield value
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from parts(getattr(value, field.name, None), seen)
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from parts(one, seen)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from parts(one, seen)


@cache
def shown() -> dict[str, list[str]]:
    """How instances of every public class show themselves, by the names of the classes."""
    federation = fc.data.read_checked(frame(), fc.data.Columns(**COLUMNS, unit="patient")).federation
    fitted = fc.run(fc.PlattScaling(), federation, fc.SecAgg())
    exact = fc.evaluate(frame(), fc.Open(), **COLUMNS)
    told = fc.workflows.calibration.Calibration(
        fc.workflows.session.Data.of(frame(), fc.data.Columns(**COLUMNS)), fc.FedBin(), fc.SecAgg()
    )
    reading = fc.data.read_checked(frame(), fc.data.Columns(**COLUMNS))
    held = [federation.records, federation, fc.InProcess(federation), fitted, fitted.transcript, exact, told, reading]
    classes = fc.evaluate(fc.Federation.simulated())
    answer = fc.query.Answer.empty(fitted.plan.queries[0])
    methods = [fc.methods.ClassMetrics(), fc.methods.PairedClassMetrics(fc.artifacts.Temperature(2.0))]
    more = [
        answer,
        federation.schema,
        fitted.plan,
        fc.Simulated(0),
        fc.Secure(),
        fc.Monitor(),
        fc.planning.Study("auc"),
    ]
    found: dict[str, list[str]] = {}
    seen: set[int] = set()
    for value in [*held, *more, *methods, classes, *results().values(), *INSTANCES]:
        for one in parts(value, seen):
            found.setdefault(type(one).__name__, []).append(repr(one))
    return found


def test_no_repr_prints_records() -> None:
    forbidden = (str(SECRET), str(PATIENT), "array(", "\n")
    for name, texts in shown().items():
        for text in texts:
            assert not [word for word in forbidden if word in text], f"{name}: {text[:300]}"


def test_the_walk_sees_every_public_class_that_holds_data() -> None:
    """What remains is abstract, needs a server or a file, or holds no data at all."""
    public = {
        row.name for row in ROWS if row.public and row.kind in ("type", "artifact", "method", "privacy", "option")
    }
    assert {"Records", "Federation", "InProcess", "Result", "Transcript", "Calibration", "Data", "FrameTable"} <= set(
        shown()
    )
    abstract = {
        "Artifact",
        "Calibrator",
        "ClientQuery",
        "Mechanism",
        "Method",
        "Participation",
        "Performance",
        "Privacy",
    }
    abstract |= {"Query", "RecordQuery", "Runtime", "Flow"}
    elsewhere = {"Flower", "Ledger", "Replay", "Audit", "Registered", "Budget", "Rows", "TrainingRound", "ScoreModel"}
    assert public - set(shown()) <= abstract | elsewhere


def test_reprs_of_public_things_are_short() -> None:
    public = {row.name for row in ROWS if row.public}
    long = {
        name: len(text) for name, texts in shown().items() if name in public for text in texts if len(text) > LONGEST
    }
    assert not long


def test_run_takes_a_federation_or_a_frame() -> None:
    federation = fc.read(frame(), **COLUMNS)
    expected = fc.run(fc.PlattScaling(), fc.InProcess(federation), fc.SecAgg()).artifact
    assert fc.run(fc.PlattScaling(), federation, fc.SecAgg()).artifact == expected
    assert fc.run(fc.PlattScaling(), frame(), fc.SecAgg(), **COLUMNS).artifact == expected
    with pytest.raises(InputError, match="Expected site with a frame or files only, found Federation"):
        fc.run(fc.PlattScaling(), federation, fc.SecAgg(), site="hospital")


WRONG: dict[str, tuple[Any, str]] = {
    "a class of method": (
        lambda: fc.run(fc.PlattScaling, frame(), fc.SecAgg()),
        r"found the class PlattScaling; write",
    ),
    "a class of privacy": (
        lambda: fc.run(fc.PlattScaling(), frame(), fc.DistributedDP),
        r"found the class DistributedDP; write DistributedDP\(epsilon=\.\.\.\)",
    ),
    "calibrate a class": (lambda: fc.calibrate(frame(), fc.FedBin, **COLUMNS), r"found the class FedBin; write"),
    "calibrate by a privacy model": (
        lambda: fc.calibrate(frame(), fc.SecAgg(), **COLUMNS),
        r"Expected a method, found SecAgg; name the arguments",
    ),
    "evaluate a class": (
        lambda: fc.evaluate(frame(), fc.SecAgg, **COLUMNS),
        r"found the class SecAgg; write SecAgg\(\)",
    ),
    "monitor a class": (lambda: fc.monitor(frame(), fc.Open, **COLUMNS), r"found the class Open; write Open\(\)"),
    "compare a class": (lambda: fc.compare(frame(), {"a": fc.FedBin}, **COLUMNS), r"found the class FedBin; write"),
    "a workflow's keyword": (lambda: fc.calibrate(frame(), sites_="x"), r"found 'sites_'\. Did you mean 'sites'"),
    "a column": (lambda: fc.evaluate(frame(), scor="risk"), r"found 'scor'\. Did you mean 'score'"),
    "an epsilon": (lambda: fc.evaluate(frame(), epsilon=1), r"privacy=fc\.DistributedDP\(epsilon=\.\.\.\)"),
    "a seed": (lambda: fc.evaluate(frame(), seed=1), r"split_seed.*or simulate"),
    "a method's keyword": (lambda: fc.FedBin(bin=3), r"options of FedBin \(bins, .*found 'bin'\. Did you mean 'bins'"),
    "a privacy keyword": (lambda: fc.DistributedDP(eps=1), r"found 'eps'\. Did you mean 'epsilon'"),
    "a frame that is fitted and tested": (
        lambda: fc.calibrate(frame(), test=frame(), **COLUMNS),
        r"Expected other records in test .* found the same file or frame in both",
    ),
    "a federation that is fitted and tested": (
        lambda: fc.calibrate(fc.read(frame(), **COLUMNS), test=fc.read(frame(), **COLUMNS)),
        r"Expected other records in test",
    ),
    "a label as score": (
        lambda: fc.evaluate(frame(), site="hospital", label="died", score="died"),
        r"found that 'died' of the frame is stated twice",
    ),
    "the path of a calibrator": (
        lambda: fc.evaluate(frame(), calibrator="calibrator.json", **COLUMNS),
        r"a calibrator, found str; load it with fc\.load",
    ),
    "a result as a calibrator": (
        lambda: fc.evaluate(frame(), calibrator=results()["calibrate"], **COLUMNS),
        r"found CalibrationResult; pass its \.calibrator",
    ),
    "groups in a word": (lambda: fc.evaluate(frame(), groups={"sex": "FM"}, **COLUMNS), r"\{'sex': \['F', 'M'\]\}"),
    "groups without values": (lambda: fc.evaluate(frame(), groups=["sex"], **COLUMNS), r"found \['sex'\]"),
    "one method to compare": (lambda: fc.compare(frame(), fc.FedBin(), **COLUMNS), r"in a list.*found FedBin"),
    "no method to compare": (lambda: fc.compare(frame(), [], **COLUMNS), r"in a list.*found \[\]; name at least one"),
    "a report as PDF": (lambda: results()["plan"].report("report.pdf"), r"ends in \.html .* found report\.pdf"),
    "a report nowhere": (lambda: results()["plan"].report("."), r"ends in \.html"),
    "a keyword of read": (lambda: fc.read(frame(), positiv="yes"), r"Did you mean 'positive'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_told(case: str) -> None:
    call, message = WRONG[case]
    with pytest.raises(InputError, match=message):
        call()


FLAGS = ["--site", "hospital", "--label", "died", "--score", "risk"]
SAME: dict[str, tuple[list[str], Any]] = {
    "calibrate": (["--split-seed", "1", "--out", "out"], lambda file: fc.calibrate(file, **COLUMNS, split_seed=1)),
    "evaluate": ([], lambda file: fc.evaluate(file, **COLUMNS)),
    "compare": (
        ["--methods", "platt-scaling,fed-bin"],
        lambda file: fc.compare(file, [fc.PlattScaling(), fc.FedBin()], **COLUMNS),
    ),
    "monitor": ([], lambda file: fc.monitor(file, **COLUMNS)),
    "plan": (["--metric", "auc", "--records", "1000", "--epsilon", "1"], lambda _: results()["plan"]),
}


@pytest.mark.parametrize("name", SAME)
def test_python_and_the_shell_have_the_same_numbers_by_default(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No method, privacy model or hold-out is stated on either side."""
    monkeypatch.chdir(tmp_path)
    frame().to_csv("scores.csv", index=False)
    flags, python = SAME[name]
    words = [name, *flags] if name == "plan" else [name, "scores.csv", *FLAGS, *flags, "--state", "state"]
    assert run([*words, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = json.loads(json.dumps(python("scores.csv").to_dict()))
    for document in (told, found):
        for row in document.get("methods", ()):
            row.pop("client_seconds")
    assert found == {key: value for key, value in told.items() if key not in ("schema_version", "files")}


def test_a_frame_without_pandas_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core has no pandas: Arrow would raise an error of its own."""
    done = results()["plan"]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(fc.errors.MissingExtra, match=re.escape("pip install 'fedcalib[pandas]'")):
        done.to_frame()
