"""A command that was cut short goes on where it stopped, and a finished one is replayed."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

import fedcalib as fc
from tests.cli.conftest import Shell

WORDS = ("calibrate", "scores.csv", "--method", "fed-bin", "--privacy", "distributed", "--epsilon", "1")
MORE = ("--rounds", "4", "--format", "json")

DIE = """
import os
from fedcalib.transcript import Transcript
answered = Transcript.note_answer
def dying(self, step, *rest):
    answer = answered(self, step, *rest)
    if step == {step}:
        os._exit(9)
    return answer
Transcript.note_answer = dying
"""

DIE_BETWEEN = """
import os
from fedcalib.transcript import Transcript
def dying(self, step, *rest):
    os._exit(9)
Transcript.note_answer = dying
"""


def transcripts(home: Path) -> dict[str, list[dict[str, object]]]:
    found = sorted(home.glob("state/*/*.jsonl"))
    return {path.stem: [json.loads(line) for line in path.read_text().splitlines()] for path in found}


@pytest.mark.e2e
def test_a_killed_run_goes_on_without_asking_again(process: Shell, shell: Shell, scores: Path, home: Path) -> None:
    assert process(*WORDS, *MORE, "--out", "out", before=DIE.format(step=1)).code == 9
    assert not (home / "out").exists(), "nothing is half-written"
    before = transcripts(home)["calibration"]
    assert [line["state"] for line in before] == ["begun", "asked", "answered", "asked", "answered"]

    said = shell(*WORDS, *MORE, "--out", "out")
    assert said.code == 0, said.err
    assert "Resumed: 2 answers of the earlier run were replayed, 3 asked." in said.err
    after = transcripts(home)["calibration"]
    assert after[: len(before)] == before, "what was answered stays as it was"
    assert [line["step"] for line in after if line["state"] == "asked"] == [0, 1, 2, 3]
    assert said.json["privacy"]["epsilon"] == pytest.approx(1.0), "nothing was spent twice"
    assert said.json["replayed"] is False


@pytest.mark.e2e
def test_a_question_without_an_answer_is_paid_twice(process: Shell, shell: Shell, scores: Path, home: Path) -> None:
    assert process(*WORDS, *MORE, "--out", "out", before=DIE_BETWEEN).code == 9
    said = shell(*WORDS, *MORE, "--out", "out")
    assert said.code == 0, said.err
    asked = [line["step"] for line in transcripts(home)["calibration"] if line["state"] == "asked"]
    assert asked == [0, 0, 1, 2, 3]
    assert said.json["privacy"]["epsilon"] == pytest.approx(1.25), "the first of four questions was asked twice"
    assert "sent again" in said.json["privacy"]["statement"]


def test_a_torn_last_line_is_what_a_crash_leaves(shell: Shell, scores: Path, home: Path) -> None:
    first = shell(*WORDS, *MORE, "--out", "out").json
    path = next(home.glob("state/*/measurement.jsonl"))
    whole = path.read_text()
    path.write_text(whole[: len(whole) - 300])
    said = shell(*WORDS, *MORE, "--out", "out")
    assert said.code == 0, said.err
    assert said.json["after"] != first["after"], "the answer was lost, so it had to be asked again"
    assert said.json["privacy"]["epsilon"] == pytest.approx(2.0), "the measurement, and the measurement again"


def test_a_finished_command_is_replayed_and_says_so(shell: Shell, scores: Path, home: Path) -> None:
    first = shell(*WORDS, *MORE, "--out", "out")
    kept = transcripts(home)
    again = shell(*WORDS, *MORE, "--out", "elsewhere")
    assert first.json["replayed"] is False
    assert again.json["replayed"] is True
    assert "nobody was asked again" in again.err
    assert {key: again.json[key] for key in ("before", "after", "privacy")} == {
        key: first.json[key] for key in ("before", "after", "privacy")
    }
    assert transcripts(home) == kept
    same = [Path(folder, "calibrator.json").read_bytes() for folder in ("out", "elsewhere")]
    assert same[0] == same[1]


def test_another_command_or_other_data_is_another_run(shell: Shell, scores: Path, home: Path) -> None:
    words = ("evaluate", "scores.csv", "--privacy", "distributed", "--format", "json")
    first = shell(*words, "--epsilon", "1").json
    assert shell(*words, "--epsilon", "2").json["replayed"] is False
    scores.write_text(scores.read_text() + "site-0,0.5,1,9\n")
    changed = shell(*words, "--epsilon", "1").json
    assert changed["replayed"] is False
    assert changed["metrics"] != first["metrics"]
    assert sum(path.is_dir() for path in (home / "state").iterdir()) == 3


def test_the_state_directory_is_private(shell: Shell, scores: Path, home: Path) -> None:
    (home / "state").mkdir(mode=0o755)
    shell("evaluate", "scores.csv")
    folder = next(path for path in (home / "state").iterdir() if path.is_dir())
    for path in (home / "state", folder):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_same_command_does_not_run_twice_at_once(shell: Shell, scores: Path, home: Path) -> None:
    import fcntl

    assert shell("evaluate", "scores.csv").code == 0
    with next(home.glob("state/*/lock")).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        said = shell("evaluate", "scores.csv")
    assert said.code == 2
    assert "running already" in said.err


def test_a_damaged_transcript_is_refused(shell: Shell, scores: Path, home: Path) -> None:
    assert shell("evaluate", "scores.csv").code == 0
    path = next(home.glob("state/*/evaluation.jsonl"))
    path.write_text("{}\n" + path.read_text())
    said = shell("evaluate", "scores.csv")
    assert said.code == 2
    assert "evaluation.jsonl" in said.err


def test_a_transcript_in_use_is_refused_by_name(shell: Shell, scores: Path, home: Path) -> None:
    """A program of one's own may have it open, which knows nothing of the lock on the state directory."""
    assert shell(*WORDS, *MORE, "--out", "out").code == 0
    path = next(home.glob("state/*/calibration.jsonl"))
    whole = path.read_bytes()
    with fc.Transcript.open(path):
        said = shell(*WORDS, *MORE, "--out", "out")
    assert said.code == 2
    assert f"{path} is in use by another run" in said.json["error"]
    assert path.read_bytes() == whole
    assert shell(*WORDS, *MORE, "--out", "out").code == 0
