"""Evidence bundles hold what they state, and any change to one is found; reports state who, when and what is left."""

from __future__ import annotations

import json
import re
from cProfile import Profile
from hashlib import sha256
from html import unescape
from pathlib import Path
from pstats import Stats
from zipfile import ZipFile

import pandas as pd
import pytest

import fedcalib as fc
from fedcalib.errors import InputError
from fedcalib.loop import Step, Total
from fedcalib.report.page import render
from fedcalib.workflows import calibrate, evaluate, monitor
from fedcalib.workflows.evidence import MANIFEST, verify
from fedcalib.workflows.facts import About
from tests.cli.conftest import Shell, home, overconfident, shell  # noqa: F401 - fixtures

HEART = About("Heart risk 2.1", "January to June 2024", "Triage in emergency rooms", "statistics@example.org")


@pytest.fixture
def scores(home: Path) -> Path:  # noqa: F811
    overconfident(900, 4, 0).assign(day=lambda table: table.index % 28).to_csv(home / "scores.csv", index=False)
    return home / "scores.csv"


def changed(path: Path, name: str, content: bytes | None) -> Path:
    """A copy of a bundle with one file changed, added or left out."""
    with ZipFile(path) as old:
        parts = {one: old.read(one) for one in old.namelist()}
    parts[name] = parts.get(name, b"") if content is None else content
    if content is None:
        del parts[name]
    other = path.with_name("other.zip")
    with ZipFile(other, "w") as new:
        for one, part in parts.items():
            new.writestr(one, part)
    return other


def test_a_bundle_holds_the_evidence_and_is_verified(shell: Shell, scores: Path, home: Path) -> None:  # noqa: F811
    shell("ledger", "limit", "budget.db", "patients", "--epsilon", 2)
    words = ("--privacy", "distributed", "--epsilon", 0.5, "--ledger", "budget.db", "--account", "patients")
    about = ("--classifier", "Heart risk 2.1", "--period", "2024")
    fitted = ("calibrate", scores, "--method", "platt-scaling", *words, *about, "--out", "out", "--bundle", "e.zip")
    said = shell(*fitted, "--format", "json")
    assert said.code == 0, said.err
    assert said.json["bundle"] == "e.zip"
    with ZipFile("e.zip") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    named = {"report.html", "result.json", "calibrator.json", "sheet.html", "sheet.md", "privacy.txt", MANIFEST}
    assert named | {"transcripts.json", "inputs.json", "ledger.json", "versions.json"} <= set(parts)
    manifest = json.loads(parts[MANIFEST])
    assert manifest["sha256"] == {n: sha256(part).hexdigest() for n, part in parts.items() if n != MANIFEST}
    assert json.loads(parts["ledger.json"])["epsilon_left"] == "1.5"
    assert set(json.loads(parts["transcripts.json"])) == {"calibration", "measurement"}
    page = unescape(parts["report.html"].decode())
    assert "account 'patients' has epsilon = 1.5 of 2 left" in page
    assert "Heart risk 2.1" in page
    assert "fedcalib calibrate" in page
    assert re.search(r"<dt>Date of this report</dt><dd>\d{4}-\d\d-\d\d</dd>", page)
    checked = shell("verify", "e.zip", "--format", "json")
    assert checked.code == 0
    assert checked.json["whole"] is True
    assert checked.json["files"] == manifest["sha256"]


