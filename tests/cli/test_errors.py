"""What goes wrong is said in words, with an exit code that holds, and nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedcalib
from fedcalib import errors
from fedcalib.cli.voice import exit_code
from tests.cli.conftest import Shell

GOOD = "site,score,label\n" + "".join(f"{'abc'[i % 3]},0.{i % 9},{i % 2}\n" for i in range(40))
OPEN = ("--method", "fed-bin", "--privacy", "open", "--out", "out")

BAD_FILES = {
    "missing column": ("score,y\n0.5,1\n", ["bad.csv", "'label'"]),
    "label out of range": (GOOD + "a,0.5,7\n", ["bad.csv", "'label'", "row 41", "7"]),
    "non-numeric": (GOOD + "a,high,1\n", ["bad.csv", "'score'", "row 41", "'high'"]),
    "out of range": (GOOD + "a,1.5,1\n", ["bad.csv", "'score'", "row 41", "1.5"]),
    "only NaN": ("score,label\nnan,1\nnan,0\n", ["bad.csv", "'score'", "row 1", "all 2"]),
    "sums": ("p_0,p_1,label\n0.5,0.9,1\n", ["bad.csv", "'p_0'", "row 1", "1.4"]),
    "empty": ("", ["bad.csv", "empty"]),
    "header only": ("score,label\n", ["bad.csv", "no rows"]),
    "one class": ("score,label\n0.5,1\n0.6,1\n", ["bad.csv", "'label'", "class 1"]),
    "mostly no site": ("site,score,label\n,0.5,1\n,0.2,0\na,0.5,1\n", ["bad.csv", "'site'", "row 1", "--max-missing"]),
    "ragged": (GOOD + "a,0.5\n", ["bad.csv", "row 41"]),
    "ambiguous": ("score,p_0,p_1,label\n", ["bad.csv", "'score'", "'p_*'"]),
}


@pytest.mark.parametrize("case", BAD_FILES)
@pytest.mark.parametrize("command", ["calibrate", "evaluate"])
def test_bad_files_are_named(shell: Shell, home: Path, case: str, command: str) -> None:
    content, words = BAD_FILES[case]
    (home / "bad.csv").write_text(content)
    said = shell(command, "bad.csv", "--one-site", *(OPEN if command == "calibrate" else ()))
    assert said.code == 2
    assert said.out == ""
    assert "Traceback" not in said.err
    for word in words:
        assert word in said.err
    assert not (home / "out").exists()


USAGE = {
    "no out": (("calibrate", "good.csv", "--method", "fed-bin", "--privacy", "open"), "--out DIR"),
    "unknown method": (("calibrate", "good.csv", "--method", "x", *OPEN[2:]), "found x"),
    "unknown model": (("evaluate", "good.csv", "--privacy", "x"), "found x"),
    "no files": (("calibrate", *OPEN), "Missing argument '"),
    "unknown command": (("calibrat",), "No such command"),
    "unknown flag": (("evaluate", "good.csv", "--epsilom", "1"), "No such option"),
    "no number": (("evaluate", "good.csv", "--epsilon", "x"), "Invalid value for '--epsilon'"),
    "no epsilon": (("evaluate", "good.csv", "--privacy", "distributed"), "--epsilon with distributed"),
    "no delta": (("evaluate", "good.csv", "--privacy", "user", "--epsilon", "1"), "--delta with user"),
    "negative epsilon": (("evaluate", "good.csv", "--privacy", "distributed", "--epsilon", "-1"), "epsilon above 0"),
    "epsilon for nothing": (
        ("evaluate", "good.csv", "--privacy", "open", "--epsilon", "1"),
        "--privacy open, which takes none",
    ),
    "colluding for nothing": (("evaluate", "good.csv", "--colluding", "1"), "--colluding with --privacy distributed"),
    "clip for nothing": (("evaluate", "good.csv", "--clip", "1"), "--clip with --privacy user"),
    "bad holdout": (("calibrate", "good.csv", *OPEN, "--holdout", "1.5"), "--holdout"),
    "bad participation": (("evaluate", "good.csv", "--participation", "some"), "--participation"),
    "bad rate": (("evaluate", "good.csv", "--participation", "1.5"), "sampling rate"),
    "rounds for nothing": (
        ("calibrate", "good.csv", "--method", "platt-scaling", *OPEN[2:], "--rounds", "2"),
        "rounds",
    ),
    "bad setting": (("calibrate", "good.csv", *OPEN, "--set", "bins"), "NAME=VALUE"),
    "unknown setting": (("calibrate", "good.csv", *OPEN, "--set", "bin=3"), "bins, rounds"),
    "bad value": (("calibrate", "good.csv", *OPEN, "--set", "bins=many"), "bins=many"),
    "absent file": (("evaluate", "absent.csv"), "absent.csv"),
    "two kinds": (("evaluate", "good.csv", "--score", "score", "--probs", "p_*"), "score and probs"),
    "absent column": (("evaluate", "good.csv", "--site", "hospital"), "'hospital' in good.csv"),
    "directory": (("evaluate", "."), "directory"),
    "no calibrator": (("evaluate", "good.csv", "--calibrator", "good.csv"), "good.csv"),
    "absent test": (("calibrate", "good.csv", *OPEN, "--test", "absent.csv"), "absent.csv"),
    "a file twice": (("evaluate", "good.csv", "./good.csv"), "good.csv twice; name each file once"),
    "a label as score": (("evaluate", "good.csv", "--score", "label"), "'label' of good.csv is stated twice"),
    "a label as site": (("evaluate", "good.csv", "--site", "label"), "'label' of good.csv is stated twice"),
    "fitted and tested": (("calibrate", "good.csv", *OPEN, "--test", "copy.csv"), "the same file or frame in both"),
    "a plan of nothing": (
        ("plan", "--metric", "auc", "--target-error", "0.1"),
        "an --epsilon above 0 under 'distributed', found none",
    ),
    "no bundle": (("verify", "absent.zip"), "in absent.zip, found: No such file or directory."),
    "bad state": (("evaluate", "good.csv", "--state", "good.csv"), "state directory"),
}


@pytest.mark.parametrize("case", USAGE)
def test_wrong_usage_ends_with_two(shell: Shell, home: Path, case: str) -> None:
    (home / "good.csv").write_text(GOOD)
    (home / "copy.csv").write_text(GOOD)
    argv, words = USAGE[case]
    said = shell(*argv)
    assert said.code == 2, said
    assert said.out == ""
    assert words in said.err
    assert "Traceback" not in said.err
    assert not (home / "out").exists()


def test_a_cohort_that_is_too_small_ends_with_four(shell: Shell, home: Path) -> None:
    (home / "two.csv").write_text(GOOD.replace("c,", "b,"))
    said = shell(
        "calibrate", "two.csv", "--method", "fed-bin", "--privacy", "secagg", "--out", "out", "--format", "json"
    )
    assert said.code == 4
    assert "at least 3 clients" in said.json["error"]
    assert not (home / "out").exists()


def test_every_error_has_its_code() -> None:
    codes = {
        errors.InputError: 2,
        errors.TranscriptError: 2,
        errors.WireError: 2,
        errors.LedgerError: 2,
        errors.BudgetError: 3,
        errors.RefusedError: 4,
        errors.PolicyError: 4,
        errors.TooFewClients: 4,
        errors.PlanError: 1,
        ValueError: 1,
    }
    assert {kind: exit_code(kind("x")) for kind in codes} == codes


BROKEN = (
    "import fedcalib.workflows.evaluation as e\ndef broken(*_): raise ValueError('oops')\ne.Evaluation.run = broken"
)


@pytest.mark.e2e
def test_a_bug_of_ours_ends_with_one_and_shows_no_traceback(process: Shell, scores: Path) -> None:
    said = process("evaluate", scores, "--format", "json", before=BROKEN)
    assert said.code == 1
    assert "bug in fedcalib (ValueError: oops)" in said.err
    assert "Traceback" not in said.err
    assert said.json["exit_code"] == 1
    assert "Traceback" in process("evaluate", scores, "--debug", before=BROKEN).err


@pytest.mark.e2e
def test_json_is_all_that_a_process_writes_to_stdout(process: Shell, scores: Path) -> None:
    said = process("evaluate", scores, "--format", "json")
    assert said.code == 0
    assert said.json["schema_version"] == 1
    failed = process("evaluate", "absent.csv", "--format=json")
    assert failed.code == 2
    assert failed.json["schema_version"] == 1
    assert "absent.csv" in failed.json["error"]


def piped(line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell in which `$FEDCALIB` is the command."""
    source = str(Path(fedcalib.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "FEDCALIB": f"{sys.executable} -m fedcalib"}
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, env=environment)


