"""The ledger: exact, durable, shared between processes, and hard to edit unseen."""

from __future__ import annotations

import os
import random
import resource
import signal
import sqlite3
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcalib as fc
from fedcalib.accounting.ledger import Ledger
from fedcalib.accounting.spending import Spending
from fedcalib.errors import BudgetError, InputError, LedgerError, TooFewClients
from fedcalib.loop import Step, Total
from tests.examples import examples

ONE_PERCENT = Spending("DistributedDP", "record", 0.01, 0.0, "add/remove", False, "For a test.")


def costing(epsilon: float, delta: float = 0.0) -> Spending:
    return replace(ONE_PERCENT, epsilon=epsilon, delta=delta)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "state" / "budget.db")


@pytest.fixture
def federation() -> fc.Federation:
    rng = np.random.default_rng(0)
    scores = rng.random(60)
    return fc.Federation.iid(fc.Records.of_scores(scores, (rng.random(60) < scores).astype(int)), 4, seed=0)


# exact amounts


def test_a_hundred_times_one_percent_fits_into_one_and_no_more_does(ledger: Ledger) -> None:
    ledger.limit("data", 1.0)
    for number in range(100):
        ledger.debit(f"run-{number}", "data", ONE_PERCENT)
    assert ledger.account("data").epsilon == 1
    with pytest.raises(BudgetError):
        ledger.debit("one more", "data", costing(5e-324))
    assert ledger.account("data").debits == 100


def test_the_smallest_spend_counts(ledger: Ledger) -> None:
    ledger.debit("tiny", "data", costing(5e-324, 5e-324))
    assert ledger.account("data").epsilon == Decimal("0.000001")
    assert ledger.account("data").delta == Decimal("1E-15")


@settings(max_examples=examples(20))
@given(st.lists(st.floats(0, 10, allow_nan=False), min_size=1, max_size=5))
def test_the_ledger_never_shows_less_than_was_spent(
    tmp_path_factory: pytest.TempPathFactory, epsilons: list[float]
) -> None:
    ledger = Ledger(tmp_path_factory.mktemp("ledger") / "budget.db")
    for number, epsilon in enumerate(epsilons):
        ledger.debit(str(number), "data", costing(epsilon))
    shown, spent = ledger.account("data").epsilon, sum(Decimal(repr(epsilon)) for epsilon in epsilons)
    assert spent <= shown <= spent + len(epsilons) * Decimal("0.000001")


def test_a_limit_is_rounded_down(ledger: Ledger) -> None:
    assert ledger.limit("data", "0.0000019", "1.9e-15").epsilon_limit == Decimal("0.000001")
    assert ledger.account("data").delta_limit == Decimal("1E-15")


@pytest.mark.parametrize("amount", ["much", float("nan"), float("inf"), -1, "1e10", "NaN"])
def test_a_limit_has_to_be_an_amount(ledger: Ledger, amount: str | float) -> None:
    with pytest.raises(InputError, match="epsilon"):
        ledger.limit("data", amount)


# once per run, within the limit, never mixed


def test_a_run_is_debited_once_and_each_retry_again(ledger: Ledger) -> None:
    for attempt in (0, 0, 1, 1, 2):
        ledger.debit("run", "data", ONE_PERCENT, attempt=attempt)
    assert ledger.account("data").epsilon == Decimal("0.03")


def test_a_run_cannot_change_its_price(ledger: Ledger) -> None:
    ledger.debit("run", "data", ONE_PERCENT)
    with pytest.raises(LedgerError, match=r"0\.01.*0\.02"):
        ledger.debit("run", "data", costing(0.02))


def test_a_refusal_says_what_was_spent_asked_and_left(ledger: Ledger) -> None:
    ledger.limit("data", "1", "1e-5")
    ledger.debit("run", "data", costing(0.75, 1e-6))
    with pytest.raises(BudgetError, match=r"0\.75, 0\.000001 spent and 0\.5, 0 requested. Left: 0\.25, 0\.000009"):
        ledger.debit("next", "data", costing(0.5))
    with pytest.raises(BudgetError, match="delta"):
        ledger.debit("next", "data", costing(0.1, 1e-5))
    assert ledger.account("data").debits == 1


def test_another_limit_replaces_the_first_and_both_stay_on_record(ledger: Ledger) -> None:
    ledger.limit("data", 1)
    ledger.debit("run", "data", costing(0.8))
    ledger.limit("data", 0.5)
    assert ledger.account("data").epsilon_left == 0
    with pytest.raises(BudgetError):
        ledger.debit("next", "data", costing(0.1))
    ledger.limit("data", 2)
    ledger.debit("next", "data", costing(0.1))
    assert [entry.kind for entry in ledger.entries()] == ["limit", "debit", "limit", "limit", "debit"]


