"""A job: one run as a small TOML file, which the server executes and every site can preview."""

from __future__ import annotations

import base64
import binascii
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, final

from fedcalib import registry, wire
from fedcalib.cohort import Everyone
from fedcalib.errors import InputError, WireError
from fedcalib.loop import Agreement, Outline
from fedcalib.method import Method, Plan
from fedcalib.methods.compose import FitAndMeasure
from fedcalib.privacy import Privacy
from fedcalib.records import Schema


@final
@dataclass(frozen=True)
class Job:
    """One run: a method and a privacy model by their names, and what is public about the sites.

    Parameters
    ----------
    method, privacy
        Names as on the command line, such as fed-bbq and distributed.
    sites, classes
        The number of sites and of classes.
    epsilon, delta, clip, colluding
        The options of the privacy model.
    dropout
        The fraction of sites that may drop out.
    timeout
        How many seconds to wait for the sites' replies.
    measure
        Measure a calibrator before and after, within the same budget, and write a report.
    name
        Another name makes another run of the same queries.
    settings
        Options of the method.
    """

    method: str
    privacy: str
    sites: int
    classes: int = 2
    epsilon: float | None = None
    delta: float | None = None
    clip: float | None = None
    colluding: int | None = None
    dropout: float = 0.0
    timeout: float = 120.0
    measure: bool = False
    name: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 3 <= self.sites <= 1 << 16 or self.classes < 2 or not 0 < self.timeout <= 86_400:
            raise InputError(
                f"Expected a job for at least 3 sites, at least 2 classes and a timeout in seconds, found "
                f"{self.sites}, {self.classes} and {self.timeout}."
            )
        self.plan()  # so that a job that cannot be run fails at once

    @classmethod
    def read(cls, path: Path | str) -> Job:
        try:
            return cls._of(tomllib.loads(Path(path).read_text(encoding="utf-8")), str(path))
        except OSError as error:
            raise InputError(f"Expected to read the job {path}, found: {error.strerror or error}.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"Expected TOML in the job {path}, found: {error}.") from error

    @classmethod
    def unpack(cls, text: str) -> Job:
        """The job of a text that `pack` wrote."""
        try:
            return cls._of(wire.parse(base64.urlsafe_b64decode(text)), "the submitted job")
        except (WireError, binascii.Error) as error:
            raise InputError("Expected a job as `fedcalib submit` packs it, found something else.") from error

    @classmethod
    def _of(cls, table: Any, where: str) -> Job:
        known = [one.name for one in fields(cls)]
        if not isinstance(table, dict) or not set(table) <= set(known):
            odd = sorted(set(table) - set(known)) if isinstance(table, dict) else ["no table"]
            raise InputError(f"Expected {', '.join(known)} in {where}, found {', '.join(odd)}.")
        missing = [name for name in ("method", "privacy", "sites") if name not in table]
        if missing:
            raise InputError(f"Expected '{missing[0]}' in {where}, found none.")
        try:
            return cls(**table)
        except TypeError as error:
            raise InputError(f"Expected values of the usual kinds in {where}, found others: {error}.") from error

    def pack(self) -> str:
        """The job as text without spaces or quotes."""
        return base64.urlsafe_b64encode(json.dumps(asdict(self), sort_keys=True).encode()).decode()

    @property
    def key(self) -> str:
        """A hash of the job: the same job continues where it stopped."""
        return sha256(self.pack().encode()).hexdigest()[:32]

    def build_method(self) -> Method[Any]:
        """The method, adapted to the privacy model's budget."""
        row = registry.find("method", self.method)
        if row is None:
            raise InputError(f"Expected a method such as fed-bbq or score-curves, found '{self.method}'.")
        options = {name: tuple(value) if isinstance(value, list) else value for name, value in self.settings.items()}
        made: Method[Any] = row.build(options)
        return self.build_privacy().adapt(FitAndMeasure(made) if self.measure else made)

    def build_privacy(self) -> Privacy:
        options = {"epsilon": self.epsilon, "delta": self.delta, "clip": self.clip, "colluding": self.colluding}
        made: Privacy = registry.privacy(self.privacy, options)
        return made

    def participation(self) -> Everyone:
        """All sites take part, and some of them may drop out."""
        return Everyone(self.dropout)

    def plan(self) -> Plan:
        """Every query of the run."""
        return Plan.of(self.build_method(), self.schema)

    def outline(self) -> Outline:
        """What sites receive before the first query."""
        agreed = Agreement.of(self.build_method(), self.build_privacy(), self.participation(), self.schema)
        queries = agreed.plan.queries
        return Outline(f"preview-{self.key}", queries, agreed.privacy, agreed.cohort, agreed.participation)

    @property
    def schema(self) -> Schema:
        """What is public about the sites."""
        return Schema(self.classes, self.sites)
