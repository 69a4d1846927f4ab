"""One line of the ledger per query that is sent: a copied or restored transcript pays for what it sends again."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest

import fedcalib as fc
from fedcalib.accounting.spending import Spending
from fedcalib.deploy.flower import serve
from fedcalib.deploy.job import Job
from fedcalib.errors import BudgetError, LedgerError
from fedcalib.loop import Outline, Runtime, Step, Total
from fedcalib.workflows.calibration import CalibrationResult
from tests.contract.subjects import federation
from tests.remote.places import places
from tests.test_ledger import tamper

STEPS = 4
METHOD = fc.FedBin(rounds=STEPS)
PRIVACY = fc.DistributedDP(epsilon=1.0)
FREE = Spending("DistributedDP", "record", 0.0, 0.0, "add/remove", False, "For a test.")


def nothing(_: object) -> None:
    """Do nothing."""


@final
@dataclass(eq=False)
class Releasing(Runtime):
    """Notes every total that it releases; whatever is given happens before the run, and before or after each total."""

    prepared: Callable[[Any], None] = nothing
    before: Callable[[Any], None] = nothing
    after: Callable[[Any], None] = nothing
    released: list[tuple[str, int, int]] = field(default_factory=list)
    inner: Runtime = field(default_factory=lambda: fc.InProcess(federation(2)))

    @property
    def schema(self) -> fc.Schema:
        return self.inner.schema

    def prepare(self, outline: Outline) -> None:
        self.prepared(outline)

    def total(self, step: Step) -> Total:
        self.before(step)
        total = self.inner.total(step)
        self.released.append((step.run, step.index, step.attempt))
        self.after(step)
        return total


def interrupt(_: object) -> None:
    raise KeyboardInterrupt


def at(index: int) -> Callable[[Step], None]:
    """Interrupt at one step."""

    def look(step: Step) -> None:
        if step.index == index:
            raise KeyboardInterrupt

    return look


@pytest.fixture
def ledger(tmp_path: Path) -> fc.Ledger:
    return fc.Ledger(tmp_path / "ledger.db")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def go(runtime: Runtime, path: Path | None, ledger: Any, method: fc.Method[Any] = METHOD) -> fc.Result[Any]:
    return fc.run(method, runtime, PRIVACY, transcript=path, ledger=ledger, account="p")


def cut(runtime: Releasing, path: Path, ledger: Any, method: fc.Method[Any] = METHOD) -> None:
    with pytest.raises(KeyboardInterrupt):
        go(runtime, path, ledger, method)


def spent(ledger: fc.Ledger) -> Decimal:
    return ledger.account("p").epsilon


def lines(ledger: fc.Ledger) -> list[tuple[str, int | None, int]]:
    return [(line.kind, line.step, line.attempt) for line in ledger.entries() if line.kind != "limit"]


# every query has a line before it is sent


def test_every_query_has_its_line_before_it_is_sent(path: Path, ledger: fc.Ledger) -> None:
    def look(step: Step) -> None:
        seen.append((step.index, step.attempt) in ledger.claims(step.run, "p"))

    seen: list[bool] = []
    result = go(Releasing(before=look), path, ledger)
    assert seen == [True] * STEPS
    assert lines(ledger) == [("debit", None, 0), *(("claim", step, 0) for step in range(STEPS))]
    assert spent(ledger) == 1
    assert result.privacy.epsilon == 1.0
    assert ledger.account("p").debits == 1


def test_a_query_that_is_sent_again_has_one_line_with_its_price(path: Path, ledger: fc.Ledger) -> None:
    cut(Releasing(before=at(1)), path, ledger)
    result = go(Releasing(), path, ledger)
    assert lines(ledger)[:4] == [("debit", None, 0), ("claim", 0, 0), ("claim", 1, 0), ("debit", 1, 1)]
    assert spent(ledger) == Decimal("1.25")
    assert result.privacy.epsilon == pytest.approx(1.25)


# copies


def test_copies_of_a_begun_transcript_share_one_release(path: Path, ledger: fc.Ledger) -> None:
    """Proof 7: five copies gave five independent releases for one debit."""
    ledger.limit("p", 1)
    cut(Releasing(prepared=interrupt), path, ledger, fc.FedBin())
    runtime, refused = Releasing(), 0
    for number in range(5):
        copy = Path(shutil.copy(path, path.with_name(f"copy-{number}.jsonl")))
        try:
            go(runtime, copy, ledger, fc.FedBin())
        except BudgetError as error:
            assert "Step 0 was not sent again" in str(error)
            refused += 1
    assert (len(runtime.released), refused) == (1, 4)
    assert spent(ledger) == 1


def test_five_copies_pay_five_times_where_the_limit_allows_it(path: Path, ledger: fc.Ledger) -> None:
    cut(Releasing(prepared=interrupt), path, ledger)
    runtime, results = Releasing(), []
    for number in range(5):
        copy = Path(shutil.copy(path, path.with_name(f"copy-{number}.jsonl")))
        results.append(go(runtime, copy, ledger).privacy.epsilon)
    assert results == pytest.approx([1, 2, 3, 4, 5]), "each states what all copies have cost so far"
    assert spent(ledger) == 5
    assert len(set(runtime.released)) == len(runtime.released) == 5 * STEPS


def test_copies_that_run_at_once_cannot_both_send(path: Path, ledger: fc.Ledger) -> None:
    """The second copy sends while the first is about to: the first has counted without it, so it is refused."""
    cut(Releasing(prepared=interrupt), path, ledger)
    copy = Path(shutil.copy(path, path.with_name("copy.jsonl")))
    second, first = Releasing(), Releasing(prepared=lambda _: go(second, copy, ledger))
    with pytest.raises(LedgerError, match=r"attempt 0 at step 0.*copy of its transcript. Nothing was sent"):
        go(first, path, ledger)
    assert first.released == []
    assert len(second.released) == STEPS
    assert spent(ledger) == 1
    first.prepared = nothing
    go(first, path, ledger)
    assert [(step, attempt) for _, step, attempt in first.released] == [(step, 1) for step in range(STEPS)]
    assert spent(ledger) == 2


def test_a_backup_that_is_put_back_pays_for_what_it_repeats(path: Path, ledger: fc.Ledger) -> None:
    cut(Releasing(after=at(1)), path, ledger)
    backup = shutil.copy(path, path.with_name("backup"))
    done = go(Releasing(), path, ledger)
    assert spent(ledger) == Decimal("1.25")
    shutil.copy(backup, path)
    again = Releasing()
    restored = go(again, path, ledger)
    assert [(step, attempt) for _, step, attempt in again.released] == [(1, 2), (2, 1), (3, 1)]
    assert spent(ledger) == 2
    assert restored.privacy.epsilon == pytest.approx(2.0)
    assert done.privacy.epsilon == pytest.approx(1.25)


def test_a_transcript_that_lost_all_lines_but_its_header_pays_again(path: Path, ledger: fc.Ledger) -> None:
    go(Releasing(), path, ledger)
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    go(Releasing(), path, ledger)
    assert spent(ledger) == 2
    path.write_text("")  # and without the header it is another run
    go(Releasing(), path, ledger)
    assert spent(ledger) == 3
    assert [line.step for line in ledger.entries() if line.kind == "debit"].count(None) == 2


def test_a_copied_state_of_a_command_pays_again(tmp_path: Path) -> None:
    """The copy has the command's secret, so the ledger knows the command, but its transcript has not begun."""
    rng = np.random.default_rng(0)
    scores = rng.random(400)
    data = fc.Federation.iid(fc.Records.of_scores(scores, (rng.random(400) < scores).astype(int)), 4, seed=0)
    ledger = fc.Ledger(tmp_path / "ledger.db")

    def evaluate(state: Path) -> fc.workflows.EvaluationResult:
        return fc.evaluate(data, privacy=PRIVACY, state=state, ledger=ledger.path, account="p")

    evaluate(tmp_path / "one")
    (kept,) = (path for path in (tmp_path / "one").iterdir() if path.is_dir())
    copy = tmp_path / "two" / kept.name
    copy.mkdir(parents=True)
    shutil.copy(kept / "secret", copy / "secret")
    assert spent(ledger) == 1
    assert evaluate(tmp_path / "two").privacy.epsilon == pytest.approx(2.0)
    assert spent(ledger) == 2
    evaluate(tmp_path / "one")
    assert spent(ledger) == 2, "a finished command is replayed"


