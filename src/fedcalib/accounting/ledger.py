"""The ledger: a durable privacy budget that is debited before a release and refuses what exceeds its limit.

A ledger adds up what runs spend on a data set. Each run debits its whole (epsilon, delta) once, before anything is
released; training, calibration, evaluation and monitoring of the same people belong into one account. Then each query
gets a line of its own before it is sent: the first sending of a step is covered by the run's debit, and every further
one pays for itself. So a copy of a transcript, which knows nothing of what others have sent, cannot release for free.

Epsilons add up and deltas add up: that is valid whatever the mechanisms were, and for several Gaussian runs it is more
than their common Renyi curve would give, so the ledger errs on the safe side.

Amounts are taken as the decimals that they print as and kept as whole numbers: micro-units of epsilon and 1e-15ths of
delta, a debit rounded up and a limit rounded down. So a hundred debits of 0.01 fit into a limit of 1, and no debit is
too small to count.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, DecimalException, localcontext
from pathlib import Path
from typing import Final, TypeAlias, final

from fedcalib.accounting import ledger_file
from fedcalib.accounting.ledger_file import LedgerEntry, LedgerPage
from fedcalib.accounting.spending import Spending, adjacency_of
from fedcalib.errors import BudgetError, InputError, LedgerError

Amount: TypeAlias = str | int | float | Decimal

_EPSILON_PLACES: Final = 6
_DELTA_PLACES: Final = 15
_MAX_AMOUNT: Final = Decimal(10) ** 9
_MAX_WAIT: Final = 60.0  # seconds, for another process


@final
@dataclass(frozen=True)
class Account:
    """What an account of a ledger has spent, and its limit if there is one."""

    name: str
    unit: str | None  # None until something was spent
    adjacency: str | None
    debits: int
    epsilon: Decimal
    delta: Decimal
    epsilon_limit: Decimal | None
    delta_limit: Decimal | None

    @property
    def epsilon_left(self) -> Decimal | None:
        """The epsilon that can still be spent; None without a limit."""
        return None if self.epsilon_limit is None else max(self.epsilon_limit - self.epsilon, Decimal(0))

    @property
    def delta_left(self) -> Decimal | None:
        """The delta that can still be spent; None without a limit."""
        return None if self.delta_limit is None else max(self.delta_limit - self.delta, Decimal(0))


@final
@dataclass(frozen=True)
class Ledger:
    """A file of debits and limits that many processes may share.

    The file is created by the first debit or limit, readable by its owner alone. It can only be appended to, and each
    line holds the hash of the line before.

    Parameters
    ----------
    path
        The file.
    phase
        A name of the current phase of a pipeline, such as "training"; debits are marked with it.
    patience
        How many seconds to wait while another process uses the file, before it is an error; a transaction takes
        milliseconds.

    Examples
    --------
    >>> import fedcalib as fc
    >>> ledger = fc.Ledger("budget.ledger")
    >>> _ = ledger.limit("patients-2024", epsilon=2)
    >>> federation = fc.Federation.simulated(classes=2, clients=10)
    >>> result = fc.run(
    ...     fc.FedBin(), fc.InProcess(federation), fc.DistributedDP(epsilon=0.5), ledger=ledger, account="patients-2024"
    ... )
    >>> ledger.account("patients-2024").epsilon_left
    Decimal('1.5')
    """

    path: Path | str
    phase: str = ""
    patience: float = _MAX_WAIT

    def during(self, phase: str) -> Ledger:
        """This same ledger for one phase of a pipeline; its debits are marked with the phase."""
        return Ledger(self.path, phase, self.patience)

    def debit(self, run: str, account: str, spending: Spending, *, attempt: int = 0) -> None:
        """Debit a run's spending, durably and once for each attempt, or refuse.

        Parameters
        ----------
        run
            The name of the run; the same debit again changes nothing.
        account
            The account to debit.
        spending
            What the run spends.
        attempt
            0 for the run as a whole, n for the n-th query that had to be sent again.

        Raises
        ------
        BudgetError
            If the account would exceed its limit, or spends on another privacy unit.
        LedgerError
            If the file cannot be read or written, or this run was debited with another amount.
        """
        _check_spending(run, account, spending)
        with ledger_file.writing(self._file, self.patience) as connection:
            page = ledger_file.page(self._file, connection)
            entry = self._line(page, run, account, spending, attempt=attempt)
            if not _repeated(entry, page.entries):
                _check_fits(entry, page.entries)
                ledger_file.append(connection, entry, page.head)

    def claims(self, run: str, account: str) -> frozenset[tuple[int, int]]:
        """The (step, attempt) pairs of a run that were claimed, so that they may have been sent."""
        return _claims(run, account, self.entries())

    def claim(
        self, run: str, account: str, spending: Spending, *, step: int, attempt: int, known: Set[tuple[int, int]]
    ) -> None:
        """Record, durably and before it is sent, one attempt at one step of a run, and debit what it adds.

        Parameters
        ----------
        run
            The name of the run. What follows a slash in it names a part of the run; one debit covers all parts.
        account
            The account that the run was debited to.
        spending
            What this attempt adds: an epsilon of 0 for the first sending of a step, which the run's debit covers.
        step, attempt
            What is going to be sent; each pair can be claimed once.
        known
            The claims that `attempt` and `spending` were worked out from.

        Raises
        ------
        BudgetError
            If the account would exceed its limit.
        LedgerError
            If the run was not debited, the pair is claimed already, or other claims were added to the known ones.
        """
        _check_spending(run, account, spending)
        with ledger_file.writing(self._file, self.patience) as connection:
            page = ledger_file.page(self._file, connection)
            _check_claim(run, account, (step, attempt), known, page.entries)
            entry = self._line(page, run, account, spending, attempt=attempt, step=step)
            if entry.kind == "debit":
                _check_fits(entry, page.entries)
            ledger_file.append(connection, entry, page.head)

    def _line(
        self, page: LedgerPage, run: str, account: str, spending: Spending, *, attempt: int, step: int | None = None
    ) -> LedgerEntry:
        costs = (
            _whole(spending.epsilon or 0.0, _EPSILON_PLACES, ROUND_CEILING, "epsilon"),
            _whole(spending.delta or 0.0, _DELTA_PLACES, ROUND_CEILING, "delta"),
        )
        kind = "debit" if step is None or any(costs) else "claim"
        place = (len(page.entries) + 1, _now(), kind, account, spending.unit, spending.adjacency, self.phase, run)
        statement = spending.statement if kind == "debit" else ""  # a claim is covered by the run's
        return LedgerEntry(*place, attempt, *costs, statement, step)

    def limit(self, account: str, epsilon: Amount, delta: Amount = 0) -> Account:
        """Set the most that an account may spend, and return the account.

        An earlier limit no longer counts, but stays on record.
        """
        _check_name(account)
        most = (
            _whole(epsilon, _EPSILON_PLACES, ROUND_FLOOR, "epsilon"),
            _whole(delta, _DELTA_PLACES, ROUND_FLOOR, "delta"),
        )
        with ledger_file.writing(self._file, self.patience) as connection:
            page = ledger_file.page(self._file, connection)
            entry = LedgerEntry(len(page.entries) + 1, _now(), "limit", account, "", "", self.phase, "", 0, *most, "")
            ledger_file.append(connection, entry, page.head)
        return _account(account, (*page.entries, entry))

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Every line, oldest first."""
        return self._page().entries

    def accounts(self) -> tuple[Account, ...]:
        """What every account has spent, and its limit."""
        entries = self.entries()
        return tuple(_account(name, entries) for name in dict.fromkeys(entry.account for entry in entries))

    def account(self, name: str) -> Account:
        """What one account has spent, and its limit; an account that was never used has spent nothing."""
        return _account(name, self.entries())

    def verify(self, head: str | None = None) -> str:
        """Check every line against its hash and return the hash of the last, which stands for the whole ledger.

        Whoever can write the file could also write new hashes, or cut off the newest lines. To detect that too, note
        the hash elsewhere and pass it as `head` next time: it must still be there.

        Raises
        ------
        LedgerError
            If a line was changed or removed, or `head` is no longer there.
        """
        page, found = ledger_file.read(self._file, self.patience)
        if missing := ledger_file.TRIGGERS - found:
            raise LedgerError(f"Expected {self.path} to be append-only, found {', '.join(sorted(missing))} removed.")
        if head is not None and head not in _hashes(page.entries):
            raise LedgerError(
                f"Expected {self.path} to hold the line with the hash {head[:12]}, found it rewritten or cut short."
            )
        return page.head

    @property
    def _file(self) -> Path:
        return Path(self.path)

    def _page(self) -> LedgerPage:
        return ledger_file.read(self._file, self.patience)[0]


