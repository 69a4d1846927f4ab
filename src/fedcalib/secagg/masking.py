"""A client's part of one sum: masking its vector, and choosing which shares to reveal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

import numpy as np

from fedcalib.errors import InputError
from fedcalib.secagg.binding import binding_of
from fedcalib.secagg.errors import ProtocolError
from fedcalib.secagg.identity import Directory
from fedcalib.secagg.keys import KeyPair, unseal
from fedcalib.secagg.masks import MaskedSum, pair_key, seed_key
from fedcalib.secagg.messages import BOX_SIZE, MaskRequest, Vote
from fedcalib.secagg.plan import Plan, Slot
from fedcalib.secagg.quorum import require_around, require_overall
from fedcalib.secagg.shamir import SHARE_SIZE
from fedcalib.secagg.state import Circle, Held, Neighbour, Progress, Secret
from fedcalib.types import Words


def check_present(plan: Plan, circle: Circle, name: str, present: Set[int], stage: str) -> None:
    """Refuse a set of sites that lacks this client or is too small around it or as a whole."""
    if circle.place not in present:
        raise ProtocolError(
            f"Expected site {name!r} among those who take part, found it left out; "
            "start a new attempt instead of leaving out a site that answered."
        )
    names = {circle.place: name} | {neighbour.place: neighbour.name for neighbour in circle.neighbours}
    require_around(name, sorted(names), present, names, needed=plan.around(circle.size), stage=stage)
    require_overall(len(present), plan.overall(circle.size), circle.size, (), stage)


def members_of(circle: Circle, present: Set[int]) -> list[Neighbour]:
    """List the neighbours that are in a set."""
    return [neighbour for neighbour in circle.neighbours if neighbour.place in present]


def open_boxes(circle: Circle, request: MaskRequest, present: Set[int]) -> tuple[Held, ...]:
    """Open the shares that the neighbours sealed for this client."""
    neighbours = members_of(circle, present)
    if len(request.boxes) != BOX_SIZE * len(neighbours):
        raise ProtocolError(
            f"Expected sealed shares from {len(neighbours)} neighbours, found {len(request.boxes) // BOX_SIZE}."
        )
    return tuple(_open(neighbour, request, at) for at, neighbour in enumerate(neighbours))


def _open(neighbour: Neighbour, request: MaskRequest, at: int) -> Held:
    try:
        text = unseal(neighbour.opener, request.slot, request.boxes[at * BOX_SIZE : (at + 1) * BOX_SIZE])
    except ProtocolError as error:
        raise ProtocolError(
            f"Expected shares that site {neighbour.name!r} sealed for this client, found some that do not open; "
            "they were changed on the way or belong to another slot. Ask for a new setup."
        ) from error
    return Held(neighbour.place, text[:SHARE_SIZE], text[SHARE_SIZE:])


def mask(words: Words, secret: Secret, circle: Circle, slot: int, present: Set[int], *, binding: bytes) -> bytes:
    """Add the client's own mask and one mask for every neighbour that takes part."""
    total = MaskedSum(words)
    total.add(seed_key(secret.seed, binding, circle.place))
    pair = KeyPair(secret.key)
    for neighbour in members_of(circle, present):
        key = pair_key(pair.agree(neighbour.keys[slot]), binding, circle.place, neighbour.place)
        total.toward(key, circle.place, neighbour.place)
    return total.words.astype("<u8", copy=False).tobytes()


def check_words(words: Words, slot: Slot) -> None:
    """Refuse a vector that is not what the slot was planned for."""
    if words.dtype != np.uint64 or words.shape != (slot.length,):
        raise InputError(
            f"Expected {slot.length} words of uint64 for step {slot.step}, found {words.dtype} of shape {words.shape}; "
            "view int64 terms as uint64 and give the plan its true length."
        )


def request_binding(plan: Plan, request: MaskRequest) -> bytes:
    """Name the sum that a request asks for."""
    return binding_of(plan, request.roster, request.slot, request.members)


def check_votes(
    plan: Plan, circle: Circle, votes: Sequence[Vote], statement: bytes, *, alive: Set[int], directory: Directory
) -> None:
    """Refuse unless a threshold of the neighbourhood, this client included, signed the same survivors."""
    names = {neighbour.place: neighbour.name for neighbour in members_of(circle, alive)}
    others = plan.around(circle.size) - 1
    for vote in votes[:others]:
        if vote.place not in names:
            raise ProtocolError(
                f"Expected confirmations from surviving neighbours, found one from place {vote.place}, which is none."
            )
        directory.verify(names[vote.place], statement, vote.signature)
    if len(votes) < others:
        raise ProtocolError(
            f"Expected {others} neighbours to confirm the same survivors, found {len(votes)}; nothing is revealed. "
            "The server must show the same set to everyone, or abort the step and ask again."
        )


def reveal(circle: Circle, slot: int, progress: Progress, alive: Set[int]) -> tuple[bytes, bytes]:
    """Give the seed shares of the survivors and the key shares of the lost, each in ascending order of places."""
    seeds = dict(_seeds(circle, slot, progress.held, alive))
    keys = [held.key for held in progress.held if held.place not in alive]
    return b"".join(seeds[place] for place in sorted(seeds)), b"".join(keys)


def _seeds(circle: Circle, slot: int, held: Sequence[Held], alive: Set[int]) -> Iterator[tuple[int, bytes]]:
    yield circle.place, circle.own[slot]
    yield from ((shares.place, shares.seed) for shares in held if shares.place in alive)
