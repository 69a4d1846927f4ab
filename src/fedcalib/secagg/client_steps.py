"""What a client saves between messages, and the steps from one saved state to the next.

`ClientState` holds only what later messages need; its field names are the saved format. The functions below follow
the stages of `Client`: which attempts at which steps were answered (this keeps one vector out of two different sums),
the setup (drawing keys, checking the roster, sharing secrets), and one sum (masking the vector, choosing which shares
to reveal).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np

from fedcalib.errors import InputError, PolicyError
from fedcalib.secagg import crypto, messages
from fedcalib.secagg.crypto import ProtocolError
from fedcalib.secagg.roster import require_neighbourhood, require_overall, root_of, roster_hash, seed_hash, unpack
from fedcalib.secagg.setup import SIGNATURE_SIZE, Directory, NeighbourGraph, SetupPlan, SigningIdentity, Slot, Written
from fedcalib.types import Words


@final
@dataclass(frozen=True)
class SlotSecrets:
    """A client's own two secrets of a slot: the private masking key and the self-mask seed."""

    key: bytes
    seed: bytes


@final
@dataclass(frozen=True)
class Neighbour:
    """A neighbour's place and name, its masking keys by slot, and the key that opens what it seals for this client."""

    place: int
    name: str
    keys: tuple[bytes, ...]
    opener: bytes


@final
@dataclass(frozen=True)
class Neighbourhood:
    """A client's place in the roster and its neighbours; `own` holds its shares of its own seeds, by slot."""

    roster: bytes
    size: int
    place: int
    neighbours: tuple[Neighbour, ...]
    own: tuple[bytes, ...]


@final
@dataclass(frozen=True)
class HeldShares:
    """A client's shares of the two secrets of one neighbour; it will reveal at most one of them."""

    place: int
    key: bytes
    seed: bytes


@final
@dataclass(frozen=True)
class SlotProgress:
    """The replies of a slot since its vector was masked; a later reply deletes what only earlier ones needed."""

    binding: bytes
    members: bytes
    held: tuple[HeldShares, ...]
    masked: messages.MaskedVector | None
    survivors: bytes | None = None
    confirmation: messages.Confirmation | None = None
    unmasking: messages.Unmasking | None = None


@final
@dataclass(frozen=True)
class SetupState:
    """One setup and the slots that it prepared."""

    plan: SetupPlan
    advert: messages.Advert
    encryption: bytes | None
    secrets: tuple[SlotSecrets | None, ...]
    progress: tuple[SlotProgress | None, ...]
    circle: Neighbourhood | None = None
    sealed: messages.SealedShares | None = None


@final
@dataclass(frozen=True)
class AnsweredStep:
    """The latest attempt at a step that this client answered, and whether it ever confirmed an attempt at it."""

    step: int
    attempt: int
    confirmed: bool


@final
@dataclass(frozen=True)
class ClientState(Written):
    """Everything that a client needs after a restart, except its identity; only its owner may read the file."""

    kind: ClassVar[str] = "secagg.client_state"

    name: str
    session: SetupState | None = None
    history: tuple[AnsweredStep, ...] = ()


def check_turn(history: Sequence[AnsweredStep], slot: Slot, renewed: bool) -> None:
    """Refuse a slot that was answered or overtaken, or a confirmed step that is not retried with fresh noise."""
    last = _last(history, slot.step)
    if last is None:
        return
    if slot.attempt <= last.attempt:
        raise ProtocolError(
            f"Expected attempt {last.attempt + 1} or later at step {slot.step}, found attempt {slot.attempt}, which "
            "was answered under another roster or overtaken; retry it as a new attempt, with fresh masks."
        )
    if last.confirmed and not renewed:
        raise PolicyError(
            f"Expected step {slot.step} once, found attempt {slot.attempt} after attempt {last.attempt} was confirmed. "
            "Two sums over different survivors can be subtracted from each other, so this needs a privacy model that "
            "adds fresh noise to every attempt and pays for it; otherwise start a new run."
        )


def check_latest(history: Sequence[AnsweredStep], slot: Slot) -> None:
    """Refuse to go on with an attempt that a later one has overtaken."""
    last = _last(history, slot.step)
    if last is None or slot.attempt != last.attempt:
        raise ProtocolError(
            f"Expected to go on with the latest attempt at step {slot.step}, found attempt {slot.attempt}; "
            "an aborted attempt stays aborted."
        )


def record(history: Sequence[AnsweredStep], slot: Slot, confirmed: bool) -> tuple[AnsweredStep, ...]:
    """Add an answer to the history; that a step was ever confirmed is never forgotten."""
    last = _last(history, slot.step)
    ever_confirmed = confirmed or (last is not None and last.confirmed)
    others = (answered for answered in history if answered is not last)
    return (*others, AnsweredStep(slot.step, slot.attempt, ever_confirmed))