def test_a_server_whose_transcript_was_put_back_pays_again(tmp_path: Path) -> None:
    job = Job("fed-bin", "distributed", 5, epsilon=1.0)
    folder, sites = tmp_path / "server" / job.key, places(federation(2), folder=tmp_path / "sites")
    ledger = fc.Ledger(tmp_path / "server" / "ledger.db")
    ledger.limit("default", 1)

    def submit() -> fc.Result[Any]:
        return serve(job, sites.runtime(state=folder), folder, tmp_path / "out")

    submit()
    path = folder / "transcript.jsonl"
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    with pytest.raises(BudgetError, match="Step 0 was not sent again"):
        submit()
    ledger.limit("default", 2)
    assert submit().privacy.epsilon == pytest.approx(2.0)
    assert ledger.account("default").epsilon == 2


# what was sent, and what only looks like it


@final
@dataclass(frozen=True)
class Dying:
    """A ledger that is cut off before a claim."""

    ledger: fc.Ledger

    def debit(self, run: str, account: str, spending: Spending, *, attempt: int = 0) -> None:
        self.ledger.debit(run, account, spending, attempt=attempt)

    def claims(self, run: str, account: str) -> frozenset[tuple[int, int]]:
        return self.ledger.claims(run, account)

    def claim(self, *_: object, **__: object) -> None:
        raise KeyboardInterrupt


