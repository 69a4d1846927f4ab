"""Comparing, monitoring and planning from Python give what the commands give, and plan every run once."""

from __future__ import annotations

import html
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import fedcalib as fc
from fedcalib.cli.app import run
from fedcalib.method import Plan
from fedcalib.report.page import render
from fedcalib.workflows.comparison import ByClient, MethodComparison, compare
from fedcalib.workflows.monitoring import monitor
from fedcalib.workflows.planning import plan
from fedcalib.workflows.session import WorkflowSession
from tests.snapshots import data

METHODS = {"fed-bin": fc.FedBin(), "platt-scaling": fc.PlattScaling()}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDCALIB_STATE", str(tmp_path / "state"))
    data.write_files(tmp_path)
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], command: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run([*shlex.split(command), "--format", "json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    del document["schema_version"]
    return document


def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods that are planned from now on."""
    seen: list[str] = []
    planned = Plan.of.__func__  # type: ignore[attr-defined]

    def counted(cls: type[Plan], method: fc.Method[Any], schema: Any) -> Plan:
        seen.append(type(method).__name__)
        return planned(cls, method, schema)  # type: ignore[no-any-return]

    monkeypatch.setattr(Plan, "of", classmethod(counted))
    return seen


@pytest.mark.parametrize(
    ("file", "flags", "options"),
    [
        ("scores.csv", "--privacy distributed --epsilon 2", {"privacy": fc.DistributedDP(epsilon=2.0)}),
        ("classes.csv", "--split client --holdout 0.4", {"holdout": ByClient(0.4)}),
    ],
)
def test_a_comparison_is_that_of_the_command(
    home: Path, capsys: pytest.CaptureFixture[str], file: str, flags: str, options: dict[str, Any]
) -> None:
    found = compare(file, METHODS, repeats=2, simulate=4, **options)
    told = printed(capsys, f"compare {file} --methods fed-bin,platt-scaling --repeats 2 --simulate-seed 4 {flags}")
    document = found.to_json()
    for row in (*document["methods"], *told["methods"]):
        assert row.pop("client_seconds") > 0
    assert document == {name: told[name] for name in document}
    assert set(told) == set(document)
    frame = found.to_frame()
    assert list(frame["method"]) == ["none", *(row.method for row in found.rows)]
    assert frame["ece_low"][0] < frame["ece"][0] < frame["ece_high"][0]
    assert "Methods compared" in found.report(home / "page" / "compared.html").read_text()
    assert set(found.save(home / "out")) == {"result", "report", "comparison"}


def test_a_comparison_that_spends_plans_every_run_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plans(monkeypatch)
    found = compare("scores.csv", METHODS, fc.DistributedDP(epsilon=4.0), spend=True, split_seed=1)
    assert sorted(planned) == ["FedBin", "FederatedMetrics", "PlattScaling"]
    assert {row.epsilon for row in found.rows} == {2.0}
    assert not found.simulation


def test_what_a_refused_method_leaves_goes_to_the_others(home: Path) -> None:
    methods = {"class": fc.AccT(), **METHODS, "many": fc.PlattScaling()}
    found = compare("classes.csv", methods, fc.DistributedDP(epsilon=4.0), spend=True, split_seed=1)
    assert set(found.refused) == {"platt-scaling", "many"}
    assert {row.epsilon for row in found.rows} == {2.0}


def test_methods_that_could_not_be_made_are_listed(home: Path) -> None:
    from fedcalib.workflows.comparison import ByRecord
    from fedcalib.workflows.session import Data

    told = {"magic": "it needs a wand"}
    comparison = MethodComparison(
        Data.of("scores.csv"), METHODS, fc.Open(), fc.Everyone(), ByRecord(), WorkflowSession(), refused=told
    )
    assert comparison.simulate(1).to_json()["refused"] == [{"method": "magic", "reason": "it needs a wand"}]


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ("", {}),
        (
            "--privacy distributed --epsilon 4 --recalibrate --from 30 --until 57",
            {"privacy": fc.DistributedDP(epsilon=4.0), "recalibrate": True, "start": 30, "until": 57},
        ),
        (
            "--privacy user --epsilon 50 --delta 1e-5 --clip 50 --from 30 --until 57",
            {"privacy": fc.UserGaussian(epsilon=50.0, delta=1e-5, clip=50.0), "start": 30, "until": 57},
        ),
    ],
)
def test_monitoring_is_that_of_the_command(
    home: Path, capsys: pytest.CaptureFixture[str], flags: str, options: dict[str, Any]
) -> None:
    found = monitor("scores.csv", by="week", simulate=1, **options)
    told = printed(capsys, f"monitor scores.csv --by week --simulate-seed 1 {flags}")
    assert json.loads(json.dumps(found.to_json())) == told
    frame = found.to_frame()
    assert list(frame["window"]) == [f"week {k}" for k in range(1, 5)]
    assert "watched over time" in found.report(home / "watched.html").read_text()
    assert ("calibrator" in found.save(home / "out")) == bool(options.get("recalibrate"))


def test_windows_that_serve_the_same_are_planned_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plans(monkeypatch)
    monitor("scores.csv", simulate=1)
    assert planned == ["ReviewWindow"]
    planned.clear()
    monitor("scores.csv", fc.DistributedDP(epsilon=4.0), start=30, until=57, recalibrate=True, simulate=1)
    assert planned == ["ReviewWindow"] * 4


def test_a_plan_is_that_of_the_command(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = plan("accuracy", records=1000, epsilon=1.0)
    assert found.to_json() == printed(capsys, "plan --metric accuracy --records 1000 --epsilon 1")
    frame = found.to_frame()
    assert len(frame) == len(found.around) == 15
    assert found.forecast in found.around  # one study has one error, in the verdict and in the table
    assert frame["error"][1:].notna().all()  # the smallest study drowns in the noise of the least epsilon
    assert found.plot(home / "plan.svg").read_text().startswith("<svg")
    assert found.verdict in html.unescape(found.plot(home / "plan.html").read_text())
    assert found.plot().title in found._repr_html_()
    with pytest.raises(fc.errors.InputError, match=r"ends in \.svg"):
        found.plot(home / "plan.png")
    with pytest.raises(fc.errors.InputError, match="target error"):
        plan("accuracy")


def test_a_page_of_a_comparison_says_what_its_lines_are(home: Path) -> None:
    methods = {"platt-scaling": fc.PlattScaling(), "fed-bin": fc.FedBin()}
    done = compare("scores.csv", methods, repeats=2)
    page = render(done.contents())
    assert "one standard deviation over 2 splits" in page
    assert not [one for one in done.pictures() if "95% interval" in one.table.columns]
    assert [one.title for one in done.pictures()] == ["ECE", "Log loss", "Accuracy change, points"], "of two classes"
    assert re.search(r"The lines? of .*(the order may be chance|lie apart from that of)", page)
    single = compare("scores.csv", methods, repeats=1)
    assert "none: one split" in render(single.contents())
