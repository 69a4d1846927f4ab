"""`fedcalib site check`: everything that a site needs, looked at before a job needs it; nothing is asked or spent."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, final

from fedcalib.deploy.certificates import check as check_keys
from fedcalib.deploy.certificates import days_left
from fedcalib.deploy.commands import Link
from fedcalib.deploy.fleet import NodeKey, ServerClock, unreachable
from fedcalib.deploy.monitor import Gauges
from fedcalib.errors import FedcalibError, InputError, UnavailableError
from fedcalib.remote.journal import DiskJournal
from fedcalib.remote.policy import Policy
from fedcalib.remote.site import check_room, is_streamed, policy_of, reading_of, stream_of

_TIMEOUT = 10.0  # seconds for the server to answer


@final
@dataclass(frozen=True)
class Checked:
    """One thing that a site needs: whether it is fine, and what was found."""

    name: str
    fine: bool
    what: str


def check_site(places: Mapping[str, str], keys: Path, link: Link) -> list[Checked]:
    """Look at policy, keys, records, state, budget, server and clock of a site, each for itself."""
    journal = DiskJournal(Path(places["state"]))
    looks: dict[str, Callable[[], str]] = {
        "policy": lambda: _policy(policy_of(places)),
        "keys": lambda: _keys(keys, link),
        "records": lambda: _records(places),
        "state": lambda: _state(journal, policy_of(places)),
        "budget": lambda: _budget(journal, policy_of(places)),
        "server": lambda: _server(link),
    }
    return [_looked(name, look) for name, look in looks.items()]


def _looked(name: str, look: Callable[[], str]) -> Checked:
    try:
        return Checked(name, True, look())
    except (FedcalibError, OSError) as error:
        return Checked(name, False, str(error))


def _policy(policy: Policy) -> str:
    return f"epsilon up to {policy.epsilon_a_run:g} per run and {policy.epsilon_a_year:g} in 365 days"


def _keys(folder: Path, link: Link) -> str:
    if link.authority is None:
        return "none, since --insecure was stated"
    NodeKey.read(folder / "node")
    wrong = [one for one in check_keys(folder) if not one.fine]
    if wrong:
        raise InputError("; ".join(f"{one.file}: {one.what}" for one in wrong))
    return "; ".join(one.what for one in check_keys(folder) if one.what != "private")


def _records(places: Mapping[str, str]) -> str:
    """Read all records once, as the site will."""
    if is_streamed(places):
        federation: Any = stream_of(places)
        rejected = federation.stream.found.rejected
    else:
        reading = reading_of(places)
        federation, rejected = reading.federation, reading.rejected
    check_room(federation, policy_of(places))
    how = "in batches" if is_streamed(places) else "in memory"
    return f"{len(federation.records):,} records, {how}; {sum(one.count for one in rejected):,} rows left out"


def _state(journal: DiskJournal, policy: Policy) -> str:
    """Write and remove as much as a run needs; look whether log and ledger are as they were written."""
    with journal.locked():
        journal.check_ready("", None, policy.epsilon_a_year, policy.exact_runs_per_year + 1)
        lines = len(journal.log.lines()) if journal.log.path.exists() else 0
        if lines:
            journal.log.verify()
        if Path(journal.ledger.path).exists():
            journal.ledger.verify(None)
    return f"{journal.folder} can be written; {lines} lines of the log are as they were written"


def _budget(journal: DiskJournal, policy: Policy) -> str:
    left = epsilon_left(journal, policy)
    if left <= 0:
        raise InputError(f"Nothing is left of epsilon {policy.epsilon_a_year:g} in 365 days.")
    return f"epsilon {left:g} of {policy.epsilon_a_year:g} in 365 days is left"


def epsilon_left(journal: DiskJournal, policy: Policy) -> float:
    """What is left of the budget of the last 365 days."""
    return float(max(Decimal(repr(policy.epsilon_a_year)) - journal.spent_in_a_year(), Decimal(0)))


def node_facts(places: Mapping[str, str], link: Link) -> Gauges:
    """What a node's metrics tell besides its messages; what cannot be read is left out."""
    facts: dict[str, tuple[str, float]] = {}
    with suppress(FedcalibError, OSError):
        left = epsilon_left(DiskJournal(Path(places["state"])), policy_of(places))
        facts["fedcalib_epsilon_left"] = ("Epsilon left of the last 365 days.", left)
    with suppress(FedcalibError, OSError):
        if link.authority is not None:
            what = "Days until the certificate of the authority ends."
            facts["fedcalib_authority_days_left"] = (what, days_left(link.authority))
    return facts


def _server(link: Link) -> str:
    """Whether the server answers, with a certificate that this site trusts, and a clock that agrees."""
    context = None if link.authority is None else ssl.create_default_context(cafile=str(link.authority))
    connection: http.client.HTTPConnection = (
        http.client.HTTPConnection(link.host, link.port, timeout=_TIMEOUT)
        if context is None
        else http.client.HTTPSConnection(link.host, link.port, timeout=_TIMEOUT, context=context)
    )
    clock = ServerClock()

    def ask(_: Any) -> http.client.HTTPResponse:
        connection.request("GET", "/")
        return connection.getresponse()

    try:
        clock.intercept(None, ask)
    except (OSError, http.client.HTTPException) as error:
        raise UnavailableError(unreachable(link, error)) from error
    finally:
        connection.close()
    if clock.problem is not None:
        raise InputError(clock.problem)
    return f"{link.address} answers; the clocks differ by {abs(clock.ahead):.0f} s"