def _last(history: Sequence[AnsweredStep], step: int) -> AnsweredStep | None:
    return next((answered for answered in history if answered.step == step), None)


UNSIGNED = bytes(SIGNATURE_SIZE)


def start_setup(plan: SetupPlan, identity: SigningIdentity) -> SetupState:
    """Draw an encryption key for the setup, a masking key and a seed for every slot, and sign the public halves."""
    encryption = crypto.KeyPair()
    pairs = [crypto.KeyPair() for _ in plan.slots]
    seeds = [secrets.token_bytes(crypto.SECRET_SIZE) for _ in plan.slots]
    pledges = tuple(messages.Pledge(pair.public, seed_hash(seed)) for pair, seed in zip(pairs, seeds, strict=True))
    advert = messages.Advert(plan.digest, identity.name, encryption.public, pledges, UNSIGNED)
    return SetupState(
        plan=plan,
        advert=replace(advert, signature=identity.sign(advert.statement)),
        encryption=encryption.private,
        secrets=tuple(SlotSecrets(pair.private, seed) for pair, seed in zip(pairs, seeds, strict=True)),
        progress=(None,) * len(plan.slots),
    )


def hash_of(plan: SetupPlan, view: messages.RosterView) -> bytes:
    """Work out the hash of the roster from a client's view of it."""
    leaves = {entry.place: entry.advert.leaf for entry in view.entries}
    return roster_hash(plan, view.size, root_of(view.size, leaves, view.proof))


def check_view(
    plan: SetupPlan, view: messages.RosterView, roster: bytes, own: messages.Advert, directory: Directory
) -> None:
    """Refuse a neighbourhood that is not the roster's, lacks this client, or holds keys that its sites did not sign."""
    places = tuple(entry.place for entry in view.entries)
    if places != NeighbourGraph(view.size, plan.neighbours(view.size), roster).neighbourhood(view.place):
        raise ProtocolError("Expected the neighbours that the roster's hash gives, found others chosen by the server.")
    if next(entry.advert for entry in view.entries if entry.place == view.place) != own:
        raise ProtocolError(f"Expected this client's own keys at place {view.place}, found others; they were swapped.")
    names = [entry.advert.name for entry in view.entries]
    if names != sorted(set(names)):
        raise ProtocolError("Expected a roster sorted by name with each site once, found another order.")
    for entry in view.entries:
        if entry.place != view.place:
            check_advert(plan, entry.advert, directory)
    _check_distinct(view.entries)


def check_advert(plan: SetupPlan, advert: messages.Advert, directory: Directory) -> None:
    """Refuse keys for another plan, or that the named site did not sign."""
    if advert.plan != plan.digest or len(advert.pledges) != len(plan.slots):
        raise ProtocolError(
            f"Expected keys of site {advert.name!r} for this plan, found keys for another; request its keys again."
        )
    directory.verify(advert.name, advert.statement, advert.signature)


def _check_distinct(entries: Sequence[messages.RosterEntry]) -> None:
    keys = [entry.advert.encryption for entry in entries]
    keys += [pledge.key for entry in entries for pledge in entry.advert.pledges]
    if len(set(keys)) != len(keys):
        raise ProtocolError("Expected a fresh key for every site and slot, found one used twice.")


def share(
    session: SetupState, view: messages.RosterView, roster: bytes, identity: SigningIdentity
) -> tuple[SetupState, messages.SealedShares]:
    """Share both secrets of every slot among the neighbourhood, sealed for each neighbour."""
    dealt = _deal(session, view)
    pair = crypto.KeyPair(session.encryption)
    boxes, neighbours = [], []
    for entry in view.entries:
        if entry.place == view.place:
            continue
        common = pair.agree(entry.advert.encryption)
        sealer, opener = crypto.derive_both(common, "sealed shares", roster, view.place, entry.place)
        shares = enumerate(dealt[entry.place])
        boxes.append(b"".join(crypto.seal(sealer, slot, b"".join(both)) for slot, both in shares))
        keys = tuple(pledge.key for pledge in entry.advert.pledges)
        neighbours.append(Neighbour(entry.place, entry.advert.name, keys, opener))
    sealed = messages.SealedShares(roster, view.place, tuple(boxes), UNSIGNED)
    sealed = replace(sealed, signature=identity.sign(sealed.statement))
    own = tuple(seed for _, seed in dealt[view.place])
    circle = Neighbourhood(roster, view.size, view.place, tuple(neighbours), own)
    # The encryption key can go: every key that it leads to has been derived.
    return replace(session, encryption=None, circle=circle, sealed=sealed), sealed


