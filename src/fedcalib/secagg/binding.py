"""The hashes that tie every reply to one run, step, attempt and roster."""

from __future__ import annotations

from fedcalib.secagg.digest import digest
from fedcalib.secagg.plan import Plan


def roster_hash(plan: Plan, size: int, root: bytes) -> bytes:
    """Name a roster: the plan (and so the run), how many sites, and the root over their keys."""
    return digest("roster", plan.digest, size, root)


def binding_of(plan: Plan, roster: bytes, slot: int, members: bytes) -> bytes:
    """Name one sum: run, step, attempt, roster, and the members who take part."""
    asked = plan.slots[slot]
    return digest("binding", plan.run, asked.step, asked.attempt, roster, slot, members)


def seed_hash(seed: bytes) -> bytes:
    """Commit to a self-mask seed, so that a rebuilt one can be told from a wrong one."""
    return digest("seed", seed)