@pytest.mark.parametrize("other", [{"unit": "client"}, {"adjacency": "replace-one"}])
def test_an_account_holds_one_unit_and_one_adjacency(ledger: Ledger, other: dict[str, str]) -> None:
    ledger.debit("run", "data", ONE_PERCENT)
    with pytest.raises(BudgetError, match="cannot be added"):
        ledger.debit("next", "data", replace(ONE_PERCENT, **other))
    ledger.debit("next", "data by other rules", replace(ONE_PERCENT, **other))
    assert [account.debits for account in ledger.accounts()] == [1, 1]


def test_an_old_account_of_clients_goes_on_under_the_new_name_of_its_adjacency(ledger: Ledger) -> None:
    ledger.limit("data", 0.02)
    old = replace(ONE_PERCENT, unit="client")
    object.__setattr__(old, "adjacency", "add/remove")  # as version 0.1.0 wrote it
    ledger.debit("old", "data", old)
    ledger.debit("new", "data", replace(ONE_PERCENT, unit="client"))
    assert [entry.adjacency for entry in ledger.entries()[1:]] == ["add/remove", "replace by an empty client"]
    assert ledger.account("data").adjacency == "replace by an empty client"
    assert ledger.account("data").epsilon == Decimal("0.02")
    with pytest.raises(BudgetError, match="cannot be added"):
        ledger.debit("records", "data", ONE_PERCENT)


def test_a_simulation_and_an_exact_sum_cannot_be_paid_for(ledger: Ledger) -> None:
    with pytest.raises(InputError, match="simulation"):
        ledger.debit("run", "data", replace(ONE_PERCENT, simulation=True))
    with pytest.raises(InputError, match="epsilon"):
        ledger.debit("run", "data", replace(ONE_PERCENT, epsilon=None))


# the loop pays


def test_two_phases_on_one_ledger_compose(ledger: Ledger, federation: fc.Federation) -> None:
    ledger.limit("patients", "1")
    runtime = fc.InProcess(federation)
    fc.run(fc.FedBin(), runtime, fc.DistributedDP(0.6), ledger=ledger.during("calibration"), account="patients")
    fc.run(
        fc.FederatedMetrics(), runtime, fc.DistributedDP(0.4), ledger=ledger.during("evaluation"), account="patients"
    )
    lines = [(entry.kind, entry.phase) for entry in ledger.entries()][1:]
    assert lines == [(kind, phase) for phase in ("calibration", "evaluation") for kind in ("debit", "claim")]
    assert ledger.account("patients").epsilon_left == 0
    with pytest.raises(BudgetError):
        fc.run(fc.FedBin(), runtime, fc.DistributedDP(0.01), ledger=ledger, account="patients")


def test_exact_sums_leave_the_ledger_alone(ledger: Ledger, federation: fc.Federation) -> None:
    fc.run(fc.FedBin(), fc.InProcess(federation), fc.SecAgg(), ledger=ledger)
    assert not Path(ledger.path).exists()


@dataclass
class Flaky(fc.runtimes.Runtime):
    """Clients that fall silent after a query has been sent, a given number of times."""

    inner: fc.InProcess
    silences: int
    asked: int = 0

    @property
    def schema(self) -> fc.Schema:
        return self.inner.schema

    def total(self, step: Step) -> Total:
        self.asked += 1
        if self.silences:
            self.silences -= 1
            raise TooFewClients("For a test.")
        return self.inner.total(step)


def resume(runtime: fc.runtimes.Runtime, ledger: Ledger, transcript: Path, **options: object) -> fc.Result[object]:
    """Start a run over and over until it ends, as an operator would."""
    method = fc.OneShotTemperature(refinements=1)
    for _ in range(9):
        try:
            return fc.run(
                method,
                runtime,
                fc.DistributedDP(1.0, **options),  # type: ignore[arg-type]
                ledger=ledger,
                transcript=transcript,
            )
        except TooFewClients:
            continue
    raise AssertionError("the run never ended")


