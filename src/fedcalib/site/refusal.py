"""Why a site does not answer: one word for the server, the reason for the site's own log."""

from __future__ import annotations

from typing import final

from fedcalib.errors import PolicyError


@final
class Refusal(PolicyError):  # noqa: N818 - the name says it as one would
    """A site declines; `word` travels, the message stays."""

    def __init__(self, word: str, message: str) -> None:
        super().__init__(message)
        self.word = word
