"""The facts of a run that a report states besides its figures: who, when, by which command, from what, paid by whom."""

from __future__ import annotations

import hmac
import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from math import exp
from typing import Any, Final, final

from fedcalib.accounting.spending import Spending

_COMMAND: Final[ContextVar[str]] = ContextVar("command", default="")
_PACKAGES: Final = ("numpy", "scipy", "pyarrow", "opendp")


@final
@dataclass(frozen=True)
class About:
    """What only the people behind a classifier know; a report leaves out what is empty.

    Parameters
    ----------
    classifier
        Its name and version, such as "Heart risk 2.1".
    period
        The time that the data is of, such as "January to June 2024".
    intended_use
        What it is meant for.
    contact
        Whom to ask.

    Examples
    --------
    >>> from fedcalib.workflows.facts import About
    >>> About(classifier="Heart risk 2.1", period="2024").named
    'Heart risk 2.1'
    """

    classifier: str = ""
    period: str = ""
    intended_use: str = ""
    contact: str = ""

    @property
    def named(self) -> str:
        """The classifier in a sentence."""
        return self.classifier or "the classifier"


UNKNOWN: Final = About()


@final
@dataclass(frozen=True)
class Trail:
    """What ties a result to its inputs, to the messages of the run and to the ledger.

    Digests are keyed with the secret of the state directory (HMAC-SHA-256). Whoever has that directory can compute them
    again. Nobody else can test a guess of the records against them, so publishing them tells nothing about a record.

    Parameters
    ----------
    inputs
        Keyed digests of the records, by file or frame.
    transcripts
        Keyed digests of the messages, by phase.
    account
        The ledger's account after the run: name, spent, limit and what is left; empty without a ledger.
    """

    inputs: Mapping[str, str] = field(default_factory=dict)
    transcripts: Mapping[str, str] = field(default_factory=dict)
    account: Mapping[str, str] = field(default_factory=dict)

    @property
    def remainder(self) -> tuple[str, ...]:
        """A sentence about the rest of the budget."""
        if not self.account:
            return ()
        name, left, limit = (self.account.get(key) for key in ("name", "epsilon_left", "epsilon_limit"))
        if left is None:
            return (f"The ledger's account '{name}' has spent epsilon = {self.account['epsilon']} and has no limit.",)
        return (f"The ledger's account '{name}' has epsilon = {left} of {limit} left.",)

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)


def keyed(secret: int, content: object) -> str:
    """A digest that only the holder of the secret can compute."""
    text = json.dumps(content, sort_keys=True, default=str)
    return hmac.new(f"{secret}/digest".encode(), text.encode(), sha256).hexdigest()


@contextmanager
def command(words: str) -> Iterator[None]:
    """Note the command that is running, for the facts of its report."""
    token = _COMMAND.set(words)
    try:
        yield
    finally:
        _COMMAND.reset(token)


def call(otherwise: str) -> str:
    """The command that is running, or the call from Python."""
    return _COMMAND.get() or otherwise


def today() -> str:
    """The date in UTC; SOURCE_DATE_EPOCH overrides it, for files that are the same every time."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH")
    return datetime.fromtimestamp(int(fixed), UTC).date().isoformat() if fixed else datetime.now(UTC).date().isoformat()


def versions() -> dict[str, str]:
    """The versions of the package, of Python and of the packages that compute."""
    from fedcalib import __version__

    found = {"fedcalib": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def stated(about: About, run: str) -> dict[str, str]:
    """The facts of a page, by name."""
    facts = {
        "Classifier": about.classifier or "not named",
        "Data period": about.period or "not stated",
        "Intended use": about.intended_use,
        "Contact": about.contact,
        "Date of this report": today(),
        "fedcalib": versions()["fedcalib"],
        "Intervals": "95%",
        "Command": run,
    }
    return {name: text for name, text in facts.items() if text}


def meaning(spent: Spending) -> tuple[str, ...]:
    """What a privacy statement means, in plain words."""
    if spent.simulation:
        return ("This is a trial with repeatable noise. It protects nobody.",)
    if spent.epsilon is None:
        return _WITHOUT_NOISE[spent.model == "Open"]
    whose = "a record" if spent.unit == "record" else "a whole site or client"
    if spent.epsilon > _WEAK:
        return (f"This is a weak protection: at such an epsilon the noise hides little about {whose}.",)
    much = "strong" if spent.epsilon <= 1 else "moderate"
    return (
        f"Any result is at most {exp(spent.epsilon):.3g} times as likely with {whose} as without it. This is a {much} "
        "protection.",
    )


_WEAK: Final = 5.0  # epsilon
_WITHOUT_NOISE: Final = {
    True: ("Nothing is hidden from the server, and no noise was added. Use this where the data may be pooled.",),
    False: (
        "The server could read only sums over all sites. The sums are exact: a person whose record visibly changes a "
        "sum is not protected.",
    ),
}