def _deal(session: SetupState, view: messages.RosterView) -> dict[int, list[tuple[bytes, bytes]]]:
    """For each place, slot by slot, its share of the masking key and its share of the seed."""
    hidden = [part for secret in session.secrets if secret is not None for part in (secret.key, secret.seed)]
    places = [entry.place for entry in view.entries]
    shares = crypto.split(hidden, session.plan.neighbourhood_threshold(view.size), [place + 1 for place in places])
    return {place: list(zip(row[::2], row[1::2], strict=True)) for place, row in zip(places, shares, strict=True)}


def check_present(plan: SetupPlan, circle: Neighbourhood, name: str, present: Set[int], stage: str) -> None:
    """Refuse a set of sites that lacks this client or is too small around it or as a whole."""
    if circle.place not in present:
        raise ProtocolError(
            f"Expected site {name!r} among those who take part, found it left out; "
            "start a new attempt instead of leaving out a site that answered."
        )
    names = {circle.place: name} | {neighbour.place: neighbour.name for neighbour in circle.neighbours}
    needed = plan.neighbourhood_threshold(circle.size)
    require_neighbourhood(name, sorted(names), present, names, needed=needed, stage=stage)
    require_overall(len(present), plan.roster_threshold(circle.size), circle.size, (), stage)


def members_of(circle: Neighbourhood, present: Set[int]) -> list[Neighbour]:
    """List the neighbours that are in a set."""
    return [neighbour for neighbour in circle.neighbours if neighbour.place in present]


def open_boxes(circle: Neighbourhood, request: messages.MaskRequest, present: Set[int]) -> tuple[HeldShares, ...]:
    """Open the shares that the neighbours sealed for this client."""
    neighbours, boxes = members_of(circle, present), crypto.pieces(request.boxes, messages.BOX_SIZE)
    if len(boxes) != len(neighbours):
        raise ProtocolError(f"Expected sealed shares from {len(neighbours)} neighbours, found {len(boxes)}.")
    return tuple(_open(neighbour, request.slot, box) for neighbour, box in zip(neighbours, boxes, strict=True))


def _open(neighbour: Neighbour, slot: int, box: bytes) -> HeldShares:
    try:
        text = crypto.unseal(neighbour.opener, slot, box)
    except ProtocolError as error:
        raise ProtocolError(
            f"Expected shares that site {neighbour.name!r} sealed for this client, found some that do not open; "
            "they were changed on the way or belong to another slot. Start a new setup."
        ) from error
    return HeldShares(neighbour.place, text[: crypto.SHARE_SIZE], text[crypto.SHARE_SIZE :])


def mask(
    words: Words, secret: SlotSecrets, circle: Neighbourhood, slot: int, present: Set[int], *, binding: bytes
) -> bytes:
    """Add the client's own mask and one mask for every neighbour that takes part."""
    total = crypto.MaskedSum(words)
    total.add(crypto.seed_key(secret.seed, binding, circle.place))
    pair = crypto.KeyPair(secret.key)
    for neighbour in members_of(circle, present):
        key = crypto.pair_key(pair.agree(neighbour.keys[slot]), binding, circle.place, neighbour.place)
        total.add_pair_mask(key, circle.place, neighbour.place)
    return total.words.astype("<u8", copy=False).tobytes()


def check_words(words: Words, slot: Slot) -> None:
    """Refuse a vector of another type or length than the slot was planned for."""
    if words.dtype != np.uint64 or words.shape != (slot.length,):
        raise InputError(
            f"Expected {slot.length} words of uint64 for step {slot.step}, found {words.dtype} of shape {words.shape}; "
            "view int64 terms as uint64 and give the plan its true length."
        )


def check_confirmations(
    plan: SetupPlan, circle: Neighbourhood, request: messages.UnmaskRequest, survivors: bytes, directory: Directory
) -> None:
    """Refuse unless a threshold of the neighbourhood, this client included, signed the same survivors."""
    names = {neighbour.place: neighbour.name for neighbour in members_of(circle, unpack(survivors, circle.size))}
    statement = messages.survivors_statement(request.binding, survivors)
    others = plan.neighbourhood_threshold(circle.size) - 1
    for vote in request.votes[:others]:
        if vote.place not in names:
            raise ProtocolError(f"Expected confirmations from surviving neighbours, found place {vote.place}.")
        directory.verify(names[vote.place], statement, vote.signature)
    if len(request.votes) < others:
        raise ProtocolError(
            f"Expected {others} neighbours to confirm the same survivors, found {len(request.votes)}; nothing is "
            "revealed. The server must show the same set to everyone, or abort the step and retry it."
        )


def reveal(circle: Neighbourhood, slot: int, progress: SlotProgress, alive: Set[int]) -> tuple[bytes, bytes]:
    """The seed shares of the survivors and the key shares of the lost members, each in ascending order of places."""
    seeds = {held.place: held.seed for held in progress.held if held.place in alive}
    seeds[circle.place] = circle.own[slot]
    keys = [held.key for held in progress.held if held.place not in alive]
    return b"".join(seeds[place] for place in sorted(seeds)), b"".join(keys)
