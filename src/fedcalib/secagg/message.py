"""What every message of the protocol can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from fedcalib.errors import WireError
from fedcalib.secagg import codec


class Message(ABC):
    """A frozen dataclass that travels as JSON text and refuses fields that cannot be right."""

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        self.check()

    @abstractmethod
    def check(self) -> None:
        """Raise WireError for fields that no honest sender would write."""

    def to_json(self) -> str:
        """Write the message as JSON text."""
        return codec.dumps(self.kind, self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a message of this kind from JSON text."""
        return codec.loads(cls.kind, cls, text)


def require(condition: bool, expected: str, found: str) -> None:
    """Raise WireError unless the condition holds."""
    if not condition:
        raise WireError(f"Expected {expected}, found {found}.")


def require_size(raw: bytes, size: int, what: str) -> None:
    """Raise WireError unless there are exactly so many bytes."""
    require(len(raw) == size, f"{size} bytes for {what}", str(len(raw)))
