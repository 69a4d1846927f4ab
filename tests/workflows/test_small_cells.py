"""Published tables of exact models hold no count from 1 to 10, in any file that a command writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import fedcalib as fc
from fedcalib import wire
from fedcalib.artifacts.evaluation import Fitted, Review
from fedcalib.artifacts.performance import Performance
from fedcalib.cohort import MIN_RECORDS
from fedcalib.errors import InputError, RefusedError
from fedcalib.metrics.binning import merged_cells, small_cells
from fedcalib.metrics.intervals import Measured
from fedcalib.metrics.reliability import Reliability
from fedcalib.report.page import render
from fedcalib.workflows import calibrate, evaluate, monitor
from tests.cli.conftest import Shell, home, shell  # noqa: F401 - fixtures

COUNTS = arrays.arrays(np.int64, st.tuples(st.integers(1, 3), st.integers(1, 30)), elements=st.integers(0, 25))


def small(counts: Any) -> np.ndarray:
    array = np.asarray(counts, dtype=float)
    return array[(array > 0.01) & (array < MIN_RECORDS - 0.01)]


@given(COUNTS, st.integers(2, 15))
def test_merged_cells_may_be_shown_and_keep_totals_and_order(counts: np.ndarray, min_count: int) -> None:
    starts = merged_cells(counts, min_count)
    totals = counts.sum(axis=1)
    if starts is None:
        assert ((totals > 0) & (totals < min_count)).any(), "it is refused only where one cell would not do"
        return
    assert starts[0] == 0
    assert (np.diff(starts) > 0).all()
    assert starts[-1] < counts.shape[1]
    merged = np.add.reduceat(counts, starts, axis=1)
    assert ((merged == 0) | (merged >= min_count)).all()
    assert (merged.sum(axis=1) == totals).all()
    assert small_cells(merged, min_count) == 0
    assert merged_cells(merged, min_count).tolist() == list(range(len(starts))), "what may be shown stays as it is"


@given(COUNTS)
def test_cells_that_may_be_shown_are_not_merged(counts: np.ndarray) -> None:
    counts = np.where(counts < MIN_RECORDS, 0, counts)
    assert merged_cells(counts).tolist() == list(range(counts.shape[1]))


def federation(positives: int = 40, n: int = 700, sites: int = 5) -> fc.Federation:
    rng = np.random.default_rng(3)
    score = np.round(rng.beta(0.6, 2.0, n), 3)
    label = np.zeros(n, dtype=int)
    label[rng.choice(n, positives, replace=False, p=score / score.sum())] = 1
    site = rng.choice([f"site-{k}" for k in range(sites)], n)
    return fc.Federation.by_site(fc.Records.of_scores(score, label), site)


@pytest.mark.parametrize("privacy", [fc.SecAgg(), fc.Open()], ids=repr)
def test_reports_and_curves_are_published_with_merged_cells(privacy: fc.privacy.Privacy, tmp_path: Path) -> None:
    runtime = fc.InProcess(federation())
    report = fc.run(fc.FederatedMetrics(), runtime, privacy).artifact
    curves = fc.run(fc.ScoreCurves(), runtime, privacy).artifact
    assert small(report.table.counts).size, "the server saw small cells"
    saved = fc.load(report.save(tmp_path / "report.json"))
    table = saved.table
    assert not small(table.counts).size
    assert 1 < table.cells < report.table.cells
    assert table.edges[0] == 0
    assert table.edges[-1] == 1
    assert table.totals.tolist() == report.table.totals.tolist()
    assert saved.min_count == MIN_RECORDS
    assert saved.to_json() == report.to_json(), "metrics are computed before"
    drawn = fc.load(curves.save(tmp_path / "curves.json"))
    assert not small(drawn.table.counts).size
    assert drawn.table.totals.tolist() == curves.table.totals.tolist()
    assert drawn.min_count == MIN_RECORDS
    assert abs(drawn.auc.value - curves.auc.value) < 0.05
    whole = fc.load(curves.save(tmp_path / "whole.json", min_count=1))
    assert whole.table.counts.tolist() == curves.table.counts.tolist()


def test_tables_inside_other_artifacts_are_published_alike() -> None:
    report = fc.run(fc.FederatedMetrics(), fc.InProcess(federation()), fc.SecAgg()).artifact
    measured = Measured(0.5, 0.4, 0.6)
    for one in (Review(report, measured, report), Fitted(fc.artifacts.Identity(), report, report)):
        inside = [part for part in vars(one.published()).values() if isinstance(part, Performance)]
        assert len(inside) == 2
        assert all(part.min_count == MIN_RECORDS for part in inside)


def test_noise_is_protection_enough() -> None:
    runtime = fc.InProcess(federation())
    for method in (fc.FederatedMetrics(), fc.ScoreCurves()):
        artifact = fc.run(method, runtime, fc.DistributedDP(1.0)).artifact
        assert artifact.published() is artifact


def test_where_one_cell_would_not_do_no_table_is_published(tmp_path: Path) -> None:
    runtime = fc.InProcess(federation(positives=6))
    report = fc.run(fc.FederatedMetrics(), runtime, fc.SecAgg()).artifact.published()
    assert report.table.counts.sum() == 0
    assert "left out" in report.warnings[-1]
    curves = fc.run(fc.ScoreCurves(), runtime, fc.SecAgg()).artifact
    with pytest.raises(RefusedError, match="from 1 to 10 records"):
        curves.save(tmp_path / "curves.json")
    done = evaluate(federation(positives=6), fc.SecAgg())
    assert set(done.files()) == {"report.html", "result.json", "performance.json"}
    assert "left out" in done.files()["report.html"].decode()
    assert done.metrics.auc is not None


BINNED = [fc.FedBin(), fc.FedBBQ(), fc.QuantileBinning(buckets=20), fc.IsotonicBuckets(), fc.BinaryBBQ()]


@pytest.mark.parametrize("method", [*BINNED, fc.methods.SourceBinning()], ids=lambda one: type(one).__name__)
def test_a_calibrator_keeps_its_bins_and_says_how_many_are_small(method: fc.Method, tmp_path: Path) -> None:
    runtime = fc.InProcess(federation())
    result = fc.run(method, runtime, fc.SecAgg())
    bins, few = result.artifact.fitted_bins()
    assert 0 < few < bins
    path = result.artifact.save(tmp_path / "calibrator.json", result.privacy)
    loaded, privacy = fc.artifacts.saving.read_document(path)
    assert loaded == result.artifact
    assert f"{few} of {bins} were fitted to 1 to 10 records of a label" in privacy.statement
    assert "ratio of small counts" in privacy.statement
    noisy = fc.run(method, runtime, fc.DistributedDP(5.0))
    assert noisy.artifact.fitted_bins() == (0, 0)
    assert noisy.artifact.disclosure == ""


def test_small_bins_are_counted_by_label() -> None:
    records = fc.Records.of_scores([0.1] * 30 + [0.6] * 12 + [0.9] * 4, [1] * 3 + [0] * 27 + [1] * 12 + [0] * 4)
    runtime = fc.InProcess(fc.Federation.grouped(records, np.arange(46) % 4))
    calibrator = fc.run(fc.FedBin(bins=4), runtime, fc.SecAgg()).artifact
    assert calibrator.fitted_bins() == (4, 2), "3 positives in the first bin, 4 negatives in the last"
    twice = fc.artifacts.Chain((calibrator, fc.artifacts.KeepTop(calibrator)))
    assert twice.fitted_bins() == (8, 4)


def test_the_minimum_is_recorded_and_can_be_chosen() -> None:
    data = federation()
    assert evaluate(data, fc.SecAgg()).to_json()["min_count"] == MIN_RECORDS
    assert calibrate(data, fc.PlattScaling(), fc.SecAgg(), min_count=20).to_json()["min_count"] == 20
    assert "min_count" not in evaluate(data, fc.DistributedDP(1.0)).to_json()
    assert "The server itself saw" in evaluate(data, fc.SecAgg()).privacy.statement
    with pytest.raises(InputError, match="at least 1"):
        evaluate(data, min_count=0)


def test_a_small_site_cannot_be_computed_from_the_others() -> None:
    records = federation().records
    owner = np.repeat(["a", "b", "c", "d"], [300, 200, 193, 7])
    sites = evaluate(fc.Federation.by_site(records, owner), fc.Open()).sites
    assert [site.records for site in sites] == [300, 200, None, None]


@pytest.mark.parametrize("privacy", [fc.SecAgg(), fc.Open(), fc.DistributedDP(5.0)], ids=repr)
def test_a_window_with_few_records_is_withheld(privacy: fc.privacy.Privacy) -> None:
    data = federation()
    day = np.where(np.arange(700) < 6, 14, np.arange(700) % 14)  # six records in the third week
    frame = {"site": data.owner, "score": data.records.score, "label": data.records.labels, "day": day}
    done = monitor(frame, privacy, site="site", start=0, until=20)
    last = done.to_json()["windows"][2]
    hidden = not privacy.private  # under an epsilon nothing depends on how many records a window has
    assert any("week 3 is withheld: fewer than 11 records" in text for text in done.warnings) == hidden
    if hidden:
        assert set(last["metrics"].values()) == {None}
        assert last["signals"] == {}
        assert set(last["estimated_accuracy"].values()) == {None}
        assert "week 3" in render(done.contents())
    assert done.to_json()["windows"][1]["metrics"]["accuracy"] is not None


def written(folder: Path) -> Iterator[tuple[str, Any]]:
    """Every table of counts and every number of records in the files of a folder."""
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".json":
            yield from inside(path.name, json.loads(path.read_text()))
        elif path.suffix == ".html":
            text = path.read_text()
            for table in re.findall(r"<table.*?</table>", text, re.DOTALL):
                heads = [re.sub(r"<.*?>", "", head).strip().lower() for head in re.findall(r"<th.*?</th>", table)]
                counted = [place for place, head in enumerate(heads) if head in ("records", "count")]
                for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL):
                    cells = [
                        re.sub(r"<.*?>", "", cell).strip() for cell in re.findall(r"<t[dh].*?</t[dh]>", row, re.DOTALL)
                    ]
                    yield from (
                        (f"{path.name}: {heads[place]}", float(cells[place].replace(",", "")))
                        for place in counted
                        if place < len(cells) and re.fullmatch(r"[\d,.]+", cells[place])
                    )


def inside(where: str, data: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(data, dict) and data.get("type") in ("Reliability", "ScoreTable"):
        value = wire.decode(data)
        if isinstance(value, Reliability):
            yield f"{where}: right", value.correct
            yield f"{where}: wrong", value.count - value.correct
        else:
            yield f"{where}: labels", value.counts
    elif isinstance(data, dict):
        if data.get("records") is not None:
            yield f"{where}: records", data["records"]
        for item in data.values():
            yield from inside(where, item)
    elif isinstance(data, list):
        for item in data:
            yield from inside(where, item)


@pytest.mark.parametrize("privacy", ["secagg", "open"])
def test_no_file_of_a_command_holds_a_small_count(shell: Shell, home: Path, privacy: str) -> None:  # noqa: F811
    data = federation(positives=30)
    frame = pd.DataFrame(
        {
            "site": [data.name(k) for k in data.owner],
            "score": data.records.score,
            "label": data.records.labels,
            "day": np.arange(len(data.records)) % 28,
        }
    )
    frame.loc[:4, "site"] = "tiny"
    frame.loc[690:, "score"] = np.nan
    frame.to_csv(home / "scores.csv", index=False)
    flags = ("--privacy", privacy, "--format", "json", "--site", "site")
    commands = {
        "calibrate": ("--method", "platt-scaling"),
        "evaluate": (),
        "compare": ("--methods", "platt-scaling,fed-bin", "--repeats", "1"),
        "monitor": ("--by", "week"),
    }
    for command, more in commands.items():
        said = shell(command, "scores.csv", *more, *flags, "--out", home / "out" / command)
        assert said.code == 0, said.err
        (home / "out" / command / "said.json").write_text(said.out)
    found = list(written(home / "out"))
    assert {where for where, _ in found} >= {"performance.json: labels", "said.json: records", "report.html: records"}
    assert not [(where, small(value)) for where, value in found if small(value).size]
    texts = " ".join(path.read_text() for path in (home / "out").rglob("*") if path.suffix in (".json", ".html"))
    assert "Fewer than 11 records were left out" in texts
    assert "10 of 700 records" not in texts
