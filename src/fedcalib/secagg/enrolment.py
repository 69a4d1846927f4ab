"""A client's part of the setup: drawing keys, checking the roster, sharing secrets."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace

from fedcalib.secagg.binding import roster_hash, seed_hash
from fedcalib.secagg.errors import ProtocolError
from fedcalib.secagg.graph import Graph
from fedcalib.secagg.identity import SIGNATURE_SIZE, Directory, Identity
from fedcalib.secagg.keys import KeyPair, derive_both, seal
from fedcalib.secagg.merkle import root_of
from fedcalib.secagg.messages import Advert, Entry, Pledge, RosterView, SealedShares
from fedcalib.secagg.plan import Plan
from fedcalib.secagg.shamir import SECRET_SIZE, split
from fedcalib.secagg.state import Circle, Neighbour, Secret, Session

UNSIGNED = bytes(SIGNATURE_SIZE)


def open_session(plan: Plan, identity: Identity) -> Session:
    """Draw an encryption key for the setup, a masking key and a seed for every slot, and sign the public halves."""
    encryption = KeyPair()
    pairs = [KeyPair() for _ in plan.slots]
    seeds = [secrets.token_bytes(SECRET_SIZE) for _ in plan.slots]
    pledges = tuple(Pledge(pair.public, seed_hash(seed)) for pair, seed in zip(pairs, seeds, strict=True))
    advert = Advert(plan.digest, identity.name, encryption.public, pledges, UNSIGNED)
    return Session(
        plan=plan,
        advert=replace(advert, signature=identity.sign(advert.statement)),
        encryption=encryption.private,
        secrets=tuple(Secret(pair.private, seed) for pair, seed in zip(pairs, seeds, strict=True)),
        progress=(None,) * len(plan.slots),
    )


def hash_of(plan: Plan, view: RosterView) -> bytes:
    """Work out the hash of the roster from a client's view of it."""
    leaves = {entry.place: entry.advert.leaf for entry in view.entries}
    return roster_hash(plan, view.size, root_of(view.size, leaves, view.proof))


def check_view(plan: Plan, view: RosterView, roster: bytes, own: Advert, directory: Directory) -> None:
    """Refuse a neighbourhood that is not the roster's, lacks this client, or holds keys that its sites did not sign."""
    places = tuple(entry.place for entry in view.entries)
    if places != Graph(view.size, plan.neighbours(view.size), roster).around(view.place):
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


def check_advert(plan: Plan, advert: Advert, directory: Directory) -> None:
    """Refuse keys for another plan, or that the named site did not sign."""
    if advert.plan != plan.digest or len(advert.pledges) != len(plan.slots):
        raise ProtocolError(
            f"Expected keys of site {advert.name!r} for this plan, found keys for another; ask for its keys again."
        )
    directory.verify(advert.name, advert.statement, advert.signature)


def _check_distinct(entries: Sequence[Entry]) -> None:
    keys = [entry.advert.encryption for entry in entries]
    keys += [pledge.key for entry in entries for pledge in entry.advert.pledges]
    if len(set(keys)) != len(keys):
        raise ProtocolError("Expected a fresh key for every site and slot, found one used twice.")


def share(session: Session, view: RosterView, roster: bytes, identity: Identity) -> tuple[Session, SealedShares]:
    """Share both secrets of every slot among the neighbourhood, sealed for each neighbour."""
    dealt = _deal(session, view)
    pair = KeyPair(session.encryption)
    boxes, neighbours = [], []
    for entry in view.entries:
        if entry.place == view.place:
            continue
        common = pair.agree(entry.advert.encryption)
        sealer, opener = derive_both(common, "sealed shares", roster, view.place, entry.place)
        boxes.append(b"".join(seal(sealer, slot, b"".join(both)) for slot, both in enumerate(dealt[entry.place])))
        keys = tuple(pledge.key for pledge in entry.advert.pledges)
        neighbours.append(Neighbour(entry.place, entry.advert.name, keys, opener))
    sealed = SealedShares(roster, view.place, tuple(boxes), UNSIGNED)
    sealed = replace(sealed, signature=identity.sign(sealed.statement))
    own = tuple(seed for _, seed in dealt[view.place])
    circle = Circle(roster, view.size, view.place, tuple(neighbours), own)
    # The encryption key can go: every key that it leads to has been derived.
    return replace(session, encryption=None, circle=circle, sealed=sealed), sealed


def _deal(session: Session, view: RosterView) -> dict[int, list[tuple[bytes, bytes]]]:
    """Give each place, slot by slot, its share of the masking key and its share of the seed."""
    hidden = [part for secret in session.secrets if secret is not None for part in (secret.key, secret.seed)]
    places = [entry.place for entry in view.entries]
    shares = split(hidden, session.plan.around(view.size), [place + 1 for place in places])
    return {place: list(zip(row[::2], row[1::2], strict=True)) for place, row in zip(places, shares, strict=True)}
