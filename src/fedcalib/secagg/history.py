"""Which attempts at which steps a client answered: what keeps one vector out of two different sums."""

from __future__ import annotations

from collections.abc import Sequence

from fedcalib.secagg.errors import PolicyError, ProtocolError
from fedcalib.secagg.plan import Slot
from fedcalib.secagg.state import Asked


def check_turn(history: Sequence[Asked], slot: Slot, renewed: bool) -> None:
    """Refuse a slot that was answered or overtaken, or whose step was confirmed and is not asked with fresh noise."""
    last = _last(history, slot.step)
    if last is None:
        return
    if slot.attempt <= last.attempt:
        raise ProtocolError(
            f"Expected attempt {last.attempt + 1} or later at step {slot.step}, found attempt {slot.attempt}, which "
            "was answered under another roster or overtaken; ask again as a new attempt, with fresh masks."
        )
    if last.confirmed and not renewed:
        raise PolicyError(
            f"Expected step {slot.step} once, found attempt {slot.attempt} after attempt {last.attempt} was confirmed. "
            "Two sums over different survivors can be subtracted from each other, so this needs a model that adds "
            "fresh noise to every attempt and pays for it; otherwise start a new run."
        )


def check_latest(history: Sequence[Asked], slot: Slot) -> None:
    """Refuse to go on with an attempt that a later one has overtaken."""
    last = _last(history, slot.step)
    if last is None or slot.attempt != last.attempt:
        raise ProtocolError(
            f"Expected to go on with the latest attempt at step {slot.step}, found attempt {slot.attempt}; "
            "an aborted attempt stays aborted."
        )


def record(history: Sequence[Asked], slot: Slot, confirmed: bool) -> tuple[Asked, ...]:
    """Note an answer; that a step was confirmed is never forgotten."""
    last = _last(history, slot.step)
    sticky = confirmed or (last is not None and last.confirmed)
    return (*(asked for asked in history if asked is not last), Asked(slot.step, slot.attempt, sticky))


def _last(history: Sequence[Asked], step: int) -> Asked | None:
    return next((asked for asked in history if asked.step == step), None)