def test_a_question_asked_again_is_paid_again(ledger: Ledger, federation: fc.Federation, tmp_path: Path) -> None:
    transcript = tmp_path / "transcript.jsonl"
    result = resume(Flaky(fc.InProcess(federation), silences=3), ledger, transcript)
    assert result.privacy.epsilon == pytest.approx(1 + 3 * 0.5)
    assert "sent again 3 times" in result.privacy.statement
    assert ledger.account("default").epsilon == Decimal("2.5")
    replayed = resume(fc.InProcess(federation), ledger, transcript)
    assert replayed.privacy == result.privacy
    assert ledger.account("default").debits == 4


def test_a_run_without_repeats_pays_what_it_declared(ledger: Ledger, federation: fc.Federation, tmp_path: Path) -> None:
    result = resume(fc.InProcess(federation), ledger, tmp_path / "transcript.jsonl")
    assert result.privacy.epsilon == 1.0
    assert "again" not in result.privacy.statement
    assert ledger.account("default").epsilon == 1


def test_a_repeated_gaussian_question_costs_less_than_a_second_run(
    ledger: Ledger, federation: fc.Federation, tmp_path: Path
) -> None:
    flaky = Flaky(fc.InProcess(federation), silences=1)
    result = resume(flaky, ledger, tmp_path / "transcript.jsonl", delta=1e-5)
    spent = ledger.account("default")
    assert 1.1 < float(spent.epsilon) < 1.5
    assert float(spent.epsilon) == pytest.approx(result.privacy.epsilon, abs=3e-6)
    assert spent.delta == Decimal("0.00001")


def test_a_repeat_that_does_not_fit_is_not_asked(ledger: Ledger, federation: fc.Federation, tmp_path: Path) -> None:
    ledger.limit("default", 1)
    flaky = Flaky(fc.InProcess(federation), silences=1)
    with pytest.raises(BudgetError):
        resume(flaky, ledger, tmp_path / "transcript.jsonl")
    assert flaky.asked == 1


# many processes, sudden ends


def fork(work: object) -> int:
    """Run something in a child that ends without pytest's ado."""
    child = os.fork()
    if child == 0:
        try:
            work()  # type: ignore[operator]
        finally:
            os._exit(0)
    return child


def test_six_processes_never_overspend(ledger: Ledger) -> None:
    ledger.limit("data", 1)

    def spend(worker: int) -> None:
        for number in range(25):
            try:
                ledger.debit(f"{worker}-{number}", "data", ONE_PERCENT)
            except BudgetError:
                return

    for child in [fork(lambda worker=worker: spend(worker)) for worker in range(6)]:
        os.waitpid(child, 0)
    assert ledger.account("data").epsilon == 1
    assert ledger.account("data").debits == 100
    assert len({entry.run for entry in ledger.entries() if entry.kind == "debit"}) == 100
    ledger.verify()


def debits_until_killed(ledger: Ledger, life: int, delay: float) -> list[str]:
    """Let a child debit as fast as it can, kill it, and list the debits that it had reported as done."""
    reader, writer = os.pipe()

    def spend() -> None:
        for number in range(1000):
            ledger.debit(f"{life}-{number}", "data", ONE_PERCENT)
            os.write(writer, f"{life}-{number}\n".encode())

    child = fork(spend)
    os.close(writer)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(reader) as pipe:
        return pipe.read().split()


def test_a_killed_process_loses_no_debit_and_spoils_nothing(ledger: Ledger) -> None:
    started = time.perf_counter()
    for number in range(5):
        ledger.debit(f"before-{number}", "data", ONE_PERCENT)
    longest = time.perf_counter() - started
    moments = random.Random(0)
    done: list[str] = []
    for life in range(100):
        told = debits_until_killed(ledger, life, moments.uniform(0.0, longest))
        longest *= 1.0 if told else 1.1  # a machine that has become busy needs longer lives
        done += told
        ledger.verify()
    recorded = [entry.run for entry in ledger.entries()][5:]
    assert len(done) > 20
    assert set(done) <= set(recorded)
    assert len(recorded) == len(set(recorded))
    assert len(recorded) <= len(done) + 100  # at most one a life was written and not yet reported


# the disk is full


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a disk of 32 kB could not be mounted; the next test limits the size of files instead")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_stops_a_run_before_any_question(tiny_disk: Path, federation: fc.Federation) -> None:
    ledger, runtime = Ledger(tiny_disk / "budget.db"), Flaky(fc.InProcess(federation), silences=0)
    with pytest.raises(LedgerError, match=r"full.*nothing may be released"):
        for _ in range(1000):
            fc.run(fc.FedBin(), runtime, fc.DistributedDP(0.01), ledger=ledger)
    assert runtime.asked == ledger.account("default").debits
    ledger.verify()