def _repeated(entry: LedgerEntry, entries: Iterable[LedgerEntry]) -> bool:
    """Whether this very debit is on record; another amount on record is an error."""
    key = (entry.account, entry.run, entry.attempt)
    for old in entries:
        if old.kind == "debit" and old.step is None and (old.account, old.run, old.attempt) == key:
            if (old.epsilon_micro, old.delta_femto) != (entry.epsilon_micro, entry.delta_femto):
                raise LedgerError(
                    f"Expected run {entry.run} to spend {_amounts(old)} as debited, found {_amounts(entry)}; "
                    "a changed run needs a name of its own."
                )
            return True
    return False


def _claims(run: str, account: str, entries: Iterable[LedgerEntry]) -> frozenset[tuple[int, int]]:
    own = (entry for entry in entries if (entry.run, entry.account) == (run, account))
    return frozenset((entry.step, entry.attempt) for entry in own if entry.step is not None)


def _check_claim(
    run: str, account: str, release: tuple[int, int], known: Set[tuple[int, int]], entries: tuple[LedgerEntry, ...]
) -> None:
    paid = {entry.run for entry in entries if entry.kind == "debit" and entry.account == account}
    if not {run, run.partition("/")[0]} & paid:
        raise LedgerError(
            f"Expected run {run} to be debited before it sends a query, found no debit. Nothing was sent."
        )
    claims = _claims(run, account, entries)
    if release in claims or claims != known:
        step, attempt = release
        raise LedgerError(
            f"Expected to send attempt {attempt} at step {step} of run {run}, found that another process has sent "
            "queries of this run, perhaps from a copy of its transcript. Nothing was sent. Run again from one "
            "transcript only: what the others have sent counts as spent, and sending it again costs again."
        )


