from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedcalib.artifacts.saving import read_document
from tests.cli.conftest import Shell, counts, overconfident

METRICS = {"auc", "accuracy", "ece", "nll", "brier", "average_precision", "net_benefit", "slope", "ici", "scaled_brier"}
MODELS = {
    "open": [],
    "secagg": [],
    "distributed": ["--epsilon", "8"],
    "local": ["--epsilon", "8"],
    "user": ["--epsilon", "8", "--delta", "1e-5", "--clip", "20"],
    "laplace": ["--epsilon", "8"],
}
PRIVATE = ["distributed", "local", "user", "laplace"]


@pytest.mark.parametrize("model", MODELS)
def test_the_document_and_the_files_under_every_model(shell: Shell, scores: Path, model: str) -> None:
    said = shell(
        *("calibrate", scores, "--method", "fed-bin", "--privacy", model, *MODELS[model]),
        *("--out", "out", "--format", "json", "--simulate-seed", "1"),
    )
    assert said.code == 0, said.err
    document = said.json
    assert document["schema_version"] == 1
    assert document["method"] == "fed-bin"
    assert set(document["privacy"]) == {"model", "unit", "epsilon", "delta", "adjacency", "simulation", "statement"}
    assert document["privacy"]["simulation"] is True
    assert "imulation: not private" in document["privacy"]["statement"]
    for when in ("before", "after", "change"):
        assert set(document[when]) > METRICS
        for measured in document[when].values():
            assert measured is None or set(measured) == {"value", "low", "high"}
    for when in ("before", "after"):
        missing = {name for name, measured in document[when].items() if measured is None}
        assert missing == set(document["unmeasurable"][when]), "each figure that is missing has a reason"
    assert set(document["verdicts"]) == {name for name, change in document["change"].items() if change is not None}
    assert isinstance(document["warnings"], list)
    assert {name: Path(place).exists() for name, place in document["files"].items()} == dict.fromkeys(
        ["calibrator", "result", "report", "reliability"], True
    )
    written = json.loads(Path("out/result.json").read_text())
    assert {name: written[name] for name in document if name != "files"} == {
        name: value for name, value in document.items() if name != "files"
    }
    assert set(written) - set(document) <= {"thresholds"}
    calibrator, spent = read_document("out/calibrator.json")
    assert calibrator(np.array([0.1, 0.9])).shape == (2,)
    assert spent.statement == document["privacy"]["statement"]
    assert Path("out/reliability.svg").read_text().startswith("<svg")


def test_noise_for_colluding_clients(shell: Shell, scores: Path) -> None:
    said = shell(
        *("calibrate", scores, "--method", "fed-bin", "--privacy", "distributed", "--epsilon", "8", "--colluding", "1"),
        *("--out", "out", "--format", "json", "--simulate-seed", "1", "--holdout", "0"),
    )
    assert said.code == 0, said.err
    told = said.json["privacy"]["statement"]
    assert "if one client tells it its share of the noise: epsilon = 8;" in told


@pytest.mark.parametrize("model", PRIVATE)
def test_no_exact_count_leaves_a_private_command(shell: Shell, scores: Path, model: str) -> None:
    table = pd.read_csv(scores)
    table.loc[[5, 17, 99], "score"] = np.nan
    table.to_csv(scores, index=False)
    said = shell(
        *("calibrate", scores, "--method", "fed-bin", "--privacy", model, *MODELS[model]),
        *("--out", "out", "--format", "json"),
    )
    assert said.code == 0, said.err
    assert said.json["records"] is None
    assert said.json["sites"] is None
    assert said.json["privacy"]["simulation"] is False
    assert "3 of 3847 records" in said.err, "whoever runs the command sees what was left out"
    public = said.out + Path("out/report.html").read_text() + Path("out/calibrator.json").read_text()
    assert not counts(public) & {3847, 3844}
    assert "left out because" not in public


def test_exact_counts_are_told_where_nothing_is_hidden(shell: Shell, scores: Path) -> None:
    said = shell("calibrate", scores, "--method", "fed-bin", "--privacy", "secagg", "--out", "out", "--format", "json")
    assert (said.json["sites"], said.json["records"]) == (5, 3847)
    assert said.json["privacy"]["simulation"] is False
    after, before = said.json["after"]["ece"]["value"], said.json["before"]["ece"]["value"]
    assert after < 0.6 * before


def test_people_get_tables_on_stdout_and_programs_get_them_on_stderr(shell: Shell, scores: Path) -> None:
    words = ("calibrate", scores, "--method", "fed-bin", "--privacy", "open", "--out", "out")
    assert "accuracy" in shell(*words).out
    said = shell(*words, "--format", "json")
    assert "accuracy" in said.err
    assert said.out.startswith("{")


