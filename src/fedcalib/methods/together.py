"""Together: several methods in one run, their questions joined into as few messages as possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from fedcalib.errors import InputError
from fedcalib.flows.lockstep import lockstep
from fedcalib.method import Budget, Flow, Method
from fedcalib.records import Schema


@final
@dataclass(frozen=True)
class Together(Method[tuple[Any, ...]]):
    """Run methods side by side and return their artifacts in order; one budget covers all of them."""

    methods: tuple[Method[Any], ...]

    def __post_init__(self) -> None:
        if not self.methods:
            raise InputError("Expected at least one method, found none.")

    def within(self, budget: Budget) -> Together:
        """Share it among the methods."""
        return Together(tuple(method.within(budget.among(len(self.methods))) for method in self.methods))

    def protocol(self, schema: Schema) -> Flow[tuple[Any, ...]]:
        """Advance all of them in lockstep."""
        return (yield from lockstep([method.protocol(schema) for method in self.methods]))