def test_any_change_is_found(shell: Shell, home: Path, scores: Path) -> None:  # noqa: F811
    path = evaluate(scores, fc.SecAgg()).bundle(home / "e.zip", HEART)
    assert not verify(path).faults
    with ZipFile(path) as archive:
        names = archive.namelist()
    for name in names:
        if name != MANIFEST:
            assert verify(changed(path, name, b"something else")).faults == (
                f"{name} was changed: its SHA-256 is not that of the manifest.",
            )
            assert verify(changed(path, name, None)).faults == (f"{name} is missing.",)
    assert verify(changed(path, "more.txt", b"")).faults == ("more.txt is not in the manifest.",)
    said = shell("verify", changed(path, "result.json", b"{}"))
    assert said.code == 2
    assert "result.json was changed" in said.err
    with ZipFile(path) as archive:
        inside = archive.getinfo("report.html")
    content = bytearray(path.read_bytes())
    content[inside.header_offset + 30 + len("report.html") + inside.compress_size // 2] ^= 1
    (home / "flipped.zip").write_bytes(content)
    assert verify(home / "flipped.zip").faults == ("report.html was changed: its SHA-256 is not that of the manifest.",)


def test_what_is_no_bundle_is_refused_in_a_sentence(shell: Shell, home: Path, scores: Path) -> None:  # noqa: F811
    (home / "no.zip").write_bytes(b"no zip file")
    with ZipFile(home / "empty.zip", "w"):
        pass
    path = evaluate(scores, fc.SecAgg()).bundle(home / "e.zip")
    for wrong in ("no.zip", "empty.zip", "absent.zip", changed(path, MANIFEST, b"[]"), scores):
        said = shell("verify", wrong)
        assert said.code == 2
        assert said.err.startswith("Error: Expected")
    with pytest.raises(InputError, match="another zip file"):
        verify(home / "empty.zip")


def test_the_same_result_makes_the_same_bundle(home: Path, scores: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    done = evaluate(scores, fc.SecAgg(), split_seed=1)
    first, second = (done.bundle(home / name).read_bytes() for name in ("a.zip", "b.zip"))
    assert first == second
    assert verify(home / "a.zip").date == "2023-11-14"


def test_digests_of_records_cannot_be_tested_by_guesses(scores: Path) -> None:
    """A plain hash of private records would let anybody who knows all but one confirm the last."""
    table = pd.read_csv(scores)
    one, other = (evaluate(table, fc.DistributedDP(1.0)).evidence for _ in range(2))
    assert set(one.inputs.values()).isdisjoint(other.inputs.values()), (
        "each run without a state has a secret of its own"
    )
    kept = [evaluate(table, fc.SecAgg(), state="state").evidence for _ in range(2)]
    assert kept[0] == kept[1], "who has the state directory computes the same"
    assert kept[0].inputs and kept[0].transcripts


def test_the_sheet_fills_in_what_the_run_knows(scores: Path) -> None:
    done = calibrate(scores, fc.PlattScaling(), fc.SecAgg())
    sheet = done.sheet(HEART)
    answers = {item.key: item.answer for item in sheet.tripod}
    assert len(sheet.tripod) == 52
    assert "January to June 2024" in answers["5b"]
    assert "Triage" in answers["3b"]
    assert "AUC" in answers["23a"]
    assert "scores.csv" in answers["5a"]
    assert not answers["17"], "nobody but the authors knows the approval"
    assert 15 < sheet.filled < 40
    markdown, page = sheet.to_markdown(), sheet.to_html()
    blanks = sum(item.blank for item in (*sheet.tripod, *sheet.card))
    assert (
        markdown.count("[to be filled in by the authors]") == page.count("[to be filled in by the authors]") == blanks
    )
    plain = calibrate(scores, fc.PlattScaling(), fc.SecAgg()).sheet()
    assert plain.filled < sheet.filled


def test_a_monitoring_can_be_bundled(scores: Path, home: Path) -> None:  # noqa: F811
    done = monitor(scores, by="week")
    assert not verify(done.bundle(home / "m.zip", HEART)).faults
    assert "Heart risk 2.1 watched over time" in render(done.contents(HEART))


def test_drawing_and_writing_a_report_is_cheap(scores: Path, home: Path) -> None:  # noqa: F811
    """Counted in calls of functions, which neither a slow machine nor the tests before this one change."""
    calibrate(scores, fc.PlattScaling(), fc.SecAgg()).report(home / "first.html")  # templates are read once
    done = calibrate(scores, fc.PlattScaling(), fc.SecAgg())
    with Profile() as drawing:
        done.report(home / "report.html")
    assert Stats(drawing).total_calls < 800_000  # twice what it takes
    assert (home / "report.html").stat().st_size < 1_500_000


def test_a_file_that_is_gone_loses_its_digest_and_nothing_else(scores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    total = fc.InProcess.total

    def removing(self: fc.InProcess, step: Step) -> Total:
        scores.unlink(missing_ok=True)
        return total(self, step)

    monkeypatch.setattr(fc.InProcess, "total", removing)
    done = evaluate(scores, fc.DistributedDP(1.0))
    assert not scores.exists()
    assert not done.evidence.inputs
    assert done.evidence.transcripts


def test_every_command_with_a_report_has_a_bundle(shell: Shell, scores: Path, home: Path) -> None:  # noqa: F811
    shell("ledger", "limit", "budget.db", "patients", "--epsilon", 2)
    paid = ("--spend", "--epsilon", 1, "--ledger", "budget.db", "--account", "patients")
    methods = ("compare", scores, "--methods", "platt-scaling,fed-bin", "--classifier", "Heart risk 2.1")
    commands = {
        "simulated": (*methods, "--repeats", 1),
        "spent": (*methods, *paid),
        "watched": ("monitor", scores, "--by", "week"),
        "planned": ("plan", "--metric", "accuracy", "--records", 500, "--epsilon", 1),
    }
    for name, words in commands.items():
        said = shell(*words, "--bundle", f"{name}.zip", "--format", "json")
        assert said.code == 0, said.err
        assert said.json["bundle"] == f"{name}.zip"
        checked = shell("verify", f"{name}.zip", "--format", "json")
        assert checked.code == 0
        assert checked.json["whole"] is True
        assert {"report.html", "result.json", "sheet.md", "privacy.txt", "ledger.json"} <= set(checked.json["files"])
    with ZipFile("spent.zip") as archive:
        assert json.loads(archive.read("ledger.json"))["epsilon_left"] == "1"
        assert "platt-scaling-fit" in json.loads(archive.read("transcripts.json"))
        assert "Heart risk 2.1" in archive.read("report.html").decode()
    with ZipFile("simulated.zip") as archive:
        assert archive.read("privacy.txt").startswith(b"Simulation")


def test_a_simulation_states_no_digest(scores: Path) -> None:
    """Its secret is its seed: anybody could compute the digest of records that they guess."""
    for done in (evaluate(scores, fc.SecAgg(), simulate=0), monitor(scores, by="week", simulate=0, state="state")):
        assert not done.evidence.inputs
        assert not done.evidence.transcripts
        assert "digest" not in render(done.contents())