def test_a_seed_repeats_itself_and_another_does_not(shell: Shell, scores: Path) -> None:
    def after(seed: int, state: str) -> object:
        said = shell(
            *("calibrate", scores, "--method", "fed-bin", "--privacy", "distributed", "--epsilon", "1", "--out", "out"),
            *("--format", "json", "--simulate-seed", seed, "--state", state),
        )
        return said.json["before"], said.json["after"], Path("out/calibrator.json").read_text()

    assert after(1, "a") == after(1, "b")
    assert after(1, "a") != after(2, "a")


def test_what_does_not_change_is_unchanged_whatever_the_noise(shell: Shell, scores: Path) -> None:
    """With the identity as calibrator both sides are read off the same table."""
    said = shell(
        *("calibrate", scores, "--method", "fed-bin", "--privacy", "distributed", "--epsilon", "1", "--out", "out"),
        *("--format", "json", "--simulate-seed", "1", "--set", "smoothing=1e15", "--set", "bins=100000"),
    )
    assert said.json["after"]["accuracy"]["value"] == pytest.approx(said.json["before"]["accuracy"]["value"], abs=1e-5)
    assert said.json["change"]["brier"]["value"] == pytest.approx(0.0, abs=1e-3)
    assert said.json["verdicts"]["brier"] == said.json["verdicts"]["auc"] == "unchanged"


def test_verdicts_come_from_the_paired_change_and_the_headline_agrees(shell: Shell, scores: Path) -> None:
    """Two separate intervals overlap where the paired change is clear."""
    said = shell(
        *("calibrate", scores, "--method", "platt-scaling", "--privacy", "secagg", "--out", "out"),
        *("--format", "json", "--split-seed", "1"),
    ).json
    overlapping = [
        name
        for name, verdict in said["verdicts"].items()
        if verdict in ("better", "worse")
        and said["before"][name]["low"] <= said["after"][name]["high"]
        and said["after"][name]["low"] <= said["before"][name]["high"]
    ]
    assert overlapping
    for name, verdict in said["verdicts"].items():
        change = said["change"][name]
        assert (verdict in ("better", "worse", "changed")) == (change["low"] > 0 or change["high"] < 0)
    page = Path("out/report.html").read_text()
    headline = page.split('class="lead">')[1].split("</p>")[0]
    assert f": {said['verdicts']['ece']}." in headline


def test_test_files_are_measured_instead(shell: Shell, scores: Path) -> None:
    overconfident(911, 4, 1).to_parquet("test.parquet")
    words = ("calibrate", scores, "--method", "platt-scaling", "--privacy", "open", "--out", "out", "--format", "json")
    fitted = Path("out/calibrator.json")
    tested = shell(*words, "--test", "test.parquet").json
    with_all = read_document(fitted)[0]
    assert shell(*words, "--holdout", "0").json["before"] is None
    assert read_document(fitted)[0] == with_all, "test files leave every record to the fit"
    evaluated = shell("evaluate", "test.parquet", "--calibrator", "out/calibrator.json", "--format", "json").json
    for name in ("ece", "nll", "brier", "accuracy"):
        assert evaluated["metrics"][name]["value"] == pytest.approx(tested["after"][name]["value"], abs=1e-6)
        assert evaluated["metrics"][name]["high"] == pytest.approx(tested["after"][name]["high"], abs=1e-2)


def test_without_records_to_measure_on_it_says_so(shell: Shell, scores: Path) -> None:
    said = shell(
        *("calibrate", scores, "--method", "fed-bin", "--privacy", "open", "--out", "out", "--format", "json"),
        *("--holdout", "0"),
    )
    assert said.json["before"] is None
    assert said.json["after"] is None
    assert "not measured" in said.json["warnings"][0]
    assert set(said.json["files"]) == {"calibrator", "result", "report"}


def test_metrics_that_a_model_cannot_serve_are_null_with_a_warning(shell: Shell, scores: Path) -> None:
    said = shell(
        *("calibrate", scores, "--method", "one-shot-temperature", "--privacy", "user", "--epsilon", "4"),
        *("--delta", "1e-5", "--out", "out", "--format", "json"),
    )
    assert said.code == 0, said.err
    assert said.json["before"] is None
    assert any("not measured" in warning and "needs a clip" in warning for warning in said.json["warnings"])
    assert said.json["privacy"]["epsilon"] == pytest.approx(4.0), "the calibration has the budget to itself"