def _check_fits(entry: LedgerEntry, entries: tuple[LedgerEntry, ...]) -> None:
    state = _account(entry.account, entries)
    earlier, new = (state.unit, state.adjacency), (entry.unit, entry.adjacency)
    if state.debits and earlier != new:
        raise BudgetError(
            f"Expected account '{entry.account}' to spend on the unit {earlier[0]} ({earlier[1]}), found a run that "
            f"spends on the unit {new[0]} ({new[1]}). Such amounts cannot be added; use one unit, or another account. "
            "Nothing was released."
        )
    if state.epsilon_limit is None or state.delta_limit is None:
        return
    epsilon, delta = _epsilon(entry.epsilon_micro), _delta(entry.delta_femto)
    if state.epsilon + epsilon > state.epsilon_limit or state.delta + delta > state.delta_limit:
        raise BudgetError(
            f"Expected account '{entry.account}' to stay within epsilon = {state.epsilon_limit}, delta = "
            f"{state.delta_limit}; found {state.epsilon}, {state.delta} spent and {epsilon}, {delta} requested. Left: "
            f"{state.epsilon_left}, {state.delta_left}. Spend less, or decide to raise the limit. "
            f"{'Nothing was released.' if entry.step is None else f'Step {entry.step} was not sent again.'}"
        )


def _account(name: str, entries: Iterable[LedgerEntry]) -> Account:
    own = [entry for entry in entries if entry.account == name]
    debits = [entry for entry in own if entry.kind == "debit"]
    limits = [entry for entry in own if entry.kind == "limit"]
    return Account(
        name,
        debits[0].unit if debits else None,
        adjacency_of(debits[0].unit, debits[0].adjacency) if debits else None,
        len(debits),
        _epsilon(sum(entry.epsilon_micro for entry in debits)),
        _delta(sum(entry.delta_femto for entry in debits)),
        _epsilon(limits[-1].epsilon_micro) if limits else None,
        _delta(limits[-1].delta_femto) if limits else None,
    )


def _hashes(entries: Iterable[LedgerEntry]) -> set[str]:
    head, hashes = ledger_file.FIRST_HASH, {ledger_file.FIRST_HASH}
    for entry in entries:
        head = entry.link(head)
        hashes.add(head)
    return hashes


def _check_spending(run: str, account: str, spending: Spending) -> None:
    _check_name(account)
    if not run:
        raise InputError("Expected a run with a name, found none; a debit needs a name so that it counts once.")
    if spending.simulation:
        raise InputError(
            "Expected a run with secure randomness, found a simulation: it protects nobody, so no budget covers it. "
            "Leave the seed out, or the ledger."
        )
    if spending.epsilon is None:
        raise InputError(f"Expected a spending with an epsilon, found none under {spending.model}.")


def _check_name(account: str) -> None:
    if not account or not account.isprintable() or len(account) > 200:
        raise InputError(f"Expected an account name of 1 to 200 printable characters, found {account[:40]!r}.")


def _whole(amount: Amount, places: int, rounding: str, name: str) -> int:
    """An amount as a whole number of units of 10^-places, rounded in one direction."""
    try:
        exact = Decimal(repr(float(amount)) if isinstance(amount, float) else str(amount))
    except DecimalException as error:
        raise InputError(f"Expected {name} as a number, found {amount!r}.") from error
    if not (exact.is_finite() and 0 <= exact <= _MAX_AMOUNT):
        raise InputError(f"Expected {name} from 0 to {_MAX_AMOUNT:,}, found {amount}.")
    with localcontext(prec=1200):  # a subnormal float has more than a thousand digits, and none may get lost
        return int((exact * 10**places).to_integral_value(rounding))


def _epsilon(micro: int) -> Decimal:
    return _plain(Decimal(micro).scaleb(-_EPSILON_PLACES))


def _delta(femto: int) -> Decimal:
    return _plain(Decimal(femto).scaleb(-_DELTA_PLACES))


def _plain(value: Decimal) -> Decimal:
    """Drop trailing zeros, so that messages read well."""
    return value.quantize(Decimal(1)) if value == value.to_integral() else value.normalize()


def _amounts(entry: LedgerEntry) -> str:
    return f"epsilon = {_epsilon(entry.epsilon_micro)}, delta = {_delta(entry.delta_femto)}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
