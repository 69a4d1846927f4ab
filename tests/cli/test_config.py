from __future__ import annotations

from pathlib import Path

import pytest

from fedcalib import wire
from fedcalib.method import Method
from fedcalib.registry import Registered, choices, kebab
from tests.cli.conftest import Shell


def test_every_flag_can_stand_in_the_file(shell: Shell, scores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDCALIB_STATE")
    Path("fedcalib.toml").write_text(
        """
        files = ["scores.csv"]
        privacy = "distributed"
        epsilon = 3.0
        format = "json"
        state = "elsewhere"

        [calibrate]
        method = "fed-bin"
        out = "out"
        rounds = 1
        holdout = 0.25
        set = ["bins=7"]
        dry-run = true
        participation = "disjoint"
        """
    )
    said = shell("calibrate")
    assert said.code == 0, said.err
    assert said.json["privacy"]["epsilon"] == pytest.approx(3.0)
    assert [query["numbers"] for query in said.json["phases"][0]["queries"]] == [14]
    assert shell("evaluate").json["privacy"]["epsilon"] == pytest.approx(3.0)
    assert Path("elsewhere").is_dir()


def test_the_command_line_wins(shell: Shell, scores: Path) -> None:
    Path("fedcalib.toml").write_text('privacy = "distributed"\nepsilon = 3.0\n[evaluate]\nepsilon = 2.0\n')
    words = ("evaluate", scores, "--dry-run", "--format", "json")
    assert shell(*words).json["privacy"]["epsilon"] == 2.0
    assert shell(*words, "--epsilon", "1").json["privacy"]["epsilon"] == 1.0


def test_another_file_can_be_named(shell: Shell, scores: Path) -> None:
    Path("fedcalib.toml").write_text("nonsense = 1\n")
    Path("other.toml").write_text('format = "json"\n')
    assert shell("evaluate", scores, "--config", "other.toml").json["schema_version"] == 1
    assert shell("evaluate", scores, "--config=absent.toml").code == 2


BAD = {
    "epsilom = 1\n": "'epsilom'",
    '[calibrat]\nmethod = "x"\n': "[calibrat]",
    '[evaluate]\nmethod = "x"\n': "[evaluate]",
    "epsilon = \n": "TOML",
    'config = "x.toml"\n': "'config'",
    "[evaluate.epsilon]\nvalue = 1\n": "found a table",
    'privacy = "distributed"\nepsilon = "much"\n': "Invalid value for",
    'format = "xml"\n': "'xml'",
}


@pytest.mark.parametrize("content", BAD)
def test_mistakes_in_the_file_are_named(shell: Shell, scores: Path, content: str) -> None:
    Path("fedcalib.toml").write_text(content)
    said = shell("evaluate", scores)
    assert said.code == 2
    assert BAD[content] in said.err
    assert "Traceback" not in said.err


def test_errors_come_as_json_when_the_file_says_so(shell: Shell, home: Path) -> None:
    Path("fedcalib.toml").write_text('format = "json"\n')
    assert shell("evaluate", "absent.csv").json["exit_code"] == 2


@pytest.mark.parametrize("entry", choices("method"), ids=lambda entry: entry.word)
def test_every_listed_method_is_built_and_can_be_written_down(entry: Registered) -> None:
    built = entry.build({})
    assert isinstance(built, Method)
    assert wire.loads(wire.dumps(built)) == built
    assert entry.summary
    assert entry.word == entry.word.lower()


def test_words_are_told_apart() -> None:
    for entries in (choices("method"), choices("privacy")):
        assert len({entry.word for entry in entries}) == len(entries)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("FedBin", "fed-bin"),
        ("FedBBQ", "fed-bbq"),
        ("FedOPVector", "fed-op-vector"),
        ("FedOpVector", "fed-op-vector"),
        ("AccT", "acc-t"),
        ("OneShotTemperature", "one-shot-temperature"),
        ("Auto", "auto"),
    ],
)
def test_classes_are_spelt_as_words(name: str, word: str) -> None:
    assert kebab(name) == word


def test_a_flag_may_stand_in_the_environment_under_its_own_name(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDCALIB_PLAN_FORMAT", "json")
    monkeypatch.setenv("FEDCALIB_PLAN_RECORDS", "1000")
    said = shell("plan", "--metric", "accuracy", "--epsilon", 1)
    assert said.code == 0 and said.json["command"] == "plan"
    assert "FEDCALIB" not in shell("plan", "--help").out