def asked(path: Path) -> list[tuple[int, int]]:
    found = fc.Transcript.read(path).lines
    return [(line["step"], line["attempt"]) for line in found if line["state"] == "asked"]


def test_a_query_that_was_never_claimed_was_never_sent_and_costs_nothing(path: Path, ledger: fc.Ledger) -> None:
    for _ in range(3):
        cut(Releasing(), path, Dying(ledger))
    assert asked(path) == [(0, 0)]
    runtime = Releasing()
    assert go(runtime, path, ledger).privacy.epsilon == 1.0
    assert spent(ledger) == 1
    assert len(runtime.released) == STEPS
    assert asked(path) == [(step, 0) for step in range(STEPS)]


def test_what_was_sent_without_a_ledger_counts_when_one_is_given(path: Path, ledger: fc.Ledger) -> None:
    cut(Releasing(after=at(0)), path, None)
    assert go(Releasing(), path, ledger).privacy.epsilon == pytest.approx(1.25)
    assert spent(ledger) == Decimal("1.25")


def test_what_a_restored_ledger_forgot_the_transcript_still_knows(path: Path, ledger: fc.Ledger) -> None:
    cut(Releasing(prepared=interrupt), path, ledger)
    backup = shutil.copy(ledger.path, path.with_name("backup.db"))
    for _ in range(3):
        cut(Releasing(after=at(0)), path, ledger)
    shutil.copy(backup, ledger.path)
    runtime = Releasing()
    go(runtime, path, ledger)
    assert runtime.released[0][1:] == (0, 2), "all but the last attempt are known to have been sent"
    assert spent(ledger) == Decimal("1.25")
    shutil.copy(backup, ledger.path)
    assert go(Releasing(), path, ledger).privacy.epsilon == pytest.approx(1.5), "three attempts, the last answered"