@pytest.mark.e2e
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk without room")
@pytest.mark.parametrize("flags", ["methods", "methods --format json", "--version", "--help"])
def test_a_full_disk_is_no_bug(home: Path, flags: str) -> None:
    said = piped(f"$FEDCALIB {flags} > /dev/full")
    assert said.returncode == 2
    assert said.stderr.endswith(
        "Error: Expected to write the output, found: No space left on device. Make room, and run the command again.\n"
    )
    assert "Traceback" not in said.stderr


@pytest.mark.e2e
def test_a_reader_that_leaves_ends_a_command_quietly(home: Path) -> None:
    said = piped("$FEDCALIB methods | true; echo ${PIPESTATUS[0]}")
    assert (said.stdout, said.stderr) == ("141\n", "")


@pytest.mark.e2e
def test_streams_that_are_closed_take_nothing(home: Path) -> None:
    assert piped("$FEDCALIB methods >&-").returncode == 0
    assert piped("$FEDCALIB nosuch 2>&-").returncode == 2


@pytest.mark.e2e
def test_an_interrupt_while_modules_are_loaded_ends_with_130(process: Shell) -> None:
    code = (
        "import sys\nclass Stop:\n def find_spec(self, name, *_):\n"
        "  if name == 'fedcalib.cli.app': raise KeyboardInterrupt\nsys.meta_path.insert(0, Stop())"
    )
    said = process("methods", before=code)
    assert (said.code, said.out, said.err) == (130, "", "Error: Interrupted.\n")


