"""What a site agrees to: a file of its own, `policy.toml`, that no server can change."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from math import isfinite
from pathlib import Path
from typing import Any, Final, final

from fedcalib import wire
from fedcalib.accounting import epsilon
from fedcalib.accounting.events import Composed, Event, Parallel, Pure
from fedcalib.accounting.spending import Spending
from fedcalib.cohort import MIN_CLIENTS, MIN_RECORDS, Cohort
from fedcalib.errors import InputError
from fedcalib.loop import Outline
from fedcalib.privacy import Mechanism
from fedcalib.query import Query
from fedcalib.registry import lookup
from fedcalib.remote.protocol import Refusal

MAX_ANSWER_SIZE: Final = 1 << 27  # numbers: one gibibyte
_STRUCTURAL_TYPES: Final = {"Join", "Bound", "Block"}  # parts of queries that are not queries by themselves
_MODEL_MODULES: Final = ("families.", "artifacts.", "training.")  # modules of what a query may fit or apply


@final
@dataclass(frozen=True)
class Policy:
    """The most that a site answers.

    Parameters
    ----------
    queries, models
        The queries that are allowed, and the calibrators and networks inside of them; None allows all of this package.
    mechanisms
        The privacy mechanisms that are allowed.
    epsilon_a_query, epsilon_a_run, epsilon_a_year
        The largest epsilon per query, per run and per year.
    delta
        The delta at which epsilon is computed.
    fewest_records
        The fewest records with which this site takes part in an exact sum.
    fewest_clients
        The fewest clients of a sum under masks.
    quorum
        The smallest fraction of a neighbourhood that can unmask a sum.
    allow_types
        Types of other installed packages that a server may send as well; the lists above hold for them too.
    simulation
        Nodes hold several logical clients each, so that sites are not clients; cannot be set in a file.
    """

    queries: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    mechanisms: tuple[str, ...] = (
        "FixedPoint",
        "PolyaShares",
        "GaussianShares",
        "LaplaceTerms",
        "RandomisedReports",
    )
    epsilon_a_query: float = 1.0
    epsilon_a_run: float = 1.0
    epsilon_a_year: float = 10.0
    delta: float = 1e-5
    fewest_records: int = MIN_RECORDS
    fewest_clients: int = MIN_CLIENTS
    quorum: Fraction = Fraction(2, 3)
    allow_types: tuple[str, ...] = ()
    simulation: bool = False

    def __post_init__(self) -> None:
        for name in ("epsilon_a_query", "epsilon_a_run", "epsilon_a_year"):
            if not (isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise InputError(f"Expected {name} from 0 up, found {getattr(self, name)}.")
        if not 0 <= self.delta < 1 or self.fewest_clients < 2 or self.fewest_records < 0:
            raise InputError("Expected delta from 0 to below 1, at least 2 clients and no negative number of records.")

    @classmethod
    def read(cls, path: Path | str) -> Policy:
        """A policy from a TOML file with these names."""
        try:
            table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"Expected to read the policy {path}, found: {error.strerror or error}.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"Expected TOML in the policy {path}, found: {error}.") from error
        return cls(**{name: _value(name, value, path) for name, value in table.items()})

    def accept(self, outline: Outline) -> Spending | None:
        """What a whole run spends at this site, or a refusal; None where its mechanisms claim no privacy."""
        for query, mechanism in zip(outline.queries, outline.mechanisms, strict=True):
            self.accept_query(query)
            self._accept_mechanism(mechanism, outline.cohort)
            self._accept_epsilon(query, mechanism, outline.cohort)
        return self._accept_run(outline)

    def accept_query(self, query: Query) -> None:
        """Refuse a query, or a calibrator or network inside of it, that is not on the list."""
        if query.size > MAX_ANSWER_SIZE:
            raise Refusal("query", f"Expected at most {MAX_ANSWER_SIZE} numbers in an answer, found {query.size}.")
        for name in _names(wire.encode(query)):
            allowed = self.models if self._is_model(name) else self.queries
            if allowed is not None and name not in allowed:
                raise Refusal("query", f"Expected one of the allowed {', '.join(allowed)}, found {name}.")

    def _is_model(self, name: str) -> bool:
        return lookup(name, self.allow_types).__module__.removeprefix("fedcalib.").startswith(_MODEL_MODULES)

    def _accept_mechanism(self, mechanism: Mechanism, cohort: Cohort) -> None:
        name = type(mechanism).__name__
        if name not in self.mechanisms:
            raise Refusal("mechanism", f"Expected one of {', '.join(self.mechanisms)}, found {name}.")
        if mechanism.modulus is not None and cohort.floor < self.fewest_clients:
            raise Refusal("cohort", f"Expected sums over {self.fewest_clients} clients, found {cohort.floor}.")

    def _accept_epsilon(self, query: Query, mechanism: Mechanism, cohort: Cohort) -> None:
        event = event_of(query, mechanism, cohort)
        if event is None:
            return
        cost, name = epsilon([event], self.delta), type(query).__name__
        if not cost <= self.epsilon_a_query * (1 + 1e-9):
            raise Refusal(
                "epsilon",
                f"Expected epsilon up to {self.epsilon_a_query} per query, found {cost:.6g} in {name}.",
            )

    def _accept_run(self, outline: Outline) -> Spending | None:
        pairs = zip(outline.queries, outline.mechanisms, strict=True)
        events = [event for query, mechanism in pairs if (event := event_of(query, mechanism, outline.cohort))]
        if not events:
            return None
        once = outline.participation.appearances(len(outline.queries)) == 1
        cost = epsilon([Parallel(tuple(events)) if once else Composed(tuple(events))], self.delta)
        if not cost <= self.epsilon_a_run * (1 + 1e-9):
            raise Refusal("epsilon", f"Expected epsilon up to {self.epsilon_a_run} per run, found {cost:.6g}.")
        pure = all(isinstance(event, Pure) for event in events)
        return _spending(outline, cost, 0.0 if pure else self.delta)


def _spending(outline: Outline, cost: float, delta: float) -> Spending:
    units = {block.bound.unit for query in outline.queries for block in query.blocks.values()}
    units |= {mechanism.unit for mechanism in outline.mechanisms if mechanism.unit is not None}
    unit = "client" if "client" in units else "record"
    replaced = any(mechanism.adjacency == "replace-one" for mechanism in outline.mechanisms)
    names = ", ".join(sorted({type(mechanism).__name__ for mechanism in outline.mechanisms}))
    many = len(outline.queries)
    statement = f"{many} {'query' if many == 1 else 'queries'} under {names}, counted by this site."
    return Spending(names, unit, cost, delta, "replace-one" if replaced else "add/remove", False, statement)


def event_of(query: Query, mechanism: Mechanism, cohort: Cohort) -> Event | None:
    """The privacy loss of an answer at this site, which counts every step as if it took part for certain.

    The site cannot check how the server samples. A mechanism that does not fit its query is refused.
    """
    with fitting():
        return mechanism.event(query, replace(cohort, rate=1.0))


@contextmanager
def fitting() -> Iterator[None]:
    """Turn the errors of a mechanism that does not fit its query, such as an unknown block, into a refusal."""
    try:
        yield
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError, IndexError) as error:
        raise Refusal(
            "mechanism", f"Expected a mechanism that fits its query, found {type(error).__name__}."
        ) from error


def _names(data: Any) -> Iterator[str]:
    """Every registered type inside of encoded data."""
    if isinstance(data, dict):
        if isinstance(data.get("type"), str) and data["type"] not in _STRUCTURAL_TYPES:
            yield data["type"]
        for item in data.values():
            yield from _names(item)
    elif isinstance(data, list):
        for item in data:
            yield from _names(item)


def _value(name: str, value: Any, path: Path | str) -> Any:
    known = [field.name for field in fields(Policy) if field.name != "simulation"]
    if name not in known:
        raise InputError(f"Expected {', '.join(known)} in {path}, found '{name}'.")
    if name in ("queries", "models", "mechanisms", "allow_types"):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise InputError(f"Expected a list of names for '{name}' in {path}, found {value!r}.")
        return tuple(value)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InputError(f"Expected a number for '{name}' in {path}, found {value!r}.")
    try:
        return Fraction(value) if name == "quorum" else int(value) if "fewest" in name else float(value)
    except ValueError as error:
        raise InputError(f"Expected a number for '{name}' in {path}, found {value!r}.") from error
