"""A job: what a federation is asked, as a small TOML file that the server runs and every site can preview."""

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
    """One run: a method and a privacy model by their names, and what is public about the sites."""

    method: str
    privacy: str
    sites: int
    classes: int = 2
    epsilon: float | None = None
    delta: float | None = None
    clip: float | None = None
    dropout: float = 0.0
    timeout: float = 120.0
    measure: bool = False  # of calibrators: measure before and after, within the same budget, and write a report
    name: str = ""  # another name makes another run of the same questions
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 3 <= self.sites <= 1 << 16 or self.classes < 2 or not 0 < self.timeout <= 86_400:
            raise InputError(
                f"Expected a job for at least 3 sites, at least 2 classes and a timeout in seconds, found "
                f"{self.sites}, {self.classes} and {self.timeout}."
            )
        self.plan()  # a job that cannot be run is told so at once

    @classmethod
    def read(cls, path: Path | str) -> Job:
        """Read a job from a TOML file."""
        try:
            return cls._of(tomllib.loads(Path(path).read_text(encoding="utf-8")), str(path))
        except OSError as error:
            raise InputError(f"Expected to read the job {path}, found: {error.strerror or error}.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"Expected TOML in the job {path}, found: {error}.") from error

    @classmethod
    def unpack(cls, text: str) -> Job:
        """Read a job from the text that `pack` wrote."""
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
        """Write the job as text without spaces or quotes."""
        return base64.urlsafe_b64encode(json.dumps(asdict(self), sort_keys=True).encode()).decode()

    @property
    def key(self) -> str:
        """Name the job by what it says: the same job goes on where it stopped."""
        return sha256(self.pack().encode()).hexdigest()[:32]

    def asked(self) -> Method[Any]:
        """Make the method."""
        row = registry.find("method", self.method)
        if row is None:
            raise InputError(f"Expected a method such as fed-bbq or score-curves, found '{self.method}'.")
        made: Method[Any] = row.build(dict(self.settings))
        return self.model().adapt(FitAndMeasure(made) if self.measure else made)

    def model(self) -> Privacy:
        """Make the privacy model."""
        options = {"epsilon": self.epsilon, "delta": self.delta, "clip": self.clip}
        made: Privacy = registry.privacy(self.privacy, options)
        return made

    def participation(self) -> Everyone:
        """Say who takes part: all sites, and some of them may drop out."""
        return Everyone(self.dropout)

    def plan(self) -> Plan:
        """List every question."""
        return Plan.of(self.asked(), self._schema)

    def outline(self) -> Outline:
        """Say what sites would be shown before the first question."""
        agreed = Agreement.of(self.asked(), self.model(), self.participation(), self._schema)
        queries = agreed.plan.queries
        return Outline(f"preview-{self.key}", queries, agreed.mechanisms, agreed.cohort, agreed.participation)

    @property
    def _schema(self) -> Schema:
        return Schema(self.classes, self.sites)
