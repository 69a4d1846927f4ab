"""What a site agrees to: a file of its own, `policy.toml`, that no server can change.

A site derives the mechanisms of a run itself, prices them, and estimates the work of every query, all before it agrees.
None of that looks at its records: what it refuses is the same whatever they hold and however many they are.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from decimal import Decimal
from fractions import Fraction
from math import isfinite, prod
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from fedcalib import wire
from fedcalib.accounting import epsilon
from fedcalib.accounting.events import Composed, Event, Parallel, Pure
from fedcalib.accounting.spending import Spending
from fedcalib.cohort import MIN_CLIENTS, MIN_RECORDS, Cohort
from fedcalib.errors import FedcalibError, InputError, MissingColumn
from fedcalib.loop import Outline
from fedcalib.privacy import Mechanism, Privacy
from fedcalib.query import Block, Join, Query
from fedcalib.registry import lookup
from fedcalib.remote.protocol import (
    CLIPS,
    DELTAS,
    EPSILONS,
    MAX_BLOCKS,
    MAX_CELLS,
    MAX_DENSE,
    MAX_FLOOR,
    MAX_NETWORK,
    MAX_NOISE,
    MAX_WORK,
    SAMPLED,
    Refusal,
)
from fedcalib.training.network import Network

_STRUCTURAL_TYPES: Final = {"Join", "Bound", "Block"}  # parts of queries that are not queries by themselves
_MODEL_MODULES: Final = ("families.", "artifacts.", "training.")  # modules of what a query may fit or apply
_MAX_DISTINCT_STEPS: Final = 8  # of a sampled run: each takes an accounting of its own
_WHOLE: Final = ("fewest", "most", "exact")  # how the names of whole numbers begin
TOLD: Final = ("no", "enough", "exact")  # what a server may learn about the budget


@final
@dataclass(frozen=True)
class Policy:
    """The most that a site answers.

    Parameters
    ----------
    queries, models
        The queries that are allowed, and the calibrators and networks inside of them; None allows all of this package.
    privacy_models
        The privacy models that are allowed. `SecAgg`, `Open` and `UserGaussian` let the server read exact sums, so
        each of them has to be allowed by name.
    epsilon_a_query, epsilon_a_run, epsilon_a_year
        The largest epsilon per query, per run, and in any 365 days over all runs whatever their unit.
    delta
        The delta at which epsilon is computed.
    fewest_records
        The fewest records with which this site takes part in an exact sum.
    fewest_clients
        The fewest clients of a sum under masks, and the fewest sites by which two exact sums over the same records may
        differ.
    exact_runs_per_year
        The most runs without an epsilon in any 365 days.
    most_records
        The most records that this site may hold. Work is estimated for this number, so that no refusal depends on how
        many there are.
    most_cells, most_work
        The most numbers in an answer, and the most numbers to touch in computing it: 2^28 take about two seconds.
    quorum
        The smallest fraction of a neighbourhood that can unmask a sum.
    tell_budget
        What a server learns about the budget: "exact", what is left of the year; "enough", whether it suffices for a
        run; "no", neither: a run that does not fit is declined without a reason.
    max_missing
        The largest fraction of a file's rows that may be left out because a number or label is missing; with more, the
        site answers nothing. Whether it does then depends on its records, so leave room; 1 never stops.
    tell_left_out
        Whether a server learns, with a run of exact sums, how many percent of the rows were left out.
    allow_types
        Types of other installed packages that a server may send as well; the lists above hold for them too.
    simulation
        Nodes hold several logical clients each, so that sites are not clients; cannot be set in a file.
    """

    queries: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    privacy_models: tuple[str, ...] = ("DistributedDP", "LocalDP", "SourceLaplace")
    epsilon_a_query: float = 1.0
    epsilon_a_run: float = 1.0
    epsilon_a_year: float = 10.0
    delta: float = 1e-5
    fewest_records: int = MIN_RECORDS
    fewest_clients: int = MIN_CLIENTS
    exact_runs_per_year: int = 12
    most_records: int = 100_000
    most_cells: int = MAX_CELLS
    most_work: int = MAX_WORK
    quorum: Fraction = Fraction(2, 3)
    tell_budget: str = "enough"
    max_missing: float = 1.0
    tell_left_out: bool = False
    allow_types: tuple[str, ...] = ()
    simulation: bool = False

    def __post_init__(self) -> None:
        for name in ("epsilon_a_query", "epsilon_a_run", "epsilon_a_year"):
            if not (isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise InputError(f"Expected {name} from 0 up, found {getattr(self, name)}.")
        if not 0 <= self.delta < 1 or self.fewest_clients < 2 or self.fewest_records < 0:
            raise InputError("Expected delta from 0 to below 1, at least 2 clients and no negative number of records.")
        if min(self.exact_runs_per_year, self.most_records, self.most_cells, self.most_work) < 0:
            raise InputError("Expected limits of runs, records, cells and work from 0 up, found a negative one.")
        if not 0 <= self.max_missing <= 1:
            raise InputError(f"Expected max_missing from 0 to 1, found {self.max_missing}.")
        if self.tell_budget not in TOLD:
            raise InputError(f"Expected {', '.join(TOLD)} as tell_budget, found {self.tell_budget!r}.")

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

    def told_left(self, spent: Callable[[], Decimal]) -> float | None:
        """What is left of the year's epsilon, where a server may know it."""
        if self.tell_budget != "exact":
            return None
        return max(float(Decimal(repr(self.epsilon_a_year)) - spent()), 0.0)

    def told_word(self, word: str) -> str:
        """The word of a refusal that a server may know."""
        return "declined" if word == "budget" and self.tell_budget == "no" else word

    def accept(self, outline: Outline) -> Spending | None:
        """What a whole run spends at this site, or a refusal; None where its privacy model claims no epsilon."""
        name = type(outline.privacy).__name__
        if name not in self.privacy_models:
            raise Refusal("mechanism", f"Expected one of {', '.join(self.privacy_models)}, found {name}.")
        _check_model(outline.privacy)
        self._accept_plan(outline)
        for query in outline.queries:
            self.accept_query(query)
        for query, mechanism in zip(outline.queries, derived(outline), strict=True):
            self._accept_mechanism(query, mechanism, outline.cohort)
            self._accept_epsilon(query, mechanism, outline.cohort)
        return self._accept_run(outline)

    def accept_query(self, query: Query) -> None:
        """Refuse a query that is too large, or that is, holds or applies something that is not on the list."""
        blocks = len(query.blocks)
        if query.size > self.most_cells or blocks > MAX_BLOCKS:
            raise Refusal("work", f"Expected at most {self.most_cells} numbers in an answer, found {query.size}.")
        for part in _parts(query):
            _check_network(part)
        for name in _names(wire.encode(query)):
            allowed = self.models if self._is_model(name) else self.queries
            if allowed is not None and name not in allowed:
                raise Refusal("query", f"Expected one of the allowed {', '.join(allowed)}, found {name}.")

    def accept_work(self, query: Query, mechanism: Mechanism, classes: int, clients: int) -> None:
        """Refuse a query that could take too long, for as many records as this site may hold."""
        each = work(query, classes) * (_REPORT_WORK if _is_local(mechanism) else 1)
        found = self.most_records * each + answer_work(query, mechanism, self.most_records, clients)
        dense = _dense(query, classes) if _is_local(mechanism) else 0
        if found > self.most_work or dense > MAX_DENSE * max(1, self.most_work // MAX_WORK):
            name = type(query).__name__
            raise Refusal("work", f"Expected to touch at most {self.most_work} numbers, found {found} in {name}.")

    def _accept_plan(self, outline: Outline) -> None:
        """Refuse a plan whose mechanisms would take long to derive and to price."""
        blocks = sum(len(query.blocks) for query in outline.queries)
        if blocks > MAX_BLOCKS or blocks * outline.cohort.floor > 16 * MAX_FLOOR:
            raise Refusal("work", f"Expected fewer blocks or a smaller cohort, found {blocks}, {outline.cohort.floor}.")
        least = [getattr(outline.privacy, name, None) for name in ("epsilon", "delta")]
        if outline.cohort.rate < 1 and any(found and found < low for found, low in zip(least, SAMPLED, strict=True)):
            raise Refusal("mechanism", f"Expected epsilon and delta of at least {SAMPLED} under sampling, found less.")
        weights = {sum(block.weight for block in query.blocks.values()) for query in outline.queries}
        if outline.cohort.rate < 1 and len(weights) > _MAX_DISTINCT_STEPS:
            raise Refusal("work", f"Expected at most {_MAX_DISTINCT_STEPS} weights of queries, found {len(weights)}.")

    def _is_model(self, name: str) -> bool:
        return lookup(name, self.allow_types).__module__.removeprefix("fedcalib.").startswith(_MODEL_MODULES)

    def _accept_mechanism(self, query: Query, mechanism: Mechanism, cohort: Cohort) -> None:
        if mechanism.modulus is not None and cohort.floor < self.fewest_clients:
            raise Refusal("cohort", f"Expected sums over {self.fewest_clients} clients, found {cohort.floor}.")
        with fitting():
            if mechanism.width(query) > 2 * self.most_cells:
                raise Refusal("work", f"Expected at most {2 * self.most_cells} numbers in a message, found more.")
        _check_noise(mechanism)

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
    name, many = type(outline.privacy).__name__, len(outline.queries)
    statement = f"{many} {'query' if many == 1 else 'queries'} under {name}, counted by this site."
    return Spending(name, unit, cost, delta, "replace-one" if replaced else "add/remove", False, statement)


def derived(outline: Outline) -> tuple[Mechanism, ...]:
    """The mechanisms of a run by this site's own reckoning; a privacy model that cannot serve it is refused."""
    with fitting():
        return outline.mechanisms


def _check_model(privacy: Privacy) -> None:
    """Refuse numbers of a privacy model for which noise could not be sized, or not within a short time."""
    limits = {"epsilon": EPSILONS, "delta": DELTAS, "clip": CLIPS}
    for name, (low, high) in limits.items():
        found = getattr(privacy, name, None)
        numbers = found.values() if isinstance(found, Mapping) else (found,)
        for number in numbers:
            if not (number is None or (name == "delta" and number == 0) or low <= number <= high):
                raise Refusal("mechanism", f"Expected {name} from {low:g} to {high:g}, found {number:g}.")


def server_reads(mechanism: Mechanism, event: Event | None) -> bool:
    """Whether the server reads an exact sum: nothing is claimed, or the server itself adds the noise."""
    return event is None or (mechanism.modulus is not None and not mechanism.renewed)


def _check_noise(mechanism: Mechanism) -> None:
    """Refuse scales and noise so large or small that integers would saturate: noise would then be a constant."""
    settings = [setting for setting in _fields(mechanism) if isinstance(setting, Mapping)]
    numbers = [number for setting in settings for number in setting.values() if isinstance(number, float)]
    if not all(1 / MAX_NOISE <= number <= MAX_NOISE for number in numbers):
        raise Refusal("mechanism", "Expected noise and grids from 2^-48 to 2^48 steps, found others; use more epsilon.")


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
    except Refusal:
        raise
    except MissingColumn as error:
        raise Refusal("columns", f"{error} State such a column with --group or --rival if jobs may use it.") from error
    except FedcalibError as error:
        raise Refusal("mechanism", str(error)) from error
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError, IndexError) as error:
        raise Refusal(
            "mechanism", f"Expected a mechanism that fits its query, found {type(error).__name__}."
        ) from error