# refusals


def test_a_refusal_at_the_limit_names_what_was_released_before(path: Path, ledger: fc.Ledger) -> None:
    ledger.limit("p", 1)
    cut(Releasing(after=at(2)), path, ledger)
    runtime = Releasing()
    with pytest.raises(
        BudgetError, match=r"Step 2 was not sent again. Of the 4 steps .* from 0: 0, 1\. .*recalled from"
    ):
        go(runtime, path, ledger)
    assert runtime.released == []
    assert fc.Transcript.read(path).answered == (0, 1)
    ledger.limit("p", "1.25")
    go(runtime, path, ledger)
    assert spent(ledger) == Decimal("1.25")


def test_a_command_at_the_limit_names_the_phases_that_are_complete(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    scores = rng.random(400)
    data = fc.Federation.iid(fc.Records.of_scores(scores, (rng.random(400) < scores).astype(int)), 4, seed=0)
    ledger, state = fc.Ledger(tmp_path / "ledger.db"), tmp_path / "state"
    ledger.limit("p", 1)

    def calibrate() -> CalibrationResult:
        return fc.calibrate(data, method=fc.FedBin(), privacy=PRIVACY, state=state, ledger=ledger.path, account="p")

    calibrate()
    (lost,) = state.glob("*/measurement.jsonl")
    lost.write_text(lost.read_text().splitlines(keepends=True)[0])
    done = calibrate()
    assert done.before is None and done.after is None
    named = rf"complete phases: calibration, .* from {lost.parent} at no"
    assert any(re.search(named, text) for text in done.warnings)


def test_a_claim_needs_a_debit(ledger: fc.Ledger) -> None:
    with pytest.raises(LedgerError, match=r"found no debit\. Nothing was sent"):
        ledger.claim("run", "p", FREE, step=0, attempt=0, known=frozenset())
    ledger.debit("run", "p", replace(FREE, epsilon=1.0))
    with pytest.raises(LedgerError, match="found no debit"):
        ledger.claim("run", "another account", FREE, step=0, attempt=0, known=frozenset())
    ledger.claim("run", "p", FREE, step=0, attempt=0, known=frozenset())
    ledger.claim("run/part", "p", FREE, step=0, attempt=0, known=frozenset())
    assert ledger.claims("run", "p") == ledger.claims("run/part", "p") == {(0, 0)}


@pytest.mark.parametrize("known", [frozenset(), frozenset({(0, 0)}), frozenset({(0, 0), (1, 0), (2, 0)})])
def test_a_claim_is_made_once_and_from_what_is_on_record(ledger: fc.Ledger, known: frozenset[tuple[int, int]]) -> None:
    ledger.debit("run", "p", replace(FREE, epsilon=1.0))
    ledger.claim("run", "p", FREE, step=0, attempt=0, known=frozenset())
    ledger.claim("run", "p", FREE, step=1, attempt=0, known={(0, 0)})
    before = ledger.verify()
    for attempt in (0, 1):
        with pytest.raises(LedgerError, match="another process"):
            ledger.claim("run", "p", FREE, step=1, attempt=attempt, known=known)
    with pytest.raises(LedgerError, match="another process"):
        ledger.claim("run", "p", FREE, step=1, attempt=0, known={(0, 0), (1, 0)})
    assert ledger.verify() == before


@pytest.mark.parametrize("edit", ["step = 1", "step = NULL", "attempt = 1"])
def test_the_step_of_a_line_cannot_be_edited_unseen(ledger: fc.Ledger, edit: str) -> None:
    ledger.debit("run", "p", replace(FREE, epsilon=1.0))
    ledger.claim("run", "p", FREE, step=0, attempt=0, known=frozenset())
    tamper(ledger, f"UPDATE entries SET {edit} WHERE number = 2")
    with pytest.raises(LedgerError, match="edited"):
        ledger.verify()
