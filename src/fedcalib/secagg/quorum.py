"""Refusing to go on with too few sites, in words that say who is missing and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from fedcalib.errors import TooFewClients

_ADVICE = (
    "The step is aborted and nothing can be read. Bring the missing sites back and ask the step again as a new attempt "
    "(fresh masks, fresh noise), or plan with a lower quorum."
)
_MOST_NAMED = 10


def require_around(
    centre: str, around: Sequence[int], present: Set[int], names: Mapping[int, str], *, needed: int, stage: str
) -> None:
    """Abort unless enough of a neighbourhood is present to rebuild the secrets of the site at its centre."""
    missing = [names[place] for place in around if place not in present]
    left = len(around) - len(missing)
    if left < needed:
        raise TooFewClients(
            f"Expected at least {needed} of the {len(around)} sites around {centre!r} at the stage of {stage}, "
            f"found {left}; missing: {_listed(missing)}. {_ADVICE}"
        )


def require_overall(present: int, needed: int, total: int, missing: Sequence[str], stage: str) -> None:
    """Abort unless enough of the whole roster is present for a sum to hide anyone."""
    if present < needed:
        who = f"; missing: {_listed(missing)}" if missing else ""
        raise TooFewClients(
            f"Expected at least {needed} of {total} sites at the stage of {stage}, found {present}{who}. {_ADVICE}"
        )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(map(repr, names[:_MOST_NAMED])) + (f" and {more} more" if more > 0 else "")