# Numbers that each record makes a site touch, beside one per class. Tables whose last axis holds bins are sparse: a
# record touches one bin of each row. Where several temperatures are tried, each takes all classes.
_SPARSE: Final = {
    *("TopLabelTable", "ScoreGaps", "ClasswiseResiduals", "LogitResiduals", "BinnedGaps"),
    *("LabelHistogram", "DomainGaps"),
}
_TEMPERATURES: Final = ("inverses", "temperatures")
_NOISE_WORK: Final = 4000  # drawing one number of noise takes as long as touching so many
_ORDER_WORK: Final = 60  # per pair of temperatures, which are put in an order
_REPORT_WORK: Final = 4  # times as much as a sum, where each record's cells are written out
_MASK_WORK: Final = 4  # per number and neighbour
_PASS_WORK: Final = 6  # forward and backward through a weight
_CONVOLUTION_WORK: Final = 200  # a weight of a convolution is used at many places


def work(query: Query, classes: int) -> int:
    """Numbers that one record makes a site touch, from the public parameters of a query alone."""
    inner = _inner(query)
    if isinstance(query, Join):
        return sum(work(part, classes) for part in query.parts)
    own = 0 if inner else sum(_touched(query, block, classes) for block in query.blocks.values())
    tried = _tried(query)
    around = sum(2 * work(part, classes) for part in inner[:1])
    return 2 * classes * (1 + tried) * _passes(query) + own + _applied(query) + around