def test_a_file_that_cannot_grow_is_a_clear_error(ledger: Ledger) -> None:
    ledger.limit("data", 1)
    reader, writer = os.pipe()

    def spend() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, 16_384))
        try:
            for number in range(1000):
                ledger.debit(str(number), "data", replace(ONE_PERCENT, statement="x" * 1000))
        except LedgerError as error:
            os.write(writer, str(error).encode())

    os.waitpid(fork(spend), 0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert "nothing may be released" in pipe.read()
    ledger.verify()


# append-only and private


def test_rows_cannot_be_changed_by_accident(ledger: Ledger) -> None:
    ledger.debit("run", "data", ONE_PERCENT)
    with sqlite3.connect(ledger.path) as connection:
        for statement in (
            "UPDATE entries SET epsilon_micro = '0'",
            "DELETE FROM entries",
            "INSERT OR REPLACE INTO entries SELECT * FROM entries",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE entries SET epsilon_micro = '1' WHERE number = 2",
        "UPDATE entries SET epsilon_micro = 'none' WHERE number = 2",
        "UPDATE entries SET account = 'other' WHERE number = 1",
        "UPDATE entries SET at = '' WHERE number = 3",
        "DELETE FROM entries WHERE number = 2",
        "UPDATE entries SET number = 9 WHERE number = 3",
    ],
)
def test_an_edited_row_is_found_and_stops_spending(ledger: Ledger, edit: str) -> None:
    for number in range(3):
        ledger.debit(str(number), "data", ONE_PERCENT)
    tamper(ledger, edit)
    with pytest.raises(LedgerError, match="edited"):
        ledger.verify()
    with pytest.raises(LedgerError, match="edited"):
        ledger.debit("next", "data", ONE_PERCENT)


def test_a_ledger_cut_short_is_found_by_a_noted_hash(ledger: Ledger) -> None:
    for number in range(3):
        ledger.debit(str(number), "data", ONE_PERCENT)
    noted = ledger.verify()
    ledger.debit("3", "data", ONE_PERCENT)
    assert ledger.verify(noted) != noted
    tamper(ledger, "DELETE FROM entries WHERE number >= 3")
    ledger.verify()
    with pytest.raises(LedgerError, match="cut short"):
        ledger.verify(noted)


def test_a_removed_trigger_is_found(ledger: Ledger) -> None:
    ledger.debit("run", "data", ONE_PERCENT)
    with sqlite3.connect(ledger.path) as connection:
        connection.execute("DROP TRIGGER no_delete")
    connection.close()
    with pytest.raises(LedgerError, match="no_delete"):
        ledger.verify()


def tamper(ledger: Ledger, edit: str) -> None:
    """Edit as somebody would who knows about the triggers, and puts them back."""
    connection = sqlite3.connect(ledger.path)
    triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute(edit)
    for _, statement in triggers:
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_only_the_owner_can_read_it(ledger: Ledger) -> None:
    ledger.debit("run", "data", ONE_PERCENT)
    assert stat.S_IMODE(Path(ledger.path).stat().st_mode) == 0o600
    assert [path.name for path in Path(ledger.path).parent.iterdir()] == ["budget.db"]


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a ledger" * 100)
    with pytest.raises(LedgerError, match="Expected a ledger"):
        Ledger(text).debit("run", "data", ONE_PERCENT)
    assert text.read_text() == "not a ledger" * 100
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE entries (x)")
    connection.close()
    with pytest.raises(LedgerError, match="another kind"):
        Ledger(other).limit("data", 1)
    with pytest.raises(LedgerError, match="no such file"):
        Ledger(tmp_path / "absent.db").verify()
    assert not (tmp_path / "absent.db").exists()


def test_a_file_that_was_made_and_never_written_is_an_empty_ledger(ledger: Ledger) -> None:
    """A process may be killed between the two."""
    Path(ledger.path).parent.mkdir()
    Path(ledger.path).touch()
    assert ledger.entries() == ledger.accounts() == ()
    empty = ledger.verify()
    ledger.debit("run", "data", ONE_PERCENT)
    assert ledger.verify(empty) != empty


def test_a_ledger_in_use_for_too_long_is_a_clear_error(ledger: Ledger) -> None:
    ledger.limit("data", 1)
    with sqlite3.connect(ledger.path, isolation_level=None) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LedgerError, match="Another process"):
            Ledger(ledger.path, patience=0.05).debit("run", "data", ONE_PERCENT)
        connection.execute("ROLLBACK")
    connection.close()
