"""What somebody who types a command for the first time meets: defaults, suggestions, help and one kind of result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fedcalib
from fedcalib.registry import choices
from tests.cli.conftest import Shell, overconfident


@pytest.fixture
def scores(home: Path) -> Path:
    table = overconfident(900, 4, 0)
    table["day"] = table.index // 60
    table.to_csv(home / "scores.csv", index=False)
    return home / "scores.csv"


def test_calibrate_needs_files_and_a_folder_only(shell: Shell, scores: Path) -> None:
    document = shell("calibrate", scores, "--out", "out", "--format", "json").json
    assert document["method"] == "auto"
    assert document["privacy"]["model"] == "SecAgg"
    noisy = shell("calibrate", scores, "--epsilon", 2, "--out", "noisy", "--format", "json").json
    assert (noisy["privacy"]["model"], noisy["privacy"]["epsilon"]) == ("DistributedDP", 2.0)


@pytest.mark.parametrize("command", [("evaluate",), ("monitor",), ("compare", "--repeats", 1, "--methods", "fed-bin")])
def test_nothing_shows_single_sites_by_default(shell: Shell, scores: Path, command: tuple[object, ...]) -> None:
    document = shell(*command, scores, "--format", "json").json
    assert document["privacy"]["model"] == "SecAgg"
    assert not document.get("per_site")


def test_one_site_is_told_which_models_serve_it(shell: Shell, home: Path) -> None:
    overconfident(200, 1, 0).drop(columns="site").to_csv(home / "one.csv", index=False)
    said = shell("evaluate", "one.csv", "--one-site")
    assert said.code == 4
    assert "found 1" in said.err and "(open)" in said.err
    assert shell("evaluate", "one.csv", "--one-site", "--privacy", "open").code == 0


MISSPELT = {
    ("calibrate", "scores.csv", "--method", "isotonic", "--out", "out"): "Did you mean 'isotonic-buckets'?",
    ("calibrate", "scores.csv", "--method", "Platt", "--out", "out"): "Did you mean 'platt-scaling'?",
    ("calibrate", "scores.csv", "--method", "fedbin", "--out", "out"): "Did you mean 'fed-bin'?",
    ("compare", "scores.csv", "--methods", "fed-bin,platt"): "Did you mean 'platt-scaling'?",
    ("evaluate", "scores.csv", "--privacy", "secag"): "Did you mean 'secagg'?",
    ("evaluate", "scores.csv", "--epsilom", "1"): "--epsilon",
    ("calibrat", "scores.csv"): "Did you mean 'calibrate'?",
}


@pytest.mark.parametrize("command", MISSPELT, ids=" ".join)
def test_a_misspelt_word_is_answered_by_the_right_one(shell: Shell, scores: Path, command: tuple[str, ...]) -> None:
    said = shell(*command)
    assert said.code == 2
    assert said.err.count(MISSPELT[command]) == 1


FLAGS = {
    ("evaluate", "scores.csv", "--privacy", "secagg", "--epsilon", "1"): "--epsilon with --privacy distributed, local",
    ("evaluate", "scores.csv", "--colluding", "1"): "--colluding with --privacy distributed, found --privacy secagg",
    ("evaluate", "scores.csv", "--site", "clinic"): "name the column with --site",
    ("evaluate", "scores.csv", "--label", "dead"): "name the column with --label",
    ("evaluate", "other.csv"): "state --score, --logits or --probs",
    ("evaluate", "words.csv"): "--positive",
    ("evaluate", "percent.csv"): "--percent",
    ("evaluate", "alone.csv"): "--one-site",
    ("evaluate", "scores.csv", "--max-missing", "2"): "Expected --max-missing between",
    ("monitor", "scores.csv", "--epsilon", "1"): "Expected --from and --until with",
}


@pytest.mark.parametrize("command", FLAGS, ids=" ".join)
def test_messages_speak_of_flags(shell: Shell, home: Path, scores: Path, command: tuple[str, ...]) -> None:
    table = pd.read_csv(scores)
    table.rename(columns={"score": "risk"}).to_csv(home / "other.csv", index=False)
    table.assign(label=table.label.map({0: "no", 1: "yes"})).to_csv(home / "words.csv", index=False)
    table.assign(score=100 * table.score).to_csv(home / "percent.csv", index=False)
    table.drop(columns="site").to_csv(home / "alone.csv", index=False)
    said = shell(*command)
    assert said.code == 2
    assert FLAGS[command] in said.err
    for python in ("=True", "one_site", "max_missing", "in Python", "fc.", "state score"):
        assert python not in said.err


def test_notes_speak_of_flags_too(shell: Shell, home: Path, scores: Path) -> None:
    table = pd.read_csv(scores)
    table.assign(patient=table.index // 2).to_csv(home / "people.csv", index=False)
    said = shell("evaluate", "people.csv", "--epsilon", 1)
    assert "several records, state --unit patient." in said.err
    assert "name one with --ledger to count it" in said.err
    assert "If a person must count once, state --unit patient." in shell("evaluate", "people.csv").err


def test_a_missing_clip_is_a_flag_too(shell: Shell, scores: Path) -> None:
    private = ("--privacy", "user", "--epsilon", 50, "--delta", "1e-5")
    said = shell("calibrate", scores, *private, "--out", "out")
    assert "Add --clip 10" in said.err
    assert "UserGaussian(" not in said.err


def test_help_marks_what_is_required(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    said = " ".join(shell("calibrate", "--help").out.split())
    assert "FILES... CSV, Parquet, NPZ or Excel files" in said
    assert "[required]" in said
    assert "Directory of the results. Required, unless --dry-run is given." in said
    assert "[default: auto]" in said
    assert "[default: (secagg; distributed with --epsilon)]" in said
    assert "[required]" in shell("plan", "--help").out


def test_methods_are_explained_in_a_sentence(shell: Shell) -> None:
    listed = shell("methods", "--format", "json").json
    for row in (*listed["methods"], *listed["privacy"]):
        assert 25 < len(row["summary"]) <= 120, row["name"]
        assert row["summary"].endswith(".") and "`" not in row["summary"], row["name"]
    assert [row["name"] for row in listed["methods"]] == [row.word for row in choices("method")]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fedcalib cal", "calibrate"),
        ("fedcalib calibrate --method pla", "platt-scaling"),
        ("fedcalib evaluate --privacy se", "secagg"),
    ],
)
def test_a_shell_completes_words(words: str, expected: str) -> None:
    code = "import sys; sys.argv = ['fedcalib']\nfrom fedcalib.cli import main\nmain()"
    place = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1), "_FEDCALIB_COMPLETE": "complete_bash"}
    source = str(Path(fedcalib.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=True, env={**os.environ, **place, "PYTHONPATH": source},
    )  # fmt: skip
    assert done.stdout.split() == [expected]


COMMANDS: dict[str, tuple[object, ...]] = {
    "calibrate": ("calibrate", "scores.csv", "--method", "fed-bin"),
    "evaluate": ("evaluate", "scores.csv"),
    "compare": ("compare", "scores.csv", "--methods", "fed-bin", "--repeats", 1),
    "monitor": ("monitor", "scores.csv", "--recalibrate"),
    "plan": ("plan", "--metric", "auc", "--records", 500, "--epsilon", 1),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_result_is_in_result_json(shell: Shell, home: Path, scores: Path, name: str) -> None:
    printed: dict[str, Any] = shell(*COMMANDS[name], "--out", "out", "--format", "json").json
    stored = json.loads((home / "out" / "result.json").read_text())
    assert set(stored) - set(printed) <= {"thresholds"} and set(printed) - set(stored) == {"files"}
    assert all(stored[part] == printed[part] for part in stored if part != "thresholds")
    assert printed["schema_version"] == 1
    assert printed["command"] == name
    assert {"model", "epsilon", "simulation", "statement"} <= set(printed["privacy"])
    assert isinstance(printed["warnings"], list)
    assert printed["files"]["result"] == str(Path("out") / "result.json")
    assert all((home / path).is_file() for path in printed["files"].values())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_where_its_files_are(shell: Shell, home: Path, scores: Path, name: str) -> None:
    printed = shell(*COMMANDS[name], "--out", "out").out
    for file in (home / "out").iterdir():
        assert f"out/{file.name}" in printed


LEVELS = {
    ("calibrate", "scores.csv", "--method", "fed-bin", "--out", "out"): "not fitted, with 95% intervals",
    ("evaluate", "scores.csv"): "All sites together, with 95% intervals",
    ("monitor", "scores.csv"): "value (95% interval)",
    ("compare", "scores.csv", "--methods", "fed-bin", "--repeats", "2"): "one standard deviation over 2 splits",
    ("compare", "scores.csv", "--methods", "fed-bin", "--spend", "--epsilon", "9"): "half of a 95% interval",
}


@pytest.mark.parametrize("command", LEVELS, ids=" ".join)
def test_tables_state_the_level_of_their_intervals(shell: Shell, scores: Path, command: tuple[str, ...]) -> None:
    printed = shell(*command).out
    assert LEVELS[command] in printed
    assert "-0.0000" not in printed


def test_an_evaluation_takes_the_class_names_of_its_calibrator(shell: Shell, home: Path) -> None:
    """The files name no order of the words; the calibrator does."""
    table = overconfident(600, 4, 0)
    table["label"] = table.label.map({0: "well", 1: "ill"})
    table.to_csv(home / "scores.csv", index=False)
    made = shell(
        "calibrate", "scores.csv", "--classes", "well,ill", "--split-seed", 1, "--out", "out", "--format", "json"
    )
    assert shell("evaluate", "scores.csv").code == 2
    named = shell("evaluate", "scores.csv", "--calibrator", "out/calibrator.json", "--format", "json").json
    stated = shell(
        "evaluate", "scores.csv", "--calibrator", "out/calibrator.json", "--classes", "well,ill", "--format", "json"
    )
    assert made.code == 0
    assert named["metrics"] == stated.json["metrics"]
    wrong = shell(
        "evaluate", "scores.csv", "--calibrator", "out/calibrator.json", "--classes", "ill,well", "--format", "json"
    )
    assert wrong.json["metrics"]["auc"]["value"] < 0.5 < named["metrics"]["auc"]["value"]


def test_a_release_that_no_ledger_counts_is_noted(shell: Shell, scores: Path) -> None:
    private = ("evaluate", scores, "--epsilon", 2)
    assert "Releases about the same people add up" in shell(*private).err
    shell("ledger", "limit", "budget.db", "default", "--epsilon", 5)
    assert "add up" not in shell(*private, "--ledger", "budget.db").err
    assert "add up" not in shell("evaluate", scores).err
    assert "add up" not in shell(*private, "--simulate-seed", 1).err