def answer_work(query: Query, mechanism: Mechanism, records: int, clients: int) -> int:
    """Numbers to touch once per answer: temperatures, cells, their noise or coins, and masks for the neighbours."""
    cells = mechanism.width(query)
    ordered = sum(_ORDER_WORK * _tried(part) ** 2 for part in _parts(query))
    if _is_local(mechanism):
        return ordered + cells * (64 + records // 4)  # two random bits per record and cell
    noisy = mechanism.adjacency != "none" and not server_reads(mechanism, Pure(0.0))
    return ordered + cells * (16 + (_NOISE_WORK if noisy else 0) + _MASK_WORK * min(clients, 64))


def _is_local(mechanism: Mechanism) -> bool:
    """Whether single records report, each with all of its cells written out."""
    return mechanism.modulus is None and mechanism.adjacency == "replace-one"


def _dense(query: Query, classes: int) -> int:
    """The cells of a record that local reports write out, some arrays for many records at a time."""
    leaves = [part for part in _parts(query) if isinstance(part, Query) and not _inner(part)]
    return sum(_touched(part, block, classes) for part in leaves for block in part.blocks.values())


def _inner(query: Query) -> list[Query]:
    """The queries inside of a query, outermost first."""
    return [part for part in _parts(query) if part is not query and isinstance(part, Query)]


def _tried(query: object) -> int:
    """The number of temperatures that a query tries."""
    return max(len(getattr(query, name, ())) for name in _TEMPERATURES)


def _touched(query: Query, block: Block, classes: int) -> int:
    if block.one_hot:
        return 1
    if type(query).__name__ in _SPARSE:
        return prod(block.shape[:-1])
    return block.size // (classes if type(query).__name__ == "ClassMoments" else 1)


def _applied(query: Query) -> int:
    """What families, networks and calibrators inside of a query take per record: their numbers, pass by pass."""
    numbers = sum(map(_numbers, _fields(query)))
    networks = [part for part in _parts(query) if isinstance(part, Network)]
    linear = all(type(network).__name__ == "SoftmaxRegression" for network in networks)
    return numbers * _passes(query) * (1 if not networks else _PASS_WORK if linear else _CONVOLUTION_WORK)


def _passes(query: Query) -> int:
    """How often local fits and local training go through the records."""
    sizes = [vars(part).get(name) for part in _parts(query) for name in ("steps", "epochs")]
    return prod(size for size in sizes if type(size) is int and size > 0)


def _numbers(value: object) -> int:
    """The numbers that a value holds in lists and arrays."""
    if isinstance(value, np.ndarray):
        return value.size
    if isinstance(value, tuple):
        return sum(max(_numbers(item), 1) for item in value)
    return 0 if isinstance(value, Query) else sum(map(_numbers, _fields(value)))


def _parts(value: object) -> Iterator[object]:
    """A dataclass and every dataclass inside of it, outermost first."""
    if is_dataclass(value):
        yield value
    for item in value if isinstance(value, tuple) else _fields(value):
        yield from _parts(item)


def _fields(value: Any) -> list[Any]:
    """The values of a dataclass's fields; none of anything else."""
    return [getattr(value, field.name) for field in fields(value)] if is_dataclass(value) else []


def _check_network(part: object) -> None:
    """Refuse a network whose layers would take too much memory, before it is built."""
    if isinstance(part, Network):
        sizes = [size for size in _fields(part) if type(size) is int and size > 0]
        if prod(sizes) > MAX_NETWORK:
            raise Refusal("work", f"Expected a network with a product of sizes up to {MAX_NETWORK}, found {sizes}.")


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
    if name == "mechanisms":
        raise InputError(f"Expected 'privacy_models' in {path}, found 'mechanisms'; name privacy models instead.")
    if name not in known:
        raise InputError(f"Expected {', '.join(known)} in {path}, found '{name}'.")
    if name in ("queries", "models", "privacy_models", "allow_types"):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise InputError(f"Expected a list of names for '{name}' in {path}, found {value!r}.")
        return tuple(value)
    if name == "tell_budget" or (name == "tell_left_out" and isinstance(value, bool)):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InputError(f"Expected a number for '{name}' in {path}, found {value!r}.")
    try:
        return Fraction(value) if name == "quorum" else int(value) if name.startswith(_WHOLE) else float(value)
    except ValueError as error:
        raise InputError(f"Expected a number for '{name}' in {path}, found {value!r}.") from error