def test_several_classes_have_no_auc(shell: Shell, home: Path) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(900, 4)) * 3
    table = pd.DataFrame(logits, columns=[f"logit_{j}" for j in range(4)])
    table["label"] = np.where(rng.random(900) < 0.6, logits.argmax(axis=1), rng.integers(0, 4, 900))
    for index in range(4):
        table[index::4].to_parquet(home / f"hospital-{index}.parquet")
    said = shell(
        *("calibrate", "hospital-*.parquet", "--method", "one-shot-temperature", "--privacy", "secagg"),
        *("--out", "out", "--format", "json"),
    )
    assert said.code == 0, said.err
    assert said.json["sites"] == 4
    assert said.json["before"].get("auc") is None
    assert said.json["after"]["nll"]["value"] < said.json["before"]["nll"]["value"]


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        (["secagg"], 6),  # a temperature, two chains side by side, offsets
        (["user", "--epsilon", "8", "--delta", "1e-5"], 2),  # votes, shifts by class
        (["user", "--epsilon", "1", "--delta", "1e-5"], 1),  # too little for shifts
        (["distributed", "--epsilon", "8"], 2),
    ],
    ids=str,
)
def test_auto_is_told_the_budget_and_whom_it_hides(shell: Shell, home: Path, model: list[str], asked: int) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(900, 4)) * 3, columns=[f"logit_{j}" for j in range(4)])
    table["label"], table["site"] = rng.integers(0, 4, 900), np.arange(900) % 100
    table.to_parquet(home / "all.parquet")
    said = shell(
        *("calibrate", "all.parquet", "--method", "auto", "--privacy", *model, "--holdout", "0"),
        *("--format", "json", "--dry-run"),
    )
    assert said.code == 0, said.err
    (phase,) = said.json["phases"]
    assert len(phase["queries"]) == asked


def test_a_unit_column_keeps_one_record_each_and_says_for_whom_it_holds(shell: Shell, scores: Path) -> None:
    words = ("calibrate", scores, "--method", "fed-bin", "--out", "out", "--format", "json", "--unit", "patient")
    table = pd.read_csv(scores)
    said = shell(*words, "--privacy", "open")
    assert said.json["records"] == len(table.groupby(["site", "patient"]))
    said = shell(*words, "--privacy", "distributed", "--epsilon", "2")
    assert "One record of each 'patient' was kept at each site" in said.json["privacy"]["statement"]


def test_dry_run_asks_nothing_and_leaves_nothing(shell: Shell, scores: Path, home: Path) -> None:
    said = shell(
        *("calibrate", scores, "--method", "fed-bin", "--privacy", "distributed", "--epsilon", "1", "--dry-run"),
        *("--format", "json", "--rounds", "2", "--ledger", "ledger.db"),
    )
    assert said.code == 0, said.err
    assert sorted(path.name for path in home.iterdir()) == ["scores.csv"]
    assert [phase["phase"] for phase in said.json["phases"]] == ["calibration", "measurement"]
    first = said.json["phases"][0]
    assert len(first["queries"]) == 2
    assert first["bytes_per_client"] == 2 * 2 * 15 * 8
    assert first["queries"][0]["blocks"][0]["l1"] == 1.0
    assert said.json["privacy"]["epsilon"] == pytest.approx(1.0)
    assert "Nothing was asked" in said.err


def test_a_failure_leaves_no_file(shell: Shell, scores: Path, home: Path) -> None:
    (home / "out" / "report.html").mkdir(parents=True)
    said = shell("calibrate", scores, "--method", "fed-bin", "--privacy", "open", "--out", "out")
    assert said.code == 2
    assert "found a directory" in said.err
    assert [path.name for path in (home / "out").iterdir()] == ["report.html"]
    assert not (home / "state").exists(), "it is found out before anything is asked"
    (home / "file").write_text("")
    assert shell("calibrate", scores, "--method", "fed-bin", "--privacy", "open", "--out", "file").code == 2
    assert shell("calibrate", scores, "--method", "fed-bin", "--privacy", "open", "--out", "file/deep").code == 2


def test_the_report_shows_single_sites_where_nothing_is_hidden(shell: Shell, scores: Path) -> None:
    names = sorted(set(pd.read_csv(scores).site.astype(str)))
    words = ("calibrate", scores, "--method", "fed-bin", "--format", "json", "--simulate-seed", "1")
    assert shell(*words, "--privacy", "open", "--out", "seen").code == 0
    assert shell(*words, "--privacy", "secagg", "--out", "hidden").code == 0
    seen, hidden = (Path(place, "report.html").read_text() for place in ("seen", "hidden"))
    assert "Site by site" in seen
    assert all(name in seen for name in names)
    assert "Site by site" not in hidden
    assert "Single sites are not shown" in hidden