@pytest.mark.e2e
def test_what_a_library_does_at_the_end_changes_no_exit_code(process: Shell) -> None:
    said = process("evaluate", "nowhere.csv", before="import atexit, os\natexit.register(os.abort)")
    assert (said.code, said.out) == (2, "")
    assert "nowhere.csv" in said.err


@pytest.mark.e2e
def test_an_interrupt_ends_with_130(process: Shell, scores: Path) -> None:
    code = "import fedcalib.workflows.evaluation as e\ndef stop(*_): raise KeyboardInterrupt\ne.Evaluation.run = stop"
    said = process("evaluate", scores, before=code)
    assert said.code == 130
    assert "Run the same command again" in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize("bundle", [".", "scores.csv/bundle.zip"])
@pytest.mark.parametrize("command", ["calibrate", "evaluate", "plan"])
def test_a_bundle_that_cannot_be_written_is_refused_before_anything_is_spent(
    shell: Shell, scores: Path, command: str, bundle: str
) -> None:
    words = (
        ("--metric", "ece", "--target-error", "0.05", "--epsilon", "1")
        if command == "plan"
        else (scores, "--epsilon", "1")
    )
    flags = ("--out", "out") if command == "calibrate" else ()
    said = shell(command, *words, *flags, "--bundle", bundle, *(() if command == "plan" else ("--ledger", "ledger.db")))
    assert (said.code, said.out) == (2, "")
    assert "--bundle" in said.err
    assert not Path("ledger.db").exists()
